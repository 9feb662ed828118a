"""Acting with a trained policy from a file: nothing in it is executed, and no environment or training is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first, maybe_transpose
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize, VecTransposeImage

from rlcore.checkpoint import container, formats, storage
from rlcore.checkpoint.refusal import path_of, refusals_name, require_place
from rlcore.envs.vec_state import restore_normalizer
from rlcore.errors import SettingError, StateError
from rlcore.ppo import model_content, model_file, weights
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.policy import DistributionalRecurrentPolicy
from rlcore.ppo.settings import check_device
from rlcore.state.schema import misfit, read_dict, read_list
from rlcore.types import StateDict
from rlcore.warn import warn_caller

Spaces = tuple[spaces.Space[Any], spaces.Space[Any]]
LstmState = tuple[NDArray[np.float32], NDArray[np.float32]]
PathOrFile = str | Path | BinaryIO
Observation = Any
"""An array of numbers, or a dict of them by the keys of a Dict space."""


class InferencePolicy:
    """A policy that only acts. It is given the observations of the environment, and normalises them where training did.

    :param policy: the network, on its device
    :param normalizers: what normalises an observation first, in this order
    :ivar observation_space: what an observation is
    :ivar action_space: what an action is
    :ivar device: where the network computes
    :ivar normalizes: whether observations are normalised here, so that they must be given as the environment has them
    """

    def __init__(self, policy: DistributionalRecurrentPolicy, normalizers: Sequence[VecNormalize]) -> None:
        policy.requires_grad_(False)
        self._policy = policy
        self._normalizers = normalizers
        self.observation_space: spaces.Space[Any] = policy.observation_space
        self.action_space: spaces.Space[Any] = policy.action_space
        self.device = policy.device
        self.normalizes = bool(normalizers)

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
        :raises SettingError: for observations that Stable-Baselines3 refuses, and for states or episode starts of
            another number of environments
        """
        with _refused_as("observation", observation):
            seen = self._arrays(observation)
            # Statistics would broadcast an array of another shape, so it is checked before they are applied.
            tensors, _ = self._policy.obs_to_tensor(seen)
            parts = list(tensors.values()) if isinstance(tensors, dict) else [tensors]
            if not all(bool(part.isfinite().all()) for part in parts):
                raise ValueError("it holds NaN or infinity")
        n_envs = len(parts[0])
        layers, _, hidden = self._policy.lstm_hidden_state_shape
        _require_shape("state", state, (2, layers, n_envs, hidden))
        _require_shape("episode_start", episode_start, (n_envs,))
        starts = None if episode_start is None else np.asarray(episode_start)
        with _refused_as("observation", observation):
            for normalizer in self._normalizers:
                seen = normalizer.normalize_obs(seen)
            actions, states = self._policy.predict(seen, state, starts, deterministic)
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
        with _refused_as("observations", observations):
            named = isinstance(observations, Mapping)
            parts = {name: np.asarray(each) for name, each in (observations if named else {"": observations}).items()}
            lengths = {len(each) for each in (*parts.values(), *(() if episode_starts is None else (episode_starts,)))}
        if len(lengths) != 1 or lengths == {0}:
            raise SettingError(
                "observations",
                f"observations and episode_starts are of {sorted(lengths)} steps; give at least one step, and as many "
                "of each",
            )
        actions, state = [], None
        for step in range(lengths.pop()):
            start = None if episode_starts is None else np.atleast_1d(np.asarray(episode_starts)[step])
            observation = {name: each[step] for name, each in parts.items()}
            action, state = self.predict(observation if named else observation[""], state, start, deterministic)
            actions.append(action)
        return np.stack(actions)

    def _arrays(self, observation: Observation) -> Observation:
        """Return an observation as the arrays that a VecEnv would give: floats of the space's type, channels first."""
        space = self.observation_space
        if not isinstance(space, spaces.Dict):
            return _array(observation, space)
        return {name: _array(observation[name], part) for name, part in space.items()}


def _array(value: Any, space: spaces.Space[Any]) -> NDArray[Any]:
    is_float = np.issubdtype(space.dtype, np.floating)
    return maybe_transpose(np.asarray(value, space.dtype if is_float else None), space)


