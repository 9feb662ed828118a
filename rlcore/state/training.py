"""The state of a training: the registry of its parts, where it is, and the states of random generators."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import Tensor

from rlcore.checkpoint import codec
from rlcore.checkpoint.container import unusable
from rlcore.checkpoint.torch_file import DTYPES
from rlcore.errors import CheckpointError, ResumeWarning, StateError, warn_caller
from rlcore.state.tree import FREE, REMEDY, SAME, Rule, fit
from rlcore.types import StateDict, StateValue


class Scope(Enum):
    """Who takes a part of the state along."""

    LEARNER = "learner"
    """What updates change: taken by ``get_parameters()``, checkpoints, model files and pickles."""
    COLLECTED = "collected"
    """What collecting rollouts changes and belongs to what was learnt: taken like LEARNER."""
    PROGRESS = "progress"
    """How far training has come: model files and pickles."""
    RUN = "run"
    """Where the run is (environments, generators): model files and pickles, restored when training goes on."""


LEARNT = (Scope.LEARNER, Scope.COLLECTED)
"""The scopes of what parameters consist of."""


def _nothing(*_: StateDict) -> None:
    pass


@dataclass(frozen=True)
class StatePart:
    """One named part of a training.

    :param capture: returns the present state, or None where there is nothing to save
    :param restore: restores a state; raises StateError and changes nothing if it does not fit. That of a RUN part is
        called when training goes on, not before
    :param reset: starts the part fresh, for a file that does not have it
    :param required: whether a set of parameters without it is incomplete
    :param check: raises StateError for a state of a RUN part that could never be restored
    """

    key: str
    scope: Scope
    capture: Callable[[], StateDict | None]
    restore: Callable[[StateDict], None]
    reset: Callable[[], None] = _nothing
    required: bool = False
    check: Callable[[StateDict], object] = _nothing


def snapshot(value: StateValue) -> StateValue:
    """Return a copy that shares no tensor with its source, detached from any graph."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: snapshot(item) for key, item in value.items()}
    if isinstance(value, list):
        return [snapshot(item) for item in value]
    return value


class TrainingState:
    """Captures and restores the parts of one model, in their order.

    :param pending: RUN parts by key that were given and not yet restored; captured in place of the present state
    """

    def __init__(self, parts: Sequence[StatePart], pending: dict[str, StateDict]) -> None:
        self.parts = {part.key: part for part in parts}
        self.pending = pending

    def capture(self, *scopes: Scope) -> dict[str, StateDict | None]:
        """Return snapshots of the parts of these scopes, by key; None for a part that has nothing to save."""
        found: dict[str, StateDict | None] = {}
        for key, part in self.parts.items():
            if part.scope in scopes:
                is_pending = part.scope is Scope.RUN and key in self.pending
                found[key] = snapshot(self.pending[key] if is_pending else part.capture())  # type: ignore[assignment]
        return found

    def resume(self) -> None:
        """Restore the pending parts.

        :raises StateError: a state does not fit; all stay pending
        """
        for part in self.parts.values():
            if part.scope is Scope.RUN and part.key in self.pending:
                with unusable(part.key):
                    part.restore(snapshot(self.pending[part.key]))  # type: ignore[arg-type]

    def restore(
        self,
        states: Mapping[str, StateDict | None],
        *,
        exact_match: bool = True,
        expected: Collection[Scope] = LEARNT,
        undoes: bool = True,
    ) -> None:
        """Restore every given state, or with ``undoes`` none of them; those of RUN parts become pending.

        With ``exact_match`` a required part must be given, and a part that is left out starts fresh, with one warning.
        Without it, what is left out stays as it is, and a state that the model has no use for is passed over.

        :param expected: the scopes that may be given, and whose parts count as left out where they are not
        :param undoes: False for a new model, which has to be thrown away after an error
        :raises StateError: for an unknown key, a required part left out, a state that does not fit
        :raises ResumeWarning: where a filter makes an error of the warning; nothing is changed
        """
        given = {key: state for key, state in states.items() if state is not None}
        known = {key for key, part in self.parts.items() if part.scope in expected}
        missing = [part.key for part in self.parts.values() if part.required and part.key not in given and exact_match]
        if missing or not known.issuperset(given):
            unknown = sorted(map(str, given.keys() - known))
            raise StateError(f"missing are {missing}, and unknown here {unknown}; known are {sorted(known)}")
        absent = [p for p in self.parts.values() if exact_match and p.scope in expected and p.key not in given]
        fresh = [p for p in absent if (p.key not in states if p.scope is Scope.RUN else p.capture() is not None)]
        before = self.capture(*LEARNT, Scope.PROGRESS) if undoes else {}
        pending = dict(self.pending)
        try:
            for key, state in given.items():
                self._restore_part(self.parts[key], state, exact_match)
            self._start_fresh(fresh)
        except BaseException:
            self._put_back(before)
            self.pending.clear()
            self.pending.update(pending)
            raise

    def _restore_part(self, part: StatePart, state: StateDict, exact_match: bool) -> None:
        with unusable(part.key):
            if not isinstance(state, Mapping):
                raise StateError(f"{part.key} must be a dict of state, got {type(state).__name__}")
            if part.scope is Scope.RUN:
                part.check(state)
                self.pending[part.key] = snapshot(state)  # type: ignore[assignment]
            elif exact_match or part.scope not in LEARNT or part.capture() is not None:
                part.restore(snapshot(state))  # type: ignore[arg-type]

    def _put_back(self, states: Mapping[str, StateDict | None]) -> None:
        for key, state in states.items():
            if state is not None:
                self.parts[key].restore(state)

    def _start_fresh(self, parts: Iterable[StatePart]) -> None:
        keys = []
        for part in parts:
            part.reset()
            keys.append(part.key)
        if keys:
            warn_caller(
                f"no state for {', '.join(keys)}: it starts fresh, for what was measured under other weights or in "
                "another way would not fit these, so training does not go on exactly where it stopped",
                ResumeWarning,
            )


