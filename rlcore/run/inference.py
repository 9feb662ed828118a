"""Acting with a trained policy from a file: nothing in it is executed, and no environment or training is built."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first, maybe_transpose
from stable_baselines3.common.vec_env import VecEnv, VecTransposeImage

from rlcore import env_state
from rlcore.checkpoint import container, loading, storage, v1
from rlcore.checkpoint.refusal import path_of, refusals_name, require_place
from rlcore.checkpoint.schema import FORMAT_MODEL
from rlcore.errors import SettingError, StateError, UnknownSettingError
from rlcore.ppo import model_content, model_file, state_checks
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.arguments import check_device
from rlcore.ppo.policy import DistributionalRecurrentPolicy
from rlcore.state_fields import mistyped, require_dict
from rlcore.types import StateDict, StateValue
from rlcore.warn import warn_caller

Observation = Any
"""An array of numbers, or a dict of them by the keys of a Dict space."""

DEFAULTS = {"norm_obs": True, "clip_obs": 10.0, "epsilon": 1e-8}
"""VecNormalize's own, for statistics that were saved without them."""


@dataclass(frozen=True)
class Scaling:
    """What one VecNormalize does to one array: ``clip((x - mean) / sqrt(var + epsilon))``, in float64.

    :param key: the entry of a Dict observation, or None for the whole
    :param mean: shape of the observation
    :param deviation: sqrt(var + epsilon), of that shape
    :param clip: largest absolute value of the result
    """

    key: str | None
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    clip: float

    @classmethod
    def from_state(cls, layer: StateDict, moments: StateValue, space: spaces.Space[Any]) -> Self:
        """
        :raises StateError: if the statistics are damaged or of another observation space
        """
        record = require_dict(moments, "observation statistics")
        key = record.get("key")
        part = space.spaces.get(key) if isinstance(space, spaces.Dict) else space if key is None else None  # type: ignore[arg-type]
        if part is None or part.shape is None:
            raise StateError(f"observation statistics of {key!r}, which these observations do not have")
        mean, var = (_moment(record.get(name), part.shape, name) for name in ("mean", "var"))
        epsilon, clip = _number(layer, "epsilon"), _number(layer, "clip_obs")
        return cls(None if key is None else str(key), mean, np.sqrt(var + epsilon), clip)

    def __call__(self, observation: Observation) -> Observation:
        """
        :param observation: shape (..., *mean.shape), or a dict that has such an array
        :return: float32 of the same shape
        """
        if self.key is not None:
            return {**observation, self.key: self._scaled(observation[self.key])}
        return self._scaled(observation)

    def _scaled(self, values: NDArray[Any]) -> NDArray[np.float32]:
        return np.clip((values - self.mean) / self.deviation, -self.clip, self.clip).astype(np.float32)


def read_scalings(state: StateDict, space: spaces.Space[Any]) -> list[Scaling]:
    """What the VecNormalize wrappers of a saved ``normalizer_state`` do to observations, in the order in which they do.

    :param space: of the observations
    :raises StateError: if the state is damaged or of another observation space
    """
    layers: Any = state.get("layers")
    if not isinstance(layers, list):
        raise mistyped("normalizer_state['layers']", "a list", layers)
    scalings: list[Scaling] = []
    for layer in reversed([require_dict(entry, "normalizer_state['layers']") for entry in layers]):
        observation = layer.get("observation")
        if not isinstance(observation, list):
            raise mistyped("normalizer_state['observation']", "a list", observation)
        if layer.get("norm_obs", DEFAULTS["norm_obs"]) is not False:
            scalings += [Scaling.from_state(layer, moments, space) for moments in observation]
    return scalings


def _moment(value: StateValue, shape: tuple[int, ...], name: str) -> NDArray[np.float64]:
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float64 or tuple(value.shape) != shape:
        raise mistyped(f"observation statistics {name}", f"a tensor of torch.float64 with shape {shape}", value)
    array: NDArray[np.float64] = value.cpu().numpy()
    if not np.isfinite(array).all() or (name == "var" and (array < 0).any()):
        raise StateError(f"observation statistics {name} hold NaN, infinity or a variance below 0; the file is damaged")
    return array