@contextmanager
def _refused_as(name: str, value: object) -> Iterator[None]:
    """Turn what NumPy, torch and Stable-Baselines3 raise for a value into a SettingError."""
    try:
        yield
    except (ValueError, TypeError, LookupError, RuntimeError, AssertionError) as error:
        shown, text = (" ".join(each.split()) for each in (repr(value), str(error)))
        raise SettingError(name, f"{name}={shown:.80} cannot be acted on: {text:.300}") from error


def _require_shape(name: str, value: Any, shape: tuple[int, ...]) -> None:
    if value is not None and np.shape(value) != shape:
        raise SettingError(name, f"{name} has the shape {np.shape(value)}, and the observations need {shape}")


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
    if not has_digest and not formats.is_v1(payload):
        container.warn_of_missing_digest(source)
    if payload.get("format_version") == formats.FORMAT_MODEL:
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
    """The actions of a saved policy over a sequence of observations, as :meth:`InferencePolicy.infer` takes it.

    :param options: what :func:`load_policy` takes
    """
    return load_policy(path, **options).infer(observations, episode_starts, deterministic)


def _content_of_checkpoint(
    payload: StateDict, found: Spaces | None, settings: Mapping[str, Any] | None, policy: object, path: PathOrFile
) -> dict[str, Any]:
    """What a model file would hold, from a checkpoint and what the caller knows."""
    with refusals_name(path):
        checkpoint = formats.from_payload(payload)
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
    weights.check_policy(state["policy"], network.state_dict())
    weights.warn_of_casts(state["policy"], None, network.state_dict())
    network.load_state_dict(state["policy"])
    return InferencePolicy(network, _read_normalizers(state.get("normalizer_state"), network.observation_space))


def _read_normalizers(state: StateDict | None, space: spaces.Space[Any]) -> list[VecNormalize]:
    """Return the VecNormalize wrappers of a ``normalizer_state`` that normalise observations, the inner ones first.

    They have no environments, as after unpickling.

    :raises StateError: if the state is damaged or of another observation space
    """
    layers = [] if state is None else read_list(state.get("layers"), "normalizer_state['layers']")
    parts: Mapping[Any, spaces.Space[Any]] = space.spaces if isinstance(space, spaces.Dict) else {None: space}
    found = []
    for entry in reversed(layers):
        layer = read_dict(entry, "normalizer_state['layers']")
        moments = read_list(layer.get("observation"), "normalizer_state['observation']")
        keys = [read_dict(each, "observation statistics").get("key") for each in moments]
        if layer.get("norm_obs") is False or not keys:
            continue
        if unknown := [key for key in keys if key not in list(parts)]:
            raise StateError(f"observation statistics of {unknown[0]!r:.80}, which these observations do not have")
        statistics = {key: RunningMeanStd(shape=parts[key].shape or ()) for key in keys}
        # The defaults are VecNormalize's own, for statistics that were saved without them.
        numbers = {"clip_obs": layer.get("clip_obs", 10.0), "epsilon": layer.get("epsilon", 1e-8)}
        for name, value in numbers.items():
            if not isinstance(value, float) or not value > 0:
                raise misfit(f"normalizer_state['{name}']", "a number above 0", value)
        own = {"norm_obs": True, "norm_obs_keys": keys, "obs_rms": statistics.get(None, statistics), **numbers}
        normalizer = VecNormalize.__new__(VecNormalize)
        normalizer.__setstate__({**own, "ret_rms": RunningMeanStd(shape=())})
        restore_normalizer(normalizer, {"layers": [layer]})
        found.append(normalizer)
    return found


def _spaces_of(env: gym.Env[Any, Any] | VecEnv | None) -> Spaces | None:
    if env is None:
        return None
    layer: object = env
    while isinstance(layer, VecEnvWrapper):
        if isinstance(layer, VecNormalize) and layer.norm_obs:
            raise SettingError(
                "env",
                "env has VecNormalize, whose observations are normalised already, and predict() normalises those of "
                "the environment itself; give the environment inside it (env.venv)",
            )
        layer = layer.venv
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
