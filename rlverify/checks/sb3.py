"""The adapter of Stable-Baselines3 and sb3-contrib: saves and loads in the way that their documentation describes."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize

from rlverify.checks import sb3_normalizer, sb3_rollout, sb3_settings
from rlverify.checks.adapter import STEPS, Adapter, NotSupportedError

TARGETS: Final = ("q_net_target", "quantile_net_target", "critic_target", "actor_target")
SEEN: Final = ("new_obs", "actions", "rewards", "dones")
"""What tells a step apart from another, by the names that the learning loops give it."""
AFTER_START: Final = 16
"""Steps of an off-policy algorithm after those in which it only collects."""


class SB3Adapter(Adapter):
    """Every algorithm that derives from ``BaseAlgorithm``."""

    def learn(self, model: BaseAlgorithm, steps: int) -> Sequence[str]:
        """Continue to train, as ``learn(steps, reset_num_timesteps=False)`` does."""
        trace = _Trace()
        model.learn(steps, callback=trace, reset_num_timesteps=False)
        return trace.steps

    def save(self, model: BaseAlgorithm, folder: Path) -> None:
        """Model, replay buffer and VecNormalize, each with its own method."""
        model.save(folder / "model.zip")
        if isinstance(model, OffPolicyAlgorithm):
            model.save_replay_buffer(folder / "replay_buffer.pkl")
        normalizer = model.get_vec_normalize_env()
        if normalizer is not None:
            normalizer.save(str(folder / "vec_normalize.pkl"))

    def load(self, folder: Path, fresh: BaseAlgorithm) -> BaseAlgorithm:
        """The class's ``load()`` with the environment of a fresh model, then the replay buffer."""
        model = type(fresh).load(folder / "model.zip", env=self._env(folder, fresh), device=fresh.device)
        if isinstance(model, OffPolicyAlgorithm):
            model.load_replay_buffer(folder / "replay_buffer.pkl")
        return model

    def _env(self, folder: Path, fresh: BaseAlgorithm) -> VecEnv:
        env = fresh.get_env()
        if env is None:
            raise NotSupportedError("the model has no environment")
        if not (folder / "vec_normalize.pkl").exists():
            return env
        return _with_normalizer(env, folder / "vec_normalize.pkl")

    def get_parameters(self, model: BaseAlgorithm) -> Any:
        """``get_parameters()`` of the model."""
        return model.get_parameters()

    def set_parameters(self, model: BaseAlgorithm, parameters: Any) -> None:
        """``set_parameters()`` of the model."""
        model.set_parameters(parameters)

    def act(self, model: BaseAlgorithm) -> Any:
        """The deterministic action for one observation, always the same, of the model's space."""
        space = copy.deepcopy(model.observation_space)
        space.seed(0)
        return model.predict(space.sample(), deterministic=True)[0]

    def set_learning_rate(self, model: BaseAlgorithm, value: float) -> None:
        """Set the attribute and build the schedule from it again."""
        model.learning_rate = value
        model._setup_lr_schedule()  # there is no public way, and this is what load() does

    def modules(self, model: BaseAlgorithm) -> Sequence[Any]:
        """The policy, which holds all networks."""
        return [model.policy]

    def target_modules(self, model: BaseAlgorithm) -> Sequence[Any]:
        """Target networks of the policy."""
        found = (getattr(model.policy, name, None) for name in TARGETS)
        return [each for each in found if each is not None]

    def steps(self, model: BaseAlgorithm) -> int:
        """A rollout of on-policy algorithms; the steps until learning starts, and some more, of the others."""
        if isinstance(model, OnPolicyAlgorithm):
            return int(model.n_steps * model.n_envs)
        if isinstance(model, OffPolicyAlgorithm):
            return int(model.learning_starts + AFTER_START * model.n_envs)
        return STEPS

    def steps_after(self, model: BaseAlgorithm) -> int:
        """As many as before; of an off-policy algorithm at most twice those that followed the start of learning."""
        steps = self.steps(model)
        return min(steps, 2 * AFTER_START * model.n_envs) if isinstance(model, OffPolicyAlgorithm) else steps

    def environment(self, model: BaseAlgorithm) -> VecEnv:
        """``get_env()`` of the model."""
        env = model.get_env()
        if env is None:
            raise NotSupportedError("the model has no environment")
        return env

    def with_settings(self, model: BaseAlgorithm, **settings: Any) -> BaseAlgorithm:
        """The class of the model, called with the model's own settings but these."""
        made: BaseAlgorithm = type(model)(**{**sb3_settings.arguments(model), **settings})
        return made

    def unknown_settings(self, model: BaseAlgorithm) -> Mapping[str, Mapping[str, Any]]:
        """An unknown argument of the class, of the policy, of the optimizer, and of the network architecture."""
        return {**super().unknown_settings(model), **sb3_settings.unknown_settings(model)}

    def mutable_settings(self, model: BaseAlgorithm) -> Mapping[str, Any]:  # noqa: ARG002
        """New and empty ``policy_kwargs``."""
        return {"policy_kwargs": {}}

    def one_sample_settings(self, model: BaseAlgorithm) -> Mapping[str, Any]:
        """A ``batch_size`` that leaves a remainder of one sample, or is one."""
        return sb3_settings.one_sample_settings(model)

    def recurrent_outputs(self, model: BaseAlgorithm, observations: Any, episode_starts: Any) -> Any:
        """Values, deterministic actions and their log probabilities of a recurrent policy."""
        return sb3_rollout.recurrent_outputs(model, observations, episode_starts)

    def rollout(self, model: BaseAlgorithm) -> None:
        """Call ``learn()`` for one rollout, without its ``train()``."""
        with sb3_rollout.without_training(model):
            self.learn(model, self.steps(model))

    def log_probs(self, model: BaseAlgorithm) -> tuple[Any, Any]:
        """The buffer's log probabilities, and those of ``evaluate_actions()``."""
        return sb3_rollout.log_probs(model)

    def advantages(self, model: BaseAlgorithm) -> tuple[Any, Any, Any]:
        """Arrays of the rollout buffer."""
        return sb3_rollout.advantages(model)

    def normalizer_state(self, model: BaseAlgorithm) -> Mapping[str, Any]:
        """The running means and variances of VecNormalize."""
        return sb3_normalizer.statistics(model)

    def normalized(self, model: BaseAlgorithm, observation: Any) -> Any:
        """``normalize_obs()`` of VecNormalize."""
        return sb3_normalizer.normalizer_of(model).normalize_obs(observation)


class _Trace(BaseCallback):
    """Notes a digest of every step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []

    def _on_step(self) -> bool:
        content = repr([self.locals.get(name) for name in SEEN]).encode()
        self.steps.append(hashlib.blake2b(content, digest_size=8).hexdigest())
        return True


def _with_normalizer(env: VecEnv, path: Path) -> VecEnv:
    """The environment with a VecNormalize from a file instead of its own."""
    if isinstance(env, VecNormalize):
        return VecNormalize.load(str(path), env.venv)
    if isinstance(env, VecEnvWrapper):
        env.venv = _with_normalizer(env.venv, path)
    return env


def _layers(env: VecEnv) -> Iterator[VecEnv]:
    yield env
    while isinstance(env, VecEnvWrapper):
        env = env.venv
        yield env