def _number(layer: StateDict, name: str) -> float:
    value = layer.get(name, DEFAULTS[name])
    if not isinstance(value, float) or math.isnan(value) or value <= 0:
        raise mistyped(f"normalizer_state['{name}']", "a number above 0", value)
    return value


def checked_observation(observation: Observation, space: spaces.Space[Any]) -> tuple[Observation, int]:
    """The observation as arrays of the space's kind, and of how many environments it is.

    :raises SettingError: for other keys, another shape, or values that the space does not have
    """
    if isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], Mapping):
        raise SettingError(
            "observation",
            "observation is a pair of an observation and a dict, as env.reset() returns them; give the first of them: "
            "observation, info = env.reset()",
        )
    if not isinstance(space, spaces.Dict):
        return _array(observation, space, "observation")
    _require_keys(observation, space, "observation")
    parts = {key: _array(observation[key], part, f"observation[{key!r}]") for key, part in space.spaces.items()}
    number = _common({key: n for key, (_, n) in parts.items()}, "observation", "environments")
    return {key: array for key, (array, _) in parts.items()}, number


def checked_sequence(observations: Observation, space: spaces.Space[Any]) -> tuple[Observation, int]:
    """A sequence of observations as arrays, and its length; 0 for what has none.

    :raises SettingError: for other keys than the space's, or parts of different lengths
    """
    if not isinstance(space, spaces.Dict):
        array = _as_array(observations, "observations")
        return array, len(array) if array.ndim else 0
    _require_keys(observations, space, "observations")
    arrays = {key: _as_array(observations[key], f"observations[{key!r}]") for key in space.spaces}
    lengths = {key: len(array) if array.ndim else 0 for key, array in arrays.items()}
    return arrays, _common(lengths, "observations", "steps")


def at_step(observations: Observation, step: int) -> Observation:
    """One observation of a sequence."""
    if isinstance(observations, Mapping):
        return {key: values[step] for key, values in observations.items()}
    return observations[step]


def check_state(state: Any, shape: tuple[int, ...]) -> None:
    """
    :param shape: of the hidden and of the cell states, (layers, n, hidden)
    :raises SettingError: for anything but two finite arrays of that shape
    """
    if not isinstance(state, tuple | list):
        raise SettingError("state", f"state={state!r:.80} is no pair of states; give what predict() returned, or None")
    shapes = [np.shape(part) for part in state]
    if shapes != [shape] * 2:
        raise _misshapen("state", shapes, f"two arrays of {shape}")
    for part in state:
        array = np.asarray(part)
        if array.dtype.kind not in "fiu":
            raise SettingError("state", f"state is of {array.dtype}, no number; give what predict() returned")
        _require_finite(array, array, "state")


def check_starts(starts: ArrayLike, n_envs: int) -> None:
    """
    :raises SettingError: for anything but one bool (or 0 or 1) for each environment
    """
    array = np.asarray(starts)
    if array.shape != (n_envs,):
        raise _misshapen("episode_start", array.shape, f"{(n_envs,)}, one for each environment")
    for value in array.tolist():
        if not isinstance(value, bool | int | float) or value not in (0, 1):
            raise SettingError("episode_start", f"episode_start holds {value!r}, neither True nor False; give a bool")


def _array(values: Any, space: spaces.Space[Any], name: str) -> tuple[NDArray[Any], int]:
    """An array of the space's type, and of how many environments it is."""
    assert space.dtype is not None, "only a Dict or Tuple of spaces has none"
    shape = tuple(space.shape or ())
    array = _as_array(values, name)
    if array.ndim in (3, 4):
        array = maybe_transpose(array, space)  # an image with its channels last
    batched = array.ndim == len(shape) + 1 and array.shape[1:] == shape
    if not batched and array.shape != shape:
        raise _misshapen(name, array.shape, f"{shape}, or {('n', *shape)} for n environments")
    if batched and not len(array):
        raise SettingError(name, f"{name} has the shape {array.shape}, of no environment; give at least one row")
    if not np.can_cast(array.dtype, space.dtype, "same_kind"):
        raise SettingError(name, f"{name} is of {array.dtype}, the policy's are of {space.dtype}; convert it")
    with np.errstate(over="ignore"):
        cast = array.astype(space.dtype)
    if cast.dtype.kind == "f":
        _require_finite(cast, array, name)
    else:
        _require_inside(array, space, name)
    return cast, len(array) if batched else 1