Observations = NDArray[Any] | dict[str, NDArray[Any]]


def capture_position(model: BaseAlgorithm) -> StateDict | None:
    """Return what the next step starts from, or None before the model has reset its environments.

    ``observations`` are those that the policy reads, ``original_observations`` those before VecNormalize.
    """
    now: Any = model  # SB3 declares what it sets later as None
    if now._last_obs is None:
        return None
    return {
        "observations": to_state(now._last_obs),
        "original_observations": to_state(now._last_original_obs),
        "episode_starts": torch.as_tensor(now._last_episode_starts),
    }


def fit_position(
    state: object, lstm: StateDict, where: str, model: BaseAlgorithm, n_envs: int, *, is_exact: bool = False
) -> dict[str, Any]:
    """Return the state of :func:`capture_position` with LSTM states, all of ``n_envs`` environments.

    :param lstm: the form of the LSTM states, by name
    :param is_exact: whether the environments of ``model`` have VecNormalize if those of the state have
    :raises StateError: of other observations, environments or LSTMs
    """
    free = dict.fromkeys(("observations", "original_observations", "episode_starts"), FREE)
    like: dict[Any, Any] = {**lstm, **dict.fromkeys(free)}
    fitted: dict[str, Any] = fit(state, like, where, free)
    starts = fitted["episode_starts"]
    form = torch.zeros(n_envs, dtype=starts.dtype if isinstance(starts, Tensor) else torch.float32)
    fit(starts, form, f"{where}['episode_starts']", {})
    normalizer = model._vec_normalize_env
    original = None if normalizer is None else normalizer.observation_space
    given = {name: from_state(fitted[name]) for name in ("observations", "original_observations")}
    require_in_space(given["observations"], model.observation_space, f"{where}['observations']", n_envs)
    if given["original_observations"] is not None or (is_exact and original is not None):
        require_in_space(given["original_observations"], original, f"{where}['original_observations']", n_envs)
    return fitted


def restore_position(model: BaseAlgorithm, fitted: Mapping[str, Any]) -> None:
    """Let the next step start from what :func:`fit_position` returned; the LSTM states are left to the caller."""
    now: Any = model
    now._last_obs = from_state(fitted["observations"])
    now._last_original_obs = from_state(fitted["original_observations"])
    now._last_episode_starts = fitted["episode_starts"].cpu().numpy().copy()


def to_state(observations: Observations | None) -> StateValue:
    """Return a tensor for an array, a dict for a Dict; an array of a type that torch lacks is encoded as its bytes.

    So is one whose axes have another order in memory, as images have: convolutions round by it.
    """
    if observations is None:
        return None
    if isinstance(observations, Mapping):
        return {key: to_state(part) for key, part in observations.items()}
    tensor = torch.as_tensor(observations)
    is_plain = tensor.dtype in DTYPES.values() and tensor.is_contiguous()
    return tensor if is_plain else codec.encode(observations, "observations")


def from_state(state: Any) -> Any:
    """Return what :func:`to_state` was given.

    :raises StateError: the state is damaged
    """
    if isinstance(state, Tensor):
        return state.cpu().numpy()
    if isinstance(state, dict) and codec.KIND not in state:
        return {key: from_state(part) for key, part in state.items()}
    try:
        return codec.decode(state, "observations", {})
    except CheckpointError as error:
        raise StateError(f"the observations are damaged: {error.reason}") from error


