"""Where a training is: counters and finished episodes, the last observations, and the states of random generators."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import Tensor

from rlcore.checkpoint import codec
from rlcore.checkpoint.torch_file import DTYPES
from rlcore.errors import CheckpointError, NonFiniteObservationError, StateError
from rlcore.state.tree import FREE, REMEDY, Rule, fit, misfit
from rlcore.types import StateDict, StateValue

Observations = NDArray[Any] | dict[str, NDArray[Any]]
WINDOWS = ("ep_info_buffer", "ep_success_buffer")
_COUNTERS = ("num_timesteps", "_total_timesteps", "_episode_num", "_n_updates", "_n_calls")
_FORM: dict[str, Any] = {**dict.fromkeys(_COUNTERS, 0), "_current_progress_remaining": 1.0, "exploration_rate": 0.0}
"""Attributes; ``_n_calls`` and ``exploration_rate`` are those of DQN and QRDQN alone."""
_BIT_GENERATORS: Mapping[str, type[np.random.BitGenerator]] = {
    kind.__name__: kind
    for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}


def capture_progress(model: BaseAlgorithm) -> StateDict:
    """Return the counters and the window of finished episodes, without objects in them that no file can hold."""
    state: StateDict = {name: getattr(model, name) for name in _FORM if hasattr(model, name)}
    for name in WINDOWS:
        window = getattr(model, name)
        state[name] = None if window is None else [_storable(entry) for entry in window]
    return state


def _storable(entry: Any) -> Any:
    if isinstance(entry, dict):
        values = {key: _storable(value) for key, value in entry.items()}
        return {key: value for key, value in values.items() if not (isinstance(value, dict) and codec.KIND in value)}
    return codec.encode(entry.tolist() if isinstance(entry, np.ndarray) else entry, "")


def restore_progress(model: BaseAlgorithm, state: object, least: float = -math.inf) -> None:
    """Continue to count where :func:`capture_progress` was called.

    :param least: smallest remaining progress; Stable-Baselines3 goes below 0 beyond the total
    :raises StateError: a value is missing, unknown or of another type; nothing was changed
    """
    like = {name: form for name, form in _FORM.items() if hasattr(model, name)} | dict.fromkeys(WINDOWS)
    rules = {"_current_progress_remaining": Rule(least, 1.0), "exploration_rate": Rule(0.0, 1.0)}
    fitted = fit(state, like, "progress_state", rules | dict.fromkeys(WINDOWS, FREE))
    for name in WINDOWS:
        window = fitted[name]
        if window is None:
            continue
        is_read = isinstance(window, list) and (name != WINDOWS[0] or all(isinstance(each, dict) for each in window))
        columns = [[each.get(key) for each in window] for key in "rl"] if is_read and name == WINDOWS[0] else [window]
        if not is_read or not all(map(_has_mean, columns)):
            raise misfit(f"progress_state[{name!r}]", "None or a list of episodes with numbers for the log", window)
        fitted[name] = deque(window, maxlen=model._stats_window_size)
    vars(model).update(fitted)


def _has_mean(values: list[Any]) -> bool:
    """Return whether the logger can average the values: numbers, or lists of one shape, as arrays are saved."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError):  # several shapes
        return False
    return not values or (array.dtype.kind in "biuf" and array.size > 0)


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


def fit_position(state: object, lstm: StateDict, where: str, space: spaces.Space[Any], n_envs: int) -> dict[str, Any]:
    """Return the state of :func:`capture_position` with LSTM states, all of ``n_envs`` environments.

    :param lstm: the form of the LSTM states, by name
    :raises StateError: of other observations, environments or LSTMs
    """
    free = dict.fromkeys(("observations", "original_observations", "episode_starts"), FREE)
    like: dict[Any, Any] = {**lstm, **dict.fromkeys(free)}
    fitted: dict[str, Any] = fit(state, like, where, free)
    starts = fitted["episode_starts"]
    form = torch.zeros(n_envs, dtype=starts.dtype if isinstance(starts, Tensor) else torch.float32)
    fit(starts, form, f"{where}['episode_starts']", {})
    _check(from_state(fitted["observations"]), f"{where}['observations']", space, n_envs)
    if fitted["original_observations"] is not None:
        _check(from_state(fitted["original_observations"]), f"{where}['original_observations']", None, n_envs)
    return fitted


def restore_position(model: BaseAlgorithm, fitted: Mapping[str, Any]) -> None:
    """Let the next step start from what :func:`fit_position` returned; the LSTM states are left to the caller."""
    now: Any = model
    now._last_obs = from_state(fitted["observations"])
    now._last_original_obs = from_state(fitted["original_observations"])
    now._last_episode_starts = fitted["episode_starts"].cpu().numpy().copy()


def to_state(observations: Observations | None) -> StateValue:
    """Return a tensor for an array, a dict for a Dict; an array of a type that torch lacks is encoded as its bytes."""
    if observations is None:
        return None
    if isinstance(observations, Mapping):
        return {key: to_state(part) for key, part in observations.items()}
    tensor = torch.as_tensor(observations)
    return tensor if tensor.dtype in DTYPES.values() else codec.encode(observations, "observations")


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