def _as_array(values: Any, name: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:  # of lists that differ in length
        raise SettingError(name, f"{name}={values!r:.80} makes no array ({error}); give rows of one shape") from error


def _require_finite(array: NDArray[Any], given: NDArray[Any], name: str) -> None:
    """
    :param given: the array before its type was changed
    """
    bad = ~np.isfinite(array)
    if bad.any():
        value = float(given[bad][0])
        shown = "NaN" if np.isnan(value) else f"{value}"
        raise SettingError(
            name,
            f"{name} holds {shown} in {int(bad.sum())} of {array.size} places, which is no finite {array.dtype}, so no "
            "action would follow from it; look at where it comes from",
        )


def _require_inside(array: NDArray[Any], space: spaces.Space[Any], name: str) -> None:
    """Of whole numbers: those that the space counts, and of a Box those that its type holds."""
    low: Any = 0  # where every space of a policy starts to count
    if isinstance(space, spaces.Discrete):
        high: Any = space.n - 1
    elif isinstance(space, spaces.MultiDiscrete):
        high = space.nvec - 1
    elif isinstance(space, spaces.MultiBinary):
        high = 1
    else:
        low, high = np.iinfo(space.dtype).min, np.iinfo(space.dtype).max
    outside = (array < low) | (array > high)
    if outside.any():
        raise SettingError(
            name, f"{name} holds {array[outside].flat[0]}, which {space} does not have; give values of that space"
        )


def _require_keys(given: Any, space: spaces.Dict, name: str) -> None:
    found = sorted(map(str, given)) if isinstance(given, Mapping) else f"a {type(given).__name__}"
    if not isinstance(given, Mapping) or set(given) != set(space.spaces):
        raise SettingError(name, f"{name} must be a dict with the keys {sorted(space.spaces)}, and is {found}")


def _common(numbers: Mapping[str, int], name: str, unit: str) -> int:
    if len(set(numbers.values())) > 1:
        raise SettingError(name, f"the parts of {name} are of {numbers} {unit}; give as many of each")
    return next(iter(numbers.values()))


def _misshapen(name: str, found: object, wanted: str) -> SettingError:
    return SettingError(name, f"{name} has the shape {found}, which the policy cannot act on; give {wanted}")


Spaces = tuple[spaces.Space[Any], spaces.Space[Any]]
LstmState = tuple[NDArray[np.float32], NDArray[np.float32]]
PathOrFile = str | Path | BinaryIO

BESIDE_SETTINGS: Final = {
    "device": "give load_policy map_location=...",
    "policy": "give load_policy policy=...",
    "env": "give load_policy env=... or spaces=...",
    "_init_setup_model": "leave it out",
}
"""What the constructor takes beside settings, and where a user says it here."""


class InferencePolicy:
    """A policy that only acts. It is given the observations of the environment, and normalises them where training did.

    :param policy: the network, on its device
    :param scalings: what is done to an observation first, in this order
    """

    def __init__(self, policy: DistributionalRecurrentPolicy, scalings: list[Scaling]) -> None:
        policy.requires_grad_(False)
        self._policy = policy
        self._scalings = scalings

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """What an observation is."""
        return self._policy.observation_space

    @property
    def action_space(self) -> spaces.Space[Any]:
        """What an action is."""
        return self._policy.action_space

    @property
    def device(self) -> torch.device:
        """Where the network computes."""
        return self._policy.device

    @property
    def normalizes(self) -> bool:
        """Whether observations are normalised here, so that they must be given as the environment has them."""
        return bool(self._scalings)

    def predict(
        self,
        observation: Observation,
        state: LstmState | None = None,
        episode_start: ArrayLike | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], LstmState]:
        """Act, as ``predict`` of a model does on what its VecNormalize made of the same observations.

        :param observation: as the environment gives it: of the space's shape, or (n, *shape) for n environments
        :param state: hidden and cell states that the last call returned, each (layers, n, hidden); None for zeros
        :param episode_start: shape (n,), True where an episode starts, so that its state is taken as zeros
        :param deterministic: the most likely action; False draws one from torch's global generator
        :return: actions, and the states for the next call
        :raises SettingError: for observations of another shape or kind, values that the space does not have or no
            network computes with, or states of another number of environments
        """
        checked, n_envs = checked_observation(observation, self.observation_space)
        if state is not None:
            layers, _, hidden = self._policy.lstm_hidden_state_shape
            check_state(state, (layers, n_envs, hidden))
        if episode_start is not None:
            check_starts(episode_start, n_envs)
        for scaling in self._scalings:
            checked = scaling(checked)
        starts = None if episode_start is None else np.asarray(episode_start)
        actions, states = self._policy.predict(checked, state, starts, deterministic)
        return actions, states  # type: ignore[return-value]

    def infer(
        self, observations: Observation, episode_starts: ArrayLike | None = None, deterministic: bool = True
    ) -> NDArray[Any]:
        """Act on a whole sequence, step by step, with the LSTM's state carried from each step to the next.

        :param observations: shape (steps, *shape), or (steps, n, *shape) for n environments side by side
        :param episode_starts: shape (steps,) or (steps, n), True where an episode starts; None for one episode
        :return: actions, shape (steps, *action shape) or (steps, n, *action shape)
        :raises SettingError: as :meth:`predict`, and for parts or starts of another length
        """
        observations, steps = checked_sequence(observations, self.observation_space)
        starts = np.zeros(steps, bool) if episode_starts is None else np.asarray(episode_starts)
        if steps == 0 or starts.ndim == 0 or len(starts) != steps:
            found = f" of {len(starts)}" if starts.ndim else f"={episode_starts!r}"
            raise SettingError(
                "observations",
                f"observations of {steps} steps with episode_starts{found} cannot be gone through; give at least one "
                "step, and a start for each",
            )
        actions, state = [], None
        for step in range(steps):
            start = np.atleast_1d(starts[step]) if episode_starts is not None else None
            action, state = self.predict(at_step(observations, step), state, start, deterministic)
            actions.append(action)
        return np.stack(actions)


