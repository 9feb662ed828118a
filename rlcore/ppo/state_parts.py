"""What DistributionalPPO's training state consists of, piece by piece."""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import partial
from typing import Any

import torch
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.running_mean_std import RunningMeanStd

from rlcore.envs import vec_state as env_state
from rlcore.errors import StateError
from rlcore.ppo.construction import ConfiguredPPO
from rlcore.ppo.weights import check_policy
from rlcore.state.generators import apply_generators, capture_generators, check_generators
from rlcore.state.optimizer_state import fit_optimizer
from rlcore.state.position import capture_position, fit_position, restore_position
from rlcore.state.progress import capture_progress, restore_progress
from rlcore.state.registry import Scope, StatePart
from rlcore.types import StateDict


def state_parts(model: ConfiguredPPO) -> list[StatePart]:
    """Every piece of ``model``'s training state, in the order in which it is restored."""
    policy, optimizer, scaler = PolicyState(model), OptimizerState(model), ScalerState(model)
    returns, normalizer = ReturnScaleState(model), NormalizerState(model)
    entropy, penalty = model.entropy_schedule, model.kl_penalty
    environments, position = EnvState(model), LstmState(model)
    return [
        StatePart("policy", Scope.LEARNER, policy.capture, policy.restore, required=True),
        StatePart("policy.optimizer", Scope.LEARNER, optimizer.capture, optimizer.restore, required=True),
        StatePart("vgs_state", Scope.LEARNER, scaler.capture, scaler.restore, scaler.reset),
        StatePart("return_scale_state", Scope.LEARNER, returns.capture, returns.restore, returns.reset),
        StatePart("entropy_state", Scope.LEARNER, entropy.capture, entropy.restore, entropy.reset),
        StatePart("kl_penalty_state", Scope.LEARNER, penalty.capture, penalty.restore, penalty.reset),
        StatePart("normalizer_state", Scope.COLLECTED, normalizer.capture, normalizer.restore, normalizer.reset),
        StatePart(
            "progress_state",
            Scope.PROGRESS,
            partial(capture_progress, model),
            partial(restore_progress, model, least=0.0),
        ),
        StatePart(
            "env_state",
            Scope.RUN,
            environments.capture,
            environments.restore,
            check=environments.check,
            obstacle=environments.obstacle,
        ),
        StatePart("lstm_state", Scope.RUN, position.capture, position.restore, check=position.check, needs="env_state"),
        StatePart("rng_state", Scope.RUN, capture_generators, apply_generators, check=check_generators),
    ]


class _Component:
    def __init__(self, model: ConfiguredPPO) -> None:
        self.model = model


class PolicyState(_Component):
    """The network's parameters and buffers."""

    def capture(self) -> StateDict | None:
        return {name: tensor for name, tensor in self.model.policy.state_dict().items()}  # noqa: C416

    def restore(self, state: StateDict) -> None:
        check_policy(state, self.model.policy.state_dict())
        self.model.policy.load_state_dict(state)  # type: ignore[arg-type]


class OptimizerState(_Component):
    """The optimizer's moments, utilities and groups."""

    def capture(self) -> StateDict | None:
        state: StateDict = self.model.policy.optimizer.state_dict()  # type: ignore[assignment]
        return state

    def restore(self, state: StateDict) -> None:
        optimizer = self.model.policy.optimizer
        optimizer.load_state_dict(fit_optimizer(state, optimizer))  # type: ignore[arg-type]


class ScalerState(_Component):
    """The statistics of variance gradient scaling; None where it is off."""

    def capture(self) -> StateDict | None:
        scaler = self.model.variance_gradient_scaler
        return None if scaler is None else scaler.state_dict()

    def restore(self, state: StateDict) -> None:
        scaler = self.model.variance_gradient_scaler
        if scaler is None:
            raise StateError(
                "vgs_state is given but the model has variance_gradient_scaling=False; "
                "switch it on, or pass exact_match=False"
            )
        scaler.load_state_dict({**state, "enabled": scaler.settings.enabled})

    def reset(self) -> None:
        scaler = self.model.variance_gradient_scaler
        if scaler is not None:
            scaler._forget()  # the registry says so, of all that starts fresh


