"""The adapter of Stable-Baselines3 and sb3-contrib: saves and loads in the way that their documentation describes."""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize

from rlverify.checks.adapters.adapter import STEPS, UNKNOWN, Adapter, NotSupportedError
from rlverify.checks.adapters.driving import innermost, layers
from rlverify.checks.adapters.sb3_sizes import smaller_settings
from rlverify.checks.state.owners import owner_of_class
from rlverify.checks.state.parts import is_module
from rlverify.checks.state.trained import found_modules, found_optimizers

SEEN: Final = ("new_obs", "actions", "rewards", "dones")
"""What tells a step apart from another, by the names that the learning loops give it."""
MOMENTS: Final = ("mean", "var", "count")
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
        env = _with_normalizer(self.environment(fresh), folder / "vec_normalize.pkl")
        model = type(fresh).load(folder / "model.zip", env=env, device=fresh.device)
        if isinstance(model, OffPolicyAlgorithm):
            model.load_replay_buffer(folder / "replay_buffer.pkl")
        return model

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
        """The policy, and all networks elsewhere in the model; override it to name fewer."""
        others = [each for each in found_modules(own_parts(model)) if each is not model.policy]
        return [model.policy, *others]

    def optimizers(self, model: BaseAlgorithm) -> Sequence[Any]:
        """All optimizers of the model; override it to name fewer."""
        return found_optimizers(own_parts(model))

    def target_modules(self, model: BaseAlgorithm) -> Sequence[Any]:
        """Networks of the policy and of the model itself with "target" in their names."""
        places = (vars(model.policy)["_modules"], vars(model.policy), vars(model))
        found = [each for names in places for name, each in names.items() if "target" in name and is_module(each)]
        return list({id(each): each for each in found}.values())

    def steps(self, model: BaseAlgorithm) -> int:
        """A rollout of on-policy algorithms; the steps until learning starts, and some more, of the others.

        Two rollouts where the learning rate ends at 0, as it would be 0 in the only update.
        """
        if isinstance(model, OnPolicyAlgorithm):
            return int(model.n_steps * model.n_envs * (1 if model.lr_schedule(0.0) else 2))
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
        made: BaseAlgorithm = type(model)(**{**arguments(model), **settings})
        return made

    def library_twin(self, model: BaseAlgorithm) -> BaseAlgorithm:
        """The nearest class of Stable-Baselines3 or sb3-contrib, with a policy of theirs and the same environment.

        Classes of yours in ``policy_kwargs`` are left out with their arguments.
        """
        kind, policy = _of_library(type(model)), _of_library(type(model.policy))
        classes = {
            name: value if isinstance(value, type) else type(value) for name, value in model.policy_kwargs.items()
        }
        own = {name for name, each in classes.items() if owner_of_class(each).is_yours}
        dropped = own | {f"{name.removesuffix('_class')}_kwargs" for name in own}
        if kind is type(model) and policy is type(model.policy) and not own:
            return model
        settings = {name: value for name, value in arguments(model).items() if name in _argument_names(kind)}
        known = set(_argument_names(policy)) - dropped
        kept = {name: value for name, value in model.policy_kwargs.items() if name in known}
        made: BaseAlgorithm = kind(**{**settings, "policy": policy, "policy_kwargs": kept})
        return made

    def smaller(self, model: BaseAlgorithm) -> Mapping[str, Any]:
        """Short rollouts, few epochs, small batches and buffers, an early start of learning, two environments."""
        return smaller_settings(model)

    def unknown_settings(self, model: BaseAlgorithm) -> Mapping[str, Mapping[str, Any]]:
        """An unknown argument of the class, of the policy, of the optimizer, and of the network architecture."""
        policy = model.policy_kwargs
        optimizer = {**policy.get("optimizer_kwargs", {}), UNKNOWN: 1}
        changed: dict[str, dict[str, Any]] = {
            f"policy_kwargs[{UNKNOWN!r}]": {UNKNOWN: 1},
            f"policy_kwargs['optimizer_kwargs'][{UNKNOWN!r}]": {"optimizer_kwargs": optimizer},
            f"policy_kwargs['net_arch'][{UNKNOWN!r}]": {"net_arch": {UNKNOWN: [8]}},
        }
        of_policy = {place: {"policy_kwargs": {**policy, **change}} for place, change in changed.items()}
        return {**super().unknown_settings(model), **of_policy}

    def mutable_settings(self, model: BaseAlgorithm) -> Mapping[str, Any]:  # noqa: ARG002
        """New and empty ``policy_kwargs``."""
        return {"policy_kwargs": {}}

    def one_sample_settings(self, model: BaseAlgorithm) -> Mapping[str, Any]:
        """A ``batch_size`` that leaves a remainder of one sample, or is one."""
        if isinstance(model, OffPolicyAlgorithm):
            return {"batch_size": 1}
        if not isinstance(model, OnPolicyAlgorithm):
            raise NotSupportedError(f"it is not known how {type(model).__name__} forms minibatches")
        samples = model.n_steps * model.n_envs
        if hasattr(model, "batch_size") and samples > 2:
            return {"batch_size": samples - 1}
        if not hasattr(model, "batch_size") and model.n_envs == 1:
            return {"n_steps": 1}
        raise NotSupportedError("no batch size leaves a remainder of one sample")

    def recurrent_outputs(self, model: BaseAlgorithm, observations: Any, episode_starts: Any) -> Any:
        """Values, deterministic actions and their log probabilities of a recurrent policy."""
        policy: Any = model.policy
        if not hasattr(policy, "lstm_actor"):
            raise NotSupportedError(f"{type(policy).__name__} is not recurrent")
        from sb3_contrib.common.recurrent.type_aliases import RNNStates

        policy.set_training_mode(False)
        lstm = policy.lstm_actor
        empty = torch.zeros(lstm.num_layers, episode_starts.shape[1], lstm.hidden_size, device=model.device)
        states, found = RNNStates((empty, empty), (empty, empty)), []
        for step, starts in enumerate(episode_starts):
            seen = {key: each[step] for key, each in observations.items()} if isinstance(observations, dict) else None
            observation = policy.obs_to_tensor(seen if seen is not None else observations[step])[0]
            begins = torch.as_tensor(starts, dtype=torch.float32, device=model.device)
            with torch.no_grad():
                actions, values, log_prob, states = policy(observation, states, begins, deterministic=True)
            columns = [each.reshape(len(starts), -1).to(torch.float32) for each in (values, actions, log_prob)]
            found.append(torch.cat(columns, dim=1).numpy(force=True))
        return np.stack(found)

    def rollout(self, model: BaseAlgorithm) -> None:
        """Call ``learn()`` for one rollout, without its ``train()``."""
        _on_policy(model)
        vars(model)["train"] = lambda: None
        try:
            self.learn(model, self.steps(model))
        finally:
            del vars(model)["train"]

    def log_probs(self, model: BaseAlgorithm) -> tuple[Any, Any]:
        """The buffer's log probabilities, and those of ``evaluate_actions()``."""
        algorithm = _on_policy(model)
        algorithm.policy.set_training_mode(True)  # as train() does
        stored, evaluated = [], []
        data: Any  # recurrent ones have a mask
        for data in algorithm.rollout_buffer.get(getattr(algorithm, "batch_size", None)):
            with torch.no_grad():
                found = _evaluated(algorithm, data)
            kept = data.mask > 0 if hasattr(data, "mask") else torch.ones_like(found, dtype=torch.bool)
            stored.append(data.old_log_prob[kept].numpy(force=True))
            evaluated.append(found[kept].numpy(force=True))
        return np.concatenate(stored), np.concatenate(evaluated)

    def advantages(self, model: BaseAlgorithm) -> tuple[Any, Any, Any]:
        """Arrays of the rollout buffer."""
        buffer = _on_policy(model).rollout_buffer
        return buffer.returns, buffer.values, buffer.advantages

    def advantage_inputs(self, model: BaseAlgorithm) -> Mapping[str, Any]:
        """Arrays of the rollout buffer, and the settings of the model with which it has to compute them."""
        trained = _on_policy(model)
        buffer = trained.rollout_buffer
        given: dict[str, Any] = {}
        compute = buffer.compute_returns_and_advantage

        def noted(last_values: torch.Tensor, dones: np.ndarray[Any, Any]) -> None:
            given.update(last_values=last_values.flatten().numpy(force=True), last_episode_starts=dones)
            compute(last_values=last_values, dones=dones)

        vars(buffer)["compute_returns_and_advantage"] = noted
        self.rollout(model)
        del vars(buffer)["compute_returns_and_advantage"]
        kept = {name: getattr(buffer, name) for name in ("advantages", "rewards", "values", "episode_starts")}
        return {**given, **kept, "gamma": trained.gamma, "gae_lambda": trained.gae_lambda}

    def normalizer_state(self, model: BaseAlgorithm) -> Mapping[str, Any]:
        """The running means and variances of VecNormalize, and of Gymnasium's wrappers inside of vectors."""
        running = {
            f"envs[{number}] {type(layer).__name__}.{name}": vars(layer)[name]
            for number, env in enumerate(getattr(innermost(self.environment(model)), "envs", ()))
            for layer in layers(env)
            for name in ("obs_rms", "return_rms")
            if name in vars(layer)
        }
        normalizer = model.get_vec_normalize_env()
        if normalizer is not None:
            own = getattr(normalizer, "obs_rms", {})
            observed = own if isinstance(own, dict) else {"": own}
            keyed = {f"obs_rms[{key!r}]" if key else "obs_rms": value for key, value in observed.items()}
            running = {**keyed, "ret_rms": normalizer.ret_rms, **running}
        if not running:
            raise NotSupportedError("the environment has no VecNormalize")
        return {f"{name}.{moment}": getattr(each, moment) for name, each in running.items() for moment in MOMENTS}

    def normalized(self, model: BaseAlgorithm, observation: Any) -> Any:
        """``normalize_obs()`` of VecNormalize."""
        normalizer = model.get_vec_normalize_env()
        if normalizer is None:
            raise NotSupportedError("the environment has no VecNormalize")
        return normalizer.normalize_obs(observation)