def load_policy(
    path: PathOrFile,
    env: gym.Env[Any, Any] | VecEnv | None = None,
    *,
    spaces: Spaces | None = None,
    settings: Mapping[str, Any] | None = None,
    policy: str | type[DistributionalRecurrentPolicy] | None = None,
    map_location: str | torch.device = "cpu",
    require_digest: bool = False,
    custom_objects: Mapping[str, object] | None = None,
) -> InferencePolicy:
    """Read a policy from a model file of ``save()`` or from a checkpoint.

    A checkpoint holds no spaces and no settings: give an environment or its spaces, and the settings of the network as
    in training. Statistics of VecNormalize in the file are applied to observations. A file that does not say whether
    there were any (every v1 file) brings a warning.

    :param path: a path, or a binary file object
    :param env: whose spaces the policy must have; its observations are given to ``predict`` as they are
    :param spaces: observation and action space, in place of ``env``
    :param settings: of a checkpoint's network, named as in the constructor of DistributionalPPO
    :param policy: of a checkpoint; None for ``MlpLstmPolicy``
    :param map_location: device of the network
    :param require_digest: refuse a file without digest instead of warning
    :param custom_objects: by name, what stands for a setting of a model file that no file holds (a lambda)
    :raises CheckpointError: if the file cannot be read, is of another kind or does not fit
    :raises SettingError: for spaces, settings or a device that cannot be used
    """
    check_device(map_location, "map_location")
    require_place(path, "read")
    if env is not None and spaces is not None:
        raise SettingError("spaces", "env and spaces are both given, and env has spaces of its own; give one of them")
    given = _spaces_of(env) if spaces is None else spaces
    found = None if given is None else (_as_trained_on(given[0]), given[1])
    source = model_content.existing(path)
    payload, has_digest = container.read_container(
        source, map_location="cpu", require_digest=require_digest, max_bytes=storage.DEFAULT_MAX_BYTES
    )
    if not has_digest and not v1.is_v1(payload):
        container.warn_of_missing_digest(source)
    if payload.get("format_version") == FORMAT_MODEL:
        for name, value in {"settings": settings, "policy": policy}.items():
            if value is not None:
                raise SettingError(
                    name, f"a model file has its own {name}, so {name}={value!r:.80} would do nothing; leave it out"
                )
        content = model_content.decoded(model_content.read_model_content(payload, path), custom_objects or {}, path)
        _require_same(found, (content["observation_space"], content["action_space"]))
    else:
        content = _content_of_checkpoint(payload, found, settings, policy or "MlpLstmPolicy", path)
    with model_content.refusals_of(path, "the policy", () if settings is None else ("settings", "policy", "spaces")):
        return _build(content, map_location)