def require_in_space(value: Any, space: spaces.Space[Any] | None, where: str, n_envs: int | None = None) -> None:
    """Raise StateError unless these are finite observations or actions of ``space`` (None for any).

    :param n_envs: how many rows there are; None for any number
    """
    keys = set(space) if isinstance(space, spaces.Dict) else None
    if isinstance(value, dict) and (space is None or set(value) == keys):
        for key, part in value.items():
            require_in_space(part, None if space is None else space[key], f"{where}[{key!r}]", n_envs)  # type: ignore[index]
        return
    shape = value.shape if isinstance(value, np.ndarray) else None
    rows = shape[:1] if shape and n_envs is None else (n_envs,)
    if keys is not None or shape is None or shape != (*rows, *(shape[1:] if space is None else space.shape or ())):
        wanted = f"a dict of {sorted(keys)}" if keys is not None else "an array for each environment of the space"
        raise StateError(f"{where} must be {wanted}, and has the shape {shape}; {REMEDY}")
    sizes = space.n if isinstance(space, spaces.Discrete) else getattr(space, "nvec", None)
    is_valid = sizes is None or (value.dtype.kind in "iu" and bool(((value >= 0) & (value < sizes)).all()))
    if not is_valid or not np.isfinite(value).all():
        raise StateError(f"{where} holds other values than {space or 'observations'} has, NaN or infinity; {REMEDY}")


def capture_generators() -> StateDict:
    """Return the states of Python's, NumPy's and torch's global generators."""
    version, internal, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(internal), gauss],
        "numpy": [torch.from_numpy(np.asarray(keys).astype(np.int64)), int(position), int(has_gauss), float(cached)],
        "torch": torch.get_rng_state(),
        "cuda": list(torch.cuda.get_rng_state_all()) if torch.cuda.is_initialized() else [],  # type: ignore[no-untyped-call]
    }


def apply_generators(state: StateDict) -> None:
    """Set the global generators to a state captured by ``capture_generators``."""
    fields: Any = state
    _set_states(fields, random, np.random)
    torch.set_rng_state(fields["torch"].cpu())
    if fields["cuda"] and torch.cuda.device_count() == len(fields["cuda"]):
        torch.cuda.set_rng_state_all([state.cpu() for state in fields["cuda"]])


@contextmanager
def generators_untouched() -> Iterator[None]:
    """Leave the global generators as they were before."""
    state = capture_generators()
    try:
        yield
    finally:
        apply_generators(state)


def check_generators(state: StateDict) -> None:
    """Raise StateError for what no generator of its kind takes."""
    names = ("python", "numpy", "torch", "cuda")
    fields: Any = fit(state, dict.fromkeys(names), "rng_state", dict.fromkeys(names, FREE))
    try:
        # What the generators take unchecked; NumPy would read beyond its keys.
        gauss, (keys, position, has_gauss, cached) = fields["python"][2], fields["numpy"]
        if keys.shape != (624,) or not 0 <= position <= 624 or any(type(n) is not int for n in (position, has_gauss)):
            raise ValueError("a position or a flag is wrong")
        if type(cached) is not float or type(gauss) not in (float, type(None)):
            raise ValueError("a number that is kept is wrong")
        _set_states(fields, random.Random(), np.random.RandomState())
        torch.Generator().set_state(fields["torch"].cpu())
        if len({tensor.numel() for tensor in fields["cuda"]}) > 1:
            raise ValueError("the states of devices differ in size")
    except (TypeError, ValueError, RuntimeError, AttributeError, OverflowError, LookupError) as error:
        raise StateError(f"rng_state is none that a generator takes ({error}); {REMEDY}") from error


def _set_states(fields: Mapping[str, Any], python: Any, numpy: Any) -> None:
    """Set two generators, or those of two modules."""
    version, internal, gauss = fields["python"]
    keys, *position = fields["numpy"]
    python.setstate((version, tuple(internal), gauss))
    numpy.set_state(("MT19937", keys.numpy().astype(np.uint32), *position))


def generator_state(generator: np.random.Generator) -> StateDict:
    """Return the state of a NumPy generator, whose integers of 128 bits stay Python's.

    :raises StateError: the bit generator is not PCG64, which Gymnasium uses
    """
    state: Any = generator.bit_generator.state
    if state["bit_generator"] != "PCG64":
        raise StateError(f"the generator {state['bit_generator']} cannot be stored; use numpy.random.PCG64")
    return {name: state[name] for name in ("bit_generator", "state", "has_uint32", "uinteger")}


def generator_from_state(value: StateValue, where: str) -> np.random.Generator:
    """Return a new generator that continues where :func:`generator_state` was taken.

    :raises StateError: a state that is not one of PCG64
    """
    bit_generator, wide = np.random.PCG64(0), Rule(0, 2**128 - 1)
    rules = {"state": wide, "inc": wide, "has_uint32": Rule(0, 1), "uinteger": Rule(0, 2**32 - 1)}
    bit_generator.state = fit(value, bit_generator.state, where, {**rules, "bit_generator": SAME})
    return np.random.Generator(bit_generator)