def _check(value: Any, where: str, space: spaces.Space[Any] | None, n_envs: int) -> None:
    """Raise StateError unless these are observations of ``space`` (None for any), one for each environment."""
    keys = set(space) if isinstance(space, spaces.Dict) else None
    if isinstance(value, dict) and (space is None or set(value) == keys):
        for key, part in value.items():
            _check(part, f"{where}[{key!r}]", None if space is None else space[key], n_envs)  # type: ignore[index]
        return
    shape = value.shape if isinstance(value, np.ndarray) else None
    if shape is None or keys is not None or shape != (n_envs, *(shape[1:] if space is None else space.shape or ())):
        wanted = f"a dict of {sorted(keys)}" if keys is not None else "an array for each environment of the space"
        raise StateError(f"{where} must be {wanted}, and has the shape {shape}; {REMEDY}")
    if space is None:
        return
    sizes = space.n if isinstance(space, spaces.Discrete) else getattr(space, "nvec", None)
    is_valid = sizes is None or (value.dtype.kind in "iu" and bool(((value >= 0) & (value < sizes)).all()))
    if not is_valid or not np.isfinite(value).all():
        raise StateError(f"{where} holds other values than {space} has, NaN or infinity; {REMEDY}")


class CheckedObservations(BaseAlgorithm):
    """Goes before an algorithm of Stable-Baselines3, which assigns ``_last_obs`` after every reset and step."""

    _checked_obs: Observations | None = None

    @property
    def _last_obs(self) -> Observations | None:
        """Return what the environments returned last; None before the first reset, and after NaN or infinity."""
        return self._checked_obs

    @_last_obs.setter
    def _last_obs(self, returned: Any) -> None:
        self._checked_obs = None
        if found := _non_finite_rows(returned):
            normalizer = self._vec_normalize_env  # in which one NaN makes the observations of all environments NaN
            found = found if normalizer is None else _non_finite_rows(normalizer.get_original_obs()) or found
            raise NonFiniteObservationError(
                found,
                f"the observation of environment {', '.join(map(str, found))} holds NaN or infinity, so no action "
                "would follow. Look at what reset() and step() return; nothing that was learnt has changed.",
            )
        self._checked_obs = returned


def _non_finite_rows(observations: Any) -> tuple[int, ...]:
    parts = observations.values() if isinstance(observations, dict) else [] if observations is None else [observations]
    bad = [part for part in parts if not np.isfinite(part).all()]
    return tuple(sorted({int(row) for part in bad for row in np.argwhere(~np.isfinite(part))[:, 0]}))


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
    random.setstate(_python_state(fields))
    np.random.set_state(_numpy_state(fields))
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
        random.Random().setstate(_python_state(fields))
        np.random.RandomState().set_state(_numpy_state(fields))
        torch.Generator().set_state(fields["torch"].cpu())
        if len({tensor.numel() for tensor in fields["cuda"]}) > 1:
            raise ValueError("the states of devices differ in size")
    except (TypeError, ValueError, RuntimeError, AttributeError, OverflowError, LookupError) as error:
        raise StateError(f"rng_state is none that a generator takes ({error}); {REMEDY}") from error


def _python_state(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    version, internal, gauss = fields["python"]
    return version, tuple(internal), gauss


def _numpy_state(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    keys, position, has_gauss, cached = fields["numpy"]
    return "MT19937", keys.numpy().astype(np.uint32), position, has_gauss, cached


def generator_state(generator: np.random.Generator) -> StateDict:
    """Return the state of a NumPy generator as ints, strs and lists of ints (128-bit integers stay Python ints).

    :raises StateError: the bit generator is not one of NumPy's own
    """
    state = generator.bit_generator.state
    if state["bit_generator"] not in _BIT_GENERATORS:
        known = ", ".join(_BIT_GENERATORS)
        raise StateError(f"the generator {state['bit_generator']} cannot be stored; use one of {known}")
    return {key: _plain(value) for key, value in state.items()}


def generator_from_state(value: StateValue, where: str) -> np.random.Generator:
    """Return a new generator that continues where :func:`generator_state` was taken.

    :raises StateError: unknown bit generator, or a state that is not one of it
    """
    name = value.get("bit_generator") if isinstance(value, dict) else None
    if not isinstance(name, str) or name not in _BIT_GENERATORS:
        raise misfit(f"{where}.bit_generator", f"one of {', '.join(_BIT_GENERATORS)}", name)
    bit_generator = _BIT_GENERATORS[name](0)
    rules = dict.fromkeys(("state", "inc", "key", "counter", "buffer"), Rule(0, 2**128 - 1))
    rules |= {"pos": Rule(0, 624)}  # NumPy would read beyond the key
    fitted = fit(value, _plain(bit_generator.state), where, rules)
    try:
        bit_generator.state = _like(bit_generator.state, fitted)
    except (ValueError, OverflowError, TypeError) as error:
        raise StateError(f"{where}: {name} does not take this state ({error}); {REMEDY}") from error
    return np.random.Generator(bit_generator)


def _plain(value: object) -> StateValue:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return [int(entry) for entry in value]
    return value if isinstance(value, str) else int(value)  # type: ignore[call-overload]


def _like(template: object, value: Any) -> Any:
    """Return a fitted state with the arrays that NumPy wants."""
    if isinstance(template, dict):
        return {key: _like(entry, value[key]) for key, entry in template.items()}
    return np.array(value, template.dtype) if isinstance(template, np.ndarray) else value