WITHOUT_NETWORKS: Final = ("replay_buffer", "rollout_buffer", "ep_info_buffer", "ep_success_buffer", "_logger")
"""Attributes that hold data, which take long to search."""


def own_parts(model: BaseAlgorithm) -> dict[str, Any]:
    """What a model holds, the policy first, without its data; environments included."""
    own = {name: each for name, each in vars(model).items() if name not in WITHOUT_NETWORKS}
    return {"policy": model.policy, **own}


class _Trace(BaseCallback):
    """Notes a digest of every step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []

    def _on_step(self) -> bool:
        content = b"".join(_bytes(self.locals.get(name)) for name in SEEN)
        self.steps.append(hashlib.blake2b(content, digest_size=8).hexdigest())
        return True


def _bytes(value: Any) -> bytes:
    """The content of an array or of a dictionary of arrays; of anything else its text."""
    if isinstance(value, dict):
        return b"".join(_bytes(each) for each in value.values())
    return value.tobytes() if isinstance(value, np.ndarray) and value.dtype != object else repr(value).encode()


def _with_normalizer(env: VecEnv, path: Path) -> VecEnv:
    """The environment with a VecNormalize from a file, if there is one, instead of its own."""
    if isinstance(env, VecNormalize) and path.exists():
        return VecNormalize.load(str(path), env.venv)
    if isinstance(env, VecEnvWrapper):
        env.venv = _with_normalizer(env.venv, path)
    return env


LIBRARIES: Final = ("stable_baselines3", "sb3_contrib")
RENAMED: Final = {"policy": "policy_class"}
"""Arguments of constructors that the model keeps under another name."""
NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def arguments(model: BaseAlgorithm) -> dict[str, Any]:
    """The arguments of the constructor that the model keeps as attributes; others have their defaults."""
    kept = {name: RENAMED.get(name, name) for name in _argument_names(type(model))}
    return {name: getattr(model, attribute) for name, attribute in kept.items() if hasattr(model, attribute)}


def _argument_names(kind: type) -> list[str]:
    """The names of a constructor's arguments; those of the classes above it too, as long as it passes on any."""
    found: list[str] = []
    for base in kind.__mro__:
        if "__init__" not in base.__dict__:
            continue
        parameters = list(inspect.signature(base.__dict__["__init__"]).parameters.values())[1:]
        found += [each.name for each in parameters if each.kind in NAMED]
        if all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in parameters):
            break
    return found


def _of_library(kind: type) -> type:
    """The nearest class, upwards, of Stable-Baselines3 or sb3-contrib."""
    return next(each for each in kind.__mro__ if each.__module__.partition(".")[0] in LIBRARIES)


def _on_policy(model: BaseAlgorithm) -> OnPolicyAlgorithm:
    if not isinstance(model, OnPolicyAlgorithm):
        raise NotSupportedError(f"{type(model).__name__} has no rollout buffer")
    return model


def _evaluated(model: OnPolicyAlgorithm, data: Any) -> torch.Tensor:
    """The log probabilities of one minibatch, computed as ``train()`` computes them."""
    actions = data.actions.long().flatten() if isinstance(model.action_space, spaces.Discrete) else data.actions
    more = {"action_masks": data.action_masks} if hasattr(data, "action_masks") else {}
    if hasattr(data, "lstm_states"):
        more = {"lstm_states": data.lstm_states, "episode_starts": data.episode_starts}
    found: torch.Tensor = model.policy.evaluate_actions(data.observations, actions, **more)[1]
    return found