class ReturnScaleState(_Component):
    """The statistics of the returns and what values are scaled with; None where they are in raw units."""

    def capture(self) -> StateDict | None:
        return self.model.value_scale.state_dict()

    def restore(self, state: StateDict) -> None:
        self.model.value_scale.load_state_dict(state)

    def reset(self) -> None:
        self.model.value_scale.reset()


class NormalizerState(_Component):
    """The running statistics of VecNormalize; None where the environment has none."""

    def capture(self) -> StateDict | None:
        if self.model.env is None:
            return self.model.pending_state.get("normalizer_state")
        return env_state.capture_normalizer(self.model.env)

    def restore(self, state: StateDict) -> None:
        if self.model.env is not None:
            env_state.restore_normalizer(self.model.env, state)
        if self.model.env is None or "normalizer_state" in self.model.pending_state:
            self.model.pending_state["normalizer_state"] = state

    def reset(self) -> None:
        """Forget the statistics: mean 0, variance 1 and next to no observations, as VecNormalize begins."""
        self.model.pending_state.pop("normalizer_state", None)
        layers: Any = (self.capture() or {"layers": []})["layers"]
        for moments in [m for layer in layers for m in (*layer["observation"], layer["return"])]:
            mean = torch.zeros_like(moments["mean"])
            moments.update(mean=mean, var=torch.ones_like(mean), count=RunningMeanStd().count)
        if layers:
            self.restore({"layers": layers})


class EnvState(_Component):
    """Where every environment stands; None where one cannot say, and before the model has reset them."""

    def capture(self) -> StateDict | None:
        model: Any = self.model  # SB3 declares what it sets later as None
        return None if model._last_obs is None else env_state.capture_env_state(model.env)

    def restore(self, state: StateDict) -> None:
        assert self.model.env is not None, "learn() has checked that there is an environment"
        env_state.restore_env_state(self.model.env, state)

    def check(self, state: StateDict) -> None:
        """Refuse what no environments could go on from; the rest is checked against the environments themselves."""
        env_state.require_running(state)

    def obstacle(self, state: StateDict | None) -> str | None:
        """Why the environments have to start from a reset, or None; None too where they were to be reset anyway."""
        if state is None and "lstm_state" not in self.model.pending_state:
            return None
        assert self.model.env is not None, "learn() has checked that there is an environment"
        reason = env_state.unsupported_reason(self.model.env)
        if reason is not None or state is None:
            return reason or "no state of the environments was saved"
        if env_state.number_of_envs(state) != self.model.n_envs:
            return f"the saved run had another number of environments than {self.model.n_envs}"
        return None


class LstmState(_Component):
    """What the next rollout starts from: LSTM states, observations, episode starts."""

    def capture(self) -> StateDict | None:
        state, states = capture_position(self.model), self.model._last_lstm_states
        return None if state is None else {"actor": list(states.pi), "critic": list(states.vf), **state}

    def restore(self, state: StateDict) -> None:
        fitted, device = self._fitted(state), self.model.device
        self.model._last_lstm_states = RNNStates(
            tuple(t.to(device) for t in fitted["actor"]), tuple(t.to(device) for t in fitted["critic"])
        )
        restore_position(self.model, fitted)

    def check(self, state: StateDict) -> None:
        """Refuse what no rollout of this model could start from."""
        environments = self.model.pending_state.get("env_state")
        fitted = self._fitted(state)
        if environments is not None and env_state.number_of_envs(environments) != len(fitted["episode_starts"]):
            raise StateError("lstm_state and env_state are of different numbers of environments; the state is damaged")

    def _fitted(self, state: StateDict) -> dict[str, Any]:
        """The state may be of another number of environments than the model has, but of one throughout."""
        lstm = self.model.policy.lstm_actor
        starts = state.get("episode_starts")
        n_envs = len(starts) if isinstance(starts, torch.Tensor) and starts.dim() else 0
        form: StateDict = dict.fromkeys(
            ("actor", "critic"), [torch.zeros(lstm.num_layers, n_envs, lstm.hidden_size)] * 2
        )
        return fit_position(state, form, "lstm_state", self.model.observation_space, n_envs)


def forget_lstm_states(states: MutableMapping[str, Any]) -> None:
    """Make the LSTM states of a captured ``lstm_state`` zero; its observations and episode starts stay."""
    state = states.get("lstm_state")
    if state is not None:
        zeros = {name: [torch.zeros_like(tensor) for tensor in state[name]] for name in ("actor", "critic")}
        states["lstm_state"] = {**state, **zeros}