def infer_signals(
    path: PathOrFile,
    observations: Observation,
    episode_starts: ArrayLike | None = None,
    *,
    deterministic: bool = True,
    **options: Any,
) -> NDArray[Any]:
    """The actions of a saved policy over a sequence of observations: :func:`load_policy` and its ``infer``.

    :param observations: shape (steps, *shape), or (steps, n, *shape) for n environments side by side
    :param episode_starts: shape (steps,) or (steps, n), True where an episode starts; None for one episode
    :param options: what :func:`load_policy` takes
    """
    return load_policy(path, **options).infer(observations, episode_starts, deterministic)


def _content_of_checkpoint(
    payload: StateDict, found: Spaces | None, settings: Mapping[str, Any] | None, policy: object, path: PathOrFile
) -> dict[str, Any]:
    """What a model file would hold, from a checkpoint and what the caller knows."""
    with refusals_name(path):
        checkpoint = loading.from_payload(payload)
    for name in settings or {}:
        if name in BESIDE_SETTINGS:
            raise UnknownSettingError(
                f"settings[{name!r}]", f"settings[{name!r}] is no setting of a network; {BESIDE_SETTINGS[name]}"
            )
    if found is None or settings is None:
        raise SettingError(
            "spaces" if found is None else "settings",
            f"{path_of(path) or 'the file object'} is a checkpoint ({checkpoint.format_version}), which has neither "
            "spaces nor settings; give env or spaces, and settings={...} of the network as in training ({} for the "
            "defaults)",
        )
    if "normalizer_state" not in checkpoint.data:
        warn_caller(
            f"{path_of(path) or 'the file object'} does not say whether its policy was trained behind VecNormalize: "
            "observations are taken as they are; if it was, normalise them before",
            UserWarning,
        )
    return {
        "policy_class": policy,
        "settings": dict(settings),
        "observation_space": found[0],
        "action_space": found[1],
        "state": checkpoint.data,
    }


def _build(content: Mapping[str, Any], device: str | torch.device) -> InferencePolicy:
    """The network with its parameters; a model is constructed for its settings, but not set up for training."""
    state = content["state"]
    with model_file.generators_untouched():
        model = DistributionalPPO(content["policy_class"], None, device=device, _init_setup_model=False)
        model._configure(content["settings"])
        model.observation_space, model.action_space = content["observation_space"], content["action_space"]
        model._require_network_of(state)
        model._setup_network()
    network = model.policy
    state_checks.check_policy(state["policy"], network.state_dict())
    state_checks.warn_of_casts(state["policy"], None, network.state_dict())
    network.load_state_dict(state["policy"])
    normalizer = state.get("normalizer_state")
    return InferencePolicy(network, [] if normalizer is None else read_scalings(normalizer, network.observation_space))


def _spaces_of(env: gym.Env[Any, Any] | VecEnv | None) -> Spaces | None:
    if env is None:
        return None
    normalizer = env_state.capture_normalizer(env) if isinstance(env, VecEnv) else None
    if normalizer is not None and read_scalings(normalizer, env.observation_space):
        raise SettingError(
            "env",
            "env has VecNormalize, whose observations are normalised already, and predict() normalises those of the "
            "environment itself; give the environment inside it (env.venv)",
        )
    return env.observation_space, env.action_space


def _as_trained_on(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """The space that Stable-Baselines3 gives a model: of images the channels first, whatever the environment has."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _as_trained_on(part) for key, part in space.items()})
    if isinstance(space, spaces.Box) and is_image_space(space) and not is_image_space_channels_first(space):
        return VecTransposeImage.transpose_space(space)
    return space


def _require_same(found: Spaces | None, saved: Spaces) -> None:
    for name, own, other in zip(("observation", "action"), found or saved, saved, strict=True):
        if own != other:
            raise SettingError("env", f"the environment's {name} space is {own}, the policy's {other}; give its own")
