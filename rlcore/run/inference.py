"""Acting with a trained policy from a file: nothing in it is executed, and no environment or training is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.utils import get_device

from rlcore.checkpoint.container import PathOrFile
from rlcore.checkpoint.formats import read_model_file, refusals_of
from rlcore.envs.vec_state import STATISTICS, moments_of
from rlcore.ppo import construction
from rlcore.ppo.adaptive import ReturnScale
from rlcore.ppo.construction import check_device
from rlcore.ppo.policy import DistributionalRecurrentPolicy
from rlcore.ppo.saving import decoded
from rlcore.ppo.settings import resolve_settings
from rlcore.ppo.state_parts import check_policy, require_network_of
from rlcore.state.tree import fit
from rlcore.types import StateDict

LstmState = tuple[NDArray[np.float32], NDArray[np.float32]]
Observation = Any
"""An array of numbers, or a dict of them by the keys of a Dict space."""
Normalizer = Callable[[Observation], Observation]


class InferencePolicy:
    """A policy that only acts. It is given the observations of the environment, and normalises them where training did.

    :param policy: the network, on its device
    :param normalizers: what normalises an observation first, in this order
    :ivar observation_space: what an observation is
    :ivar action_space: what an action is
    :ivar device: where the network computes
    :ivar normalizes: whether observations are normalised here, so that they must be given as the environment has them
    """

    def __init__(self, policy: DistributionalRecurrentPolicy, normalizers: Sequence[Normalizer]) -> None:
        self._policy = policy.requires_grad_(False)
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
        :raises ValueError: for an observation of another shape
        """
        for normalize in self._normalizers:
            observation = normalize(observation)
        starts = None if episode_start is None else np.asarray(episode_start)
        return self._policy.predict(observation, state, starts, deterministic)  # type: ignore[return-value]


def load_policy(
    path: PathOrFile,
    *,
    map_location: str | torch.device = "cpu",
    require_digest: bool = False,
    custom_objects: Mapping[str, object] | None = None,
) -> InferencePolicy:
    """Read a policy from a model file of ``save()``.

    Statistics of VecNormalize in the file are applied to observations. For a checkpoint, which has no settings, build a
    model and give it the parameters: ``model.set_parameters(path)``.

    :param path: a path, or a binary file object
    :param map_location: device of the network
    :param require_digest: refuse a file without digest instead of warning
    :param custom_objects: by name, settings of a model file that no file holds (a lambda)
    :raises CheckpointError: if the file cannot be read, is of another kind or is damaged
    :raises SettingError: for a device that cannot be used
    """
    check_device(map_location, "map_location")
    content = decoded(read_model_file(path, require_digest=require_digest), custom_objects or {}, path)
    with refusals_of(path, "the policy"):
        network = _network(content, get_device(map_location))
        return InferencePolicy(network, _normalizers(content["state"], network.observation_space))


def _network(content: Mapping[str, Any], device: torch.device) -> DistributionalRecurrentPolicy:
    """Build the network that the settings of a model file describe, with the weights of the file."""
    policy_class, saved = content["policy_class"], content["state"].get("policy")
    settings = resolve_settings(content["settings"], asked=())
    model: Any = SimpleNamespace(
        **dict(settings),
        policy_class=policy_class,
        observation_space=content["observation_space"],
        action_space=content["action_space"],
        lr_schedule=lambda _: 0.0,
        value_scale=ReturnScale(),
        device=device,
    )
    require_network_of(model, saved)
    with torch.random.fork_rng(devices=[]):
        network = construction.make_policy(model)
    check_policy(saved, network.state_dict())
    network.load_state_dict(saved)
    return network


def _normalizers(state: StateDict, space: spaces.Space[Any]) -> list[Normalizer]:
    """Return what normalises observations, the inner wrapper of VecNormalize first."""
    statistics: Any = state.get("normalizer_state")
    parts: Mapping[Any, Any] = space.spaces if isinstance(space, spaces.Dict) else {None: space}
    found: list[Normalizer] = []
    for layer in reversed(statistics["layers"] if statistics else ()):
        keys = [each["key"] for each in layer["observation"]]
        form: StateDict = {
            "observation": [moments_of(key, RunningMeanStd(shape=parts[key].shape)) for key in keys],
            "return": moments_of(None, RunningMeanStd(shape=())),
        }
        form |= {"norm_obs": True, "clip_obs": 10.0, "epsilon": 1e-8}
        fitted = {**form, **fit(layer, form, "normalizer_state", STATISTICS)}
        if fitted["norm_obs"] and keys:
            found.append(partial(_normalized, fitted))
    return found


def _normalized(layer: Mapping[str, Any], observation: Observation) -> Observation:
    """Return the observation as VecNormalize does."""
    named = isinstance(observation, Mapping)
    changed = dict(observation) if named else {None: observation}
    for moments in layer["observation"]:
        key, mean, variance = moments["key"], moments["mean"].numpy(), moments["var"].numpy()
        scaled = (changed[key] - mean) / np.sqrt(variance + layer["epsilon"])
        changed[key] = np.clip(scaled, -layer["clip_obs"], layer["clip_obs"]).astype(np.float32)
    return changed if named else changed[None]
