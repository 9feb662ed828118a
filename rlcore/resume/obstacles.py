"""What keeps a model from being saved exactly: each reason names the thing, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.save_util import recursive_getattr
from stable_baselines3.common.utils import FloatSchedule, LinearSchedule

from rlcore.checkpoint import codec
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.resume.algorithms import ALGORITHMS, attribute_of, setting_names
from rlcore.resume.buffers import buffer_obstacle
from rlcore.resume.environments import env_obstacle
from rlcore.resume.noise import noise_obstacle

_REBUILT = frozenset(
    {
        *("policy", "policy_class", "env", "device", "observation_space", "action_space", "n_envs", "lr_schedule"),
        *("_vec_normalize_env", "rollout_buffer", "rollout_buffer_class", "rollout_buffer_kwargs", "action_noise"),
        *("use_sde", "sde_sample_freq", "use_sde_at_warmup", "ent_coef", "vf_coef", "max_grad_norm"),
        *("q_net", "q_net_target", "quantile_net", "quantile_net_target", "n_quantiles", "exploration_schedule"),
        *("actor", "actor_target", "critic", "critic_target", "batch_norm_stats", "batch_norm_stats_target"),
        *("actor_batch_norm_stats", "actor_batch_norm_stats_target"),
        *("critic_batch_norm_stats", "critic_batch_norm_stats_target"),
    }
)
"""Attributes that the constructor makes from the settings and the environment."""

_SAVED = frozenset(
    {
        *("num_timesteps", "_total_timesteps", "_episode_num", "_n_updates", "_current_progress_remaining"),
        *("_n_calls", "exploration_rate", "ep_info_buffer", "ep_success_buffer", "replay_buffer", "seed"),
        *("_last_obs", "_last_original_obs", "_last_episode_starts", "_last_lstm_states", "_logger"),
        *("log_ent_coef", "ent_coef_tensor", "ent_coef_optimizer"),
    }
)
"""Attributes that a file holds."""

_OF_THE_CALL = frozenset({"start_time", "_num_timesteps_at_start", "_custom_logger"})
"""Attributes that say how the present process trains: clocks, and who made the logger."""


def obstacle(model: BaseAlgorithm) -> str | None:
    """Return the first reason why ``model`` cannot be saved exactly, or None if it can."""
    if isinstance(model, DistributionalPPO):  # whose registry names every part, those of a subclass too
        return env_obstacle(model.env)
    if type(model) not in ALGORITHMS.values():
        return _foreign(model)
    return next(_obstacles(model), None)


def _obstacles(model: BaseAlgorithm) -> Iterator[str]:
    known = _REBUILT | _SAVED | _OF_THE_CALL | {attribute_of(name) for name in setting_names(type(model))}
    if unknown := sorted(set(vars(model)) - known):
        yield f"the attribute {unknown[0]!r} is not one of {type(model).__name__}; remove it before saving"
    if type(model.policy) is not model.policy_class:
        yield (
            f"the policy is a {type(model.policy).__name__} and was built as a {model.policy_class.__name__}; "
            "train with the policy that the algorithm has built (a compiled one computes other bits)"
        )
    yield from _other_optimizers(model)
    yield from _other_schedules(model)
    if isinstance(model, OffPolicyAlgorithm) and (reason := noise_obstacle(model.action_noise)):
        yield reason
    if reason := buffer_obstacle(model):
        yield reason
    if reason := env_obstacle(model.env):
        yield reason


def _foreign(model: object) -> str:
    name = type(model).__name__
    if isinstance(model, tuple(ALGORITHMS.values())):
        return f"{name} is a subclass and may keep more than its parent; only the class itself can be saved exactly"
    return f"{name} cannot be saved exactly; the algorithms that can are DistributionalPPO, {', '.join(ALGORITHMS)}"


def _other_optimizers(model: BaseAlgorithm) -> Iterator[str]:
    names, _ = model._get_torch_save_params()
    for name in names:
        optimizer, expected = recursive_getattr(model, name), model.policy.optimizer_class
        own = name == "ent_coef_optimizer"  # which is always Adam
        if isinstance(optimizer, torch.optim.Optimizer) and not own and type(optimizer) is not expected:
            yield (
                f"{name} is a {type(optimizer).__name__}, and the policy was built with {expected.__name__}; give the "
                "class as policy_kwargs['optimizer_class']"
            )


def _other_schedules(model: BaseAlgorithm) -> Iterator[str]:
    expected: dict[str, object] = {"lr_schedule": FloatSchedule(model.learning_rate)}
    if hasattr(model, "exploration_schedule"):
        names = ("exploration_initial_eps", "exploration_final_eps", "exploration_fraction")
        expected["exploration_schedule"] = LinearSchedule(*(getattr(model, name) for name in names))
    for name, schedule in expected.items():
        if not codec.same(codec.encode(getattr(model, name), name), codec.encode(schedule, name)):
            yield f"{name} was replaced after the model was built, so its settings do not give it; set the setting too"
