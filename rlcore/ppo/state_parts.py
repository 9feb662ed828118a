"""The parts that the training state of DistributionalPPO consists of."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from functools import partial
from typing import Any

import torch
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.running_mean_std import RunningMeanStd

from rlcore.envs import vec_state
from rlcore.errors import ResumeWarning, StateError, warn_caller
from rlcore.ppo.adaptive import ReturnScale
from rlcore.ppo.construction import ConfiguredPPO, build_policy
from rlcore.ppo.losses import make_values
from rlcore.ppo.policy import SUPPORT
from rlcore.state.network import require_network
from rlcore.state.progress import capture_progress, restore_progress
from rlcore.state.training import (
    Scope,
    StatePart,
    apply_generators,
    capture_generators,
    capture_position,
    check_generators,
    fit_position,
    restore_position,
)
from rlcore.state.tree import SAME, fit, fit_optimizer
from rlcore.types import StateDict


def state_parts(model: Any) -> list[StatePart]:
    """Return every part of the training state of a DistributionalPPO, in the order in which they are restored."""
    policy, optimizer, scaler = model.policy, model.policy.optimizer, model.variance_gradient_scaler
    scale = model.value_scale
    entropy, penalty = model.entropy_schedule, model.kl_penalty
    learner, collected, progress, run = Scope

    def of(*functions: Any) -> list[Any]:
        return [partial(function, model) for function in functions]

    return [
        StatePart("policy", learner, lambda: dict(policy.state_dict()), partial(restore_policy, model), required=True),
        StatePart(
            "policy.optimizer",
            learner,
            optimizer.state_dict,
            lambda state: optimizer.load_state_dict(fit_optimizer(state, optimizer)),
            required=True,
        ),
        StatePart(
            "vgs_state",
            learner,
            lambda: scaler and scaler.state_dict(),
            partial(restore_scaler, model),
            lambda: scaler._forget(),  # the registry warns of all that starts fresh
        ),
        StatePart("return_scale_state", learner, scale.state_dict, scale.load_state_dict, scale.reset),
        StatePart("entropy_state", learner, entropy.capture, entropy.restore, entropy.reset),
        StatePart("kl_penalty_state", learner, penalty.capture, penalty.restore, penalty.reset),
        StatePart("normalizer_state", collected, *of(capture_normalizer, restore_normalizer, reset_normalizer)),
        StatePart("progress_state", progress, *of(capture_progress, partial(restore_progress, least=0.0))),
        StatePart(
            "env_state",
            run,
            lambda: None if model._last_obs is None else vec_state.capture_env_state(model.env),
            lambda state: vec_state.restore_env_state(model.env, state),
            check=vec_state.require_running,
        ),
        StatePart(
            "lstm_state",
            run,
            partial(capture_lstm, model),
            partial(restore_lstm, model),
            check=partial(fit_lstm, model),
        ),
        StatePart("rng_state", run, capture_generators, apply_generators, check=check_generators),
    ]


def check_policy(state: StateDict, expected: Mapping[str, torch.Tensor]) -> None:
    """Raise StateError for the first of the saved weights that does not fit: name, shape, a number, or the atoms."""
    fit(state, expected, "policy", {SUPPORT: SAME})


def restore_policy(model: ConfiguredPPO, state: StateDict) -> None:
    """Restore the parameters and buffers of the network."""
    check_policy(state, model.policy.state_dict())
    model.policy.load_state_dict(state)  # type: ignore[arg-type]


def restore_scaler(model: ConfiguredPPO, state: StateDict) -> None:
    """Restore the statistics of variance gradient scaling; those of another estimator are checked and dropped."""
    scaler = model.variance_gradient_scaler
    if scaler is None:
        raise StateError(
            "vgs_state is given, and variance_gradient_scaling=False; pass exact_match=False to go without"
        )
    own = scaler.settings
    scaler.load_state_dict({**state, "enabled": own.enabled})
    if (given := scaler.settings.estimator) != own.estimator:
        scaler._settings = own
        scaler._forget()
        warn_caller(
            f"vgs_state: the saved statistics of {given!r} are of no use to {own.estimator!r}: it starts fresh",
            ResumeWarning,
        )


def capture_normalizer(model: ConfiguredPPO) -> StateDict | None:
    """Return the running statistics of VecNormalize, or None where the environment has none."""
    if model.env is None:
        return model.pending_state.get("normalizer_state")
    return vec_state.capture_normalizer(model.env)


def restore_normalizer(model: ConfiguredPPO, state: StateDict) -> None:
    """Restore the statistics of VecNormalize, and keep them for an environment that is set later."""
    if model.env is not None:
        vec_state.restore_normalizer(model.env, state)
    if model.env is None or "normalizer_state" in model.pending_state:
        model.pending_state["normalizer_state"] = state


def reset_normalizer(model: ConfiguredPPO) -> None:
    """Forget the statistics: mean 0, variance 1 and next to no observations, as VecNormalize begins."""
    model.pending_state.pop("normalizer_state", None)
    layers: Any = (capture_normalizer(model) or {"layers": []})["layers"]
    for moments in [m for layer in layers for m in (*layer["observation"], layer["return"])]:
        mean = torch.zeros_like(moments["mean"])
        moments.update(mean=mean, var=torch.ones_like(mean), count=RunningMeanStd().count)
    if layers:
        restore_normalizer(model, {"layers": layers})


def capture_lstm(model: ConfiguredPPO) -> StateDict | None:
    """Return what the next rollout starts from: LSTM states, observations, episode starts."""
    state, states = capture_position(model), model._last_lstm_states
    return None if state is None else {"actor": list(states.pi), "critic": list(states.vf), **state}


def restore_lstm(model: ConfiguredPPO, state: StateDict) -> None:
    """Let the next rollout start from a state of :func:`capture_lstm`."""
    fitted = fit_lstm(model, state)
    actor, critic = (tuple(t.to(model.device) for t in fitted[name]) for name in ("actor", "critic"))
    model._last_lstm_states = RNNStates(actor, critic)
    restore_position(model, fitted)


def fit_lstm(model: ConfiguredPPO, state: StateDict) -> dict[str, Any]:
    """Return the state checked; it may be of another number of environments than the model has."""
    lstm, starts, environments = (
        model.policy.lstm_actor,
        state.get("episode_starts"),
        model.pending_state.get("env_state"),
    )
    n_envs = len(starts) if isinstance(starts, torch.Tensor) and starts.dim() else 0
    if environments is not None and vec_state.number_of_envs(environments) != n_envs:
        raise StateError("lstm_state and env_state are of different numbers of environments; the state is damaged")
    form: StateDict = dict.fromkeys(("actor", "critic"), [torch.zeros(lstm.num_layers, n_envs, lstm.hidden_size)] * 2)
    return fit_position(state, form, "lstm_state", model, n_envs)


def forget_lstm_states(states: MutableMapping[str, Any]) -> None:
    """Make the LSTM states of a captured ``lstm_state`` zero; its observations and episode starts stay."""
    state = states.get("lstm_state")
    if state is not None:
        zeros = {name: [torch.zeros_like(tensor) for tensor in state[name]] for name in ("actor", "critic")}
        states["lstm_state"] = {**state, **zeros}


def resume_run(model: ConfiguredPPO) -> str | None:
    """Restore environments, LSTM states and generators of a loaded run.

    :return: why the environments start from a reset instead; then none of it is restored
    """
    pending, env = model.pending_state, model.env
    if "lstm_state" not in pending:
        pending.pop("env_state", None)
    elif env is not None and (reason := vec_state.unsupported_reason(env)):
        return reason.rstrip(".")
    elif "env_state" not in pending:
        return "no state of the environments was saved"
    elif vec_state.number_of_envs(pending["env_state"]) != model.n_envs:
        return f"the saved run had another number of environments than {model.n_envs}"
    model._training_state().resume()
    return None


def require_network_of(model: ConfiguredPPO, weights: object) -> None:
    """Compare the network that the model's settings ask for with saved weights, before it takes memory.

    :param weights: the saved part ``policy``
    :raises StateError: names, shapes or numbers do not fit
    """
    settings = {name: getattr(model, name) for name in ("policy_kwargs", "policy_class", "n_critics")}
    require_network(settings, weights, lambda: build_policy(model, make_values(model, ReturnScale())), {SUPPORT: SAME})
