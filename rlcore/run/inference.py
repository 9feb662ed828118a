"""Acting with a trained policy from a file: nothing in it is executed, and no environment or training is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize, VecTransposeImage

from rlcore.checkpoint import container, formats, storage
from rlcore.checkpoint.refusal import path_of, refusals_name, require_place
from rlcore.errors import SettingError, UnknownSettingError
from rlcore.ppo import model_content, model_file, weights
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.arguments import check_device
from rlcore.ppo.policy import DistributionalRecurrentPolicy
from rlcore.run.observations import (
    Observation,
    check_starts,
    check_state,
    checked_observation,
    common_number,
    parts_of,
    read_normalizers,
    whole,
)
from rlcore.types import StateDict
from rlcore.warn import warn_caller

Spaces = tuple[spaces.Space[Any], spaces.Space[Any]]
LstmState = tuple[NDArray[np.float32], NDArray[np.float32]]
PathOrFile = str | Path | BinaryIO

BESIDE_SETTINGS: Final = {
    "device": "give load_policy map_location=...",
    "policy": "give load_policy policy=...",
    "env": "give load_policy env=... or spaces=...",
    "_init_setup_model": "leave it out",
}
"""What the constructor takes in addition to settings, and where a user gives it here."""


class InferencePolicy:
    """A policy that only acts. It is given the observations of the environment, and normalises them where training did.

    :param policy: the network, on its device
    :param normalizers: what normalises an observation first, in this order
    """

    def __init__(self, policy: DistributionalRecurrentPolicy, normalizers: Sequence[VecNormalize]) -> None:
        policy.requires_grad_(False)
        self._policy = policy
        self._normalizers = normalizers

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
        return bool(self._normalizers)

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
        for normalizer in self._normalizers:
            checked = normalizer.normalize_obs(checked)
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
        arrays = {part.key: part.array for part in parts_of(observations, self.observation_space, "observations")}
        lengths = {key: len(array) if array.ndim else 0 for key, array in arrays.items()}
        steps = common_number(lengths, "observations", "steps")
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
            observation = whole({key: array[step] for key, array in arrays.items()})
            action, state = self.predict(observation, state, start, deterministic)
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
    weights.check_policy(state["policy"], network.state_dict())
    weights.warn_of_casts(state["policy"], None, network.state_dict())
    network.load_state_dict(state["policy"])
    return InferencePolicy(network, read_normalizers(state.get("normalizer_state"), network.observation_space))


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
