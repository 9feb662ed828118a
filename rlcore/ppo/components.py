"""What DistributionalPPO's training state consists of, piece by piece."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.running_mean_std import RunningMeanStd

from rlcore import env_state
from rlcore.checkpoint.training_state import Scope, StatePart
from rlcore.errors import ResumeWarning, StateError
from rlcore.optim import upgd_state
from rlcore.optim.gradient_variance import ESTIMATORS
from rlcore.optim.settings import REMOVED_ESTIMATORS
from rlcore.optim.upgd import UtilityGatedOptimizer
from rlcore.ppo import observations, optimizer_state, state_checks
from rlcore.ppo.optimizers import find_optimizer
from rlcore.ppo.returns import Moments, read_state, rescaled
from rlcore.ppo.settings import PPOSettings
from rlcore.types import StateDict
from rlcore.warn import warn_caller

if TYPE_CHECKING:
    from rlcore.ppo.algorithm import DistributionalPPO


def state_parts(model: DistributionalPPO) -> list[StatePart]:
    """Every piece of ``model``'s training state, in the order in which it is restored."""
    policy, optimizer, scaler = PolicyState(model), OptimizerState(model), ScalerState(model)
    returns, normalizer, progress = ReturnScaleState(model), NormalizerState(model), ProgressState(model)
    entropy, penalty = model.entropy_schedule, model.kl_penalty
    environments, position, generators = EnvState(model), LstmState(model), GeneratorState(model)
    return [
        StatePart("policy", Scope.LEARNER, policy.capture, policy.restore, required=True),
        StatePart("policy.optimizer", Scope.LEARNER, optimizer.capture, optimizer.restore, required=True),
        StatePart("vgs_state", Scope.LEARNER, scaler.capture, scaler.restore, scaler.reset),
        StatePart("return_scale_state", Scope.LEARNER, returns.capture, returns.restore, returns.reset),
        StatePart("entropy_state", Scope.LEARNER, entropy.capture, entropy.restore, entropy.reset),
        StatePart("kl_penalty_state", Scope.LEARNER, penalty.capture, penalty.restore, penalty.reset),
        StatePart("normalizer_state", Scope.COLLECTED, normalizer.capture, normalizer.restore, normalizer.reset),
        StatePart("progress_state", Scope.PROGRESS, progress.capture, progress.restore),
        StatePart(
            "env_state",
            Scope.RUN,
            environments.capture,
            environments.restore,
            check=environments.check,
            obstacle=environments.obstacle,
        ),
        StatePart("lstm_state", Scope.RUN, position.capture, position.restore, check=position.check, needs="env_state"),
        StatePart("rng_state", Scope.RUN, generators.capture, generators.restore, check=state_checks.check_generators),
    ]


class _Component:
    def __init__(self, model: DistributionalPPO) -> None:
        self.model = model


class PolicyState(_Component):
    """The network's parameters and buffers."""

    def capture(self) -> StateDict | None:
        return {name: tensor for name, tensor in self.model.policy.state_dict().items()}  # noqa: C416

    def restore(self, state: StateDict) -> None:
        state_checks.check_policy(state, self.model.policy.state_dict())
        self.model.policy.load_state_dict(state)  # type: ignore[arg-type]


class OptimizerState(_Component):
    """The optimizer's moments, utilities and groups."""

    def capture(self) -> StateDict | None:
        state: StateDict = self.model.policy.optimizer.state_dict()  # type: ignore[assignment]
        return state

    def restore(self, state: StateDict) -> None:
        optimizer = self.model.policy.optimizer
        optimizer_state.check_optimizer(state, optimizer)
        optimizer.load_state_dict(optimizer_state.with_own_options(state, optimizer))  # type: ignore[arg-type]


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


class ProgressState(_Component):
    """Counters, and the window of finished episodes that the logger averages."""

    def capture(self) -> StateDict | None:
        state: StateDict = {name: getattr(self.model, name) for name in (*state_checks.COUNTERS, state_checks.PROGRESS)}
        for name in state_checks.WINDOWS:
            window = getattr(self.model, name)
            state[name] = None if window is None else [_plain_numbers(entry) for entry in window]
        return state

    def restore(self, state: StateDict) -> None:
        state_checks.check_progress(state)
        for name in (*state_checks.COUNTERS, state_checks.PROGRESS):
            setattr(self.model, name, state[name])
        for name in state_checks.WINDOWS:
            window: Any = state[name]
            setattr(self.model, name, None if window is None else deque(window, maxlen=self.model.stats_window_size))


class EnvState(_Component):
    """Where every environment stands; None where one cannot say, and before the model has reset them."""

    def capture(self) -> StateDict | None:
        model: Any = self.model  # SB3 declares what it sets later as None
        return None if model._last_obs is None else env_state.capture_env_state(model.env)

    def restore(self, state: StateDict) -> None:
        assert self.model.env is not None, "learn() has checked that there is an environment"
        model: Any = self.model
        env_state.restore_env_state(model.env, state, were_reset=model._last_obs is not None)

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
        model: Any = self.model  # SB3 declares what it sets later as None
        if model._last_obs is None:
            return None
        states = model._last_lstm_states
        return {
            "actor": list(states.pi),
            "critic": list(states.vf),
            "observations": observations.to_state(model._last_obs),
            "original_observations": observations.to_state(model._last_original_obs),
            "episode_starts": torch.as_tensor(model._last_episode_starts),
        }

    def restore(self, state: StateDict) -> None:
        fields: Any = state
        device = self.model.device
        self.model._last_lstm_states = RNNStates(
            tuple(t.to(device) for t in fields["actor"]), tuple(t.to(device) for t in fields["critic"])
        )
        self.model._last_obs = observations.from_state(fields["observations"])
        self.model._last_original_obs = observations.from_state(fields["original_observations"])
        self.model._last_episode_starts = fields["episode_starts"].cpu().numpy()

    def check(self, state: StateDict) -> None:
        """Refuse what no rollout of this model could start from."""
        lstm = self.model.policy.lstm_actor
        state_checks.check_lstm(state, self.model.observation_space, (lstm.num_layers, lstm.hidden_size))
        environments, starts = self.model.pending_state.get("env_state"), state["episode_starts"]
        if environments is not None and env_state.number_of_envs(environments) != len(starts):  # type: ignore[arg-type]
            raise StateError("lstm_state and env_state are of different numbers of environments; the state is damaged")


def forget_lstm_states(states: MutableMapping[str, Any]) -> None:
    """Make the LSTM states of a captured ``lstm_state`` zero; its observations and episode starts stay."""
    state = states.get("lstm_state")
    if state is not None:
        zeros = {name: [torch.zeros_like(tensor) for tensor in state[name]] for name in ("actor", "critic")}
        states["lstm_state"] = {**state, **zeros}


class GeneratorState(_Component):
    """The global generators of Python, NumPy and torch, which actions and minibatches are drawn from."""

    def capture(self) -> StateDict | None:
        return capture_generators()

    def restore(self, state: StateDict) -> None:
        apply_generators(state)


OPTIMIZER_SETTINGS = {"learning_rate", "critic_lr_multiplier", "optimizer_class", "optimizer_kwargs", "policy_kwargs"}
RAW = Moments(0.0, 1.0)
"""The scale of values in units of the return."""
SCALER_SETTINGS = {name for name in PPOSettings.model_fields if name.startswith("vgs_")}


def under_settings(
    model: DistributionalPPO, state: Mapping[str, Any], ruling: Collection[str], saved_optimizer: object
) -> dict[str, Any]:
    """The state with the model's settings in place of its own, as far as they are named in ``ruling``.

    :param saved_optimizer: the ``optimizer_class`` under which ``state`` was saved
    :raises StateError: if a part does not fit, or a weight is NaN or infinite
    """
    state_checks.check_weights(state.get("policy"))
    fitted = dict(state)
    scaler = fitted.get("vgs_state")
    if isinstance(scaler, dict) and scaler.get("estimator") in [*ESTIMATORS, *REMOVED_ESTIMATORS]:
        ruled = {name.removeprefix("vgs_"): getattr(model, name) for name in SCALER_SETTINGS.intersection(ruling)}
        other_estimator = ruled.get("estimator", scaler["estimator"]) != scaler["estimator"]
        fitted["vgs_state"] = None if other_estimator else {**scaler, **ruled}
    penalty = fitted.get("kl_penalty_state")
    if "kl_penalty_coef" in ruling and isinstance(penalty, dict):
        fitted["kl_penalty_state"] = {**penalty, "coefficient": model.kl_penalty_coef}
    if OPTIMIZER_SETTINGS.intersection(ruling) and isinstance(fitted.get("policy.optimizer"), dict):
        fitted["policy.optimizer"] = _refitted_optimizer(model, fitted["policy.optimizer"], saved_optimizer)
    if model.return_scale is None and isinstance(fitted.get("return_scale_state"), dict):
        fitted = _in_raw_units(model, fitted)
    return fitted


def _in_raw_units(model: DistributionalPPO, state: dict[str, Any]) -> dict[str, Any]:
    """The state without its return scale, whose effect the critics' output layers take over: the same raw values."""
    saved = read_state(state["return_scale_state"])
    if not isinstance(state.get("policy"), dict):
        return state
    converted = _with_rescaled_critics(model, state, Moments(saved["mean_snapshot"], saved["std_snapshot"]), RAW)
    return {**converted, "return_scale_state": None}


def in_kept_units(model: DistributionalPPO, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Parameters learnt in raw units, with critics that say the same under the scale that the model keeps."""
    in_raw_units = "return_scale_state" in state and state["return_scale_state"] is None
    if model.return_scale is None or not in_raw_units or not isinstance(state.get("policy"), dict):
        return state
    return _with_rescaled_critics(model, state, RAW, model.value_scale.snapshot)


def _with_rescaled_critics(
    model: DistributionalPPO, state: Mapping[str, Any], before: Moments, after: Moments
) -> dict[str, Any]:
    """The state with critics that say under ``after`` what its own said under ``before``, and utilities to match.

    Utilities match where errors exceed ``huber_kappa``, as gradients then have one size in any unit. Where they are
    smaller, gradients are in proportion to the unit; the averages of the optimizer forget those of the old one.
    """
    policy = _rescaled_policy(model, state["policy"], before, after)
    saved, optimizer = state.get("policy.optimizer"), model.policy.optimizer
    if not isinstance(optimizer, UtilityGatedOptimizer) or not isinstance(saved, dict):
        return {**state, "policy": policy}
    optimizer_state.check_optimizer(saved, optimizer)
    outputs = [each for layer in model.policy.value_net.output_layers() for each in layer.parameters()]
    factor = before.std / after.std
    fitted = upgd_state.with_rescaled_utilities(saved, optimizer.param_groups, outputs, factor)
    return {**state, "policy": policy, "policy.optimizer": fitted}


def _rescaled_policy(
    model: DistributionalPPO, given: StateDict, before: Moments, after: Moments
) -> dict[str, torch.Tensor]:
    """Parameters whose critics say under ``after`` what the given ones said under ``before``."""
    own = model.policy.state_dict()
    state_checks.check_policy(given, own)
    policy: dict[str, Any] = dict(given)  # type: ignore[arg-type]
    outputs = {id(layer) for layer in model.policy.value_net.output_layers()}
    for layer in (name for name, module in model.policy.named_modules() if id(module) in outputs):
        names = (f"{layer}.weight", f"{layer}.bias")
        weight, bias = rescaled(policy[names[0]], policy[names[1]], before, after)
        policy |= {name: tensor.to(own[name].dtype) for name, tensor in zip(names, (weight, bias), strict=True)}
    return policy


def warn_of_refused_statistics(given: Mapping[str, Any], fitted: Mapping[str, Any]) -> None:
    """Say that the statistics of another estimator were not taken, where nothing else will."""
    if given.get("vgs_state") is not None and fitted.get("vgs_state") is None:
        warn_caller(
            "vgs_state was measured by another vgs_estimator than the model's, so it is not taken; the model keeps the "
            "statistics that it has, which were measured under other weights",
            ResumeWarning,
        )


def _refitted_optimizer(model: DistributionalPPO, saved: dict[Any, Any], saved_optimizer: object) -> dict[Any, Any]:
    """The saved moments under the model's own options; none where they are another optimizer's or do not suffice."""
    own: dict[Any, Any] = model.policy.optimizer.state_dict()
    other = find_optimizer(model.optimizer_class) is not find_optimizer(saved_optimizer)
    if other or _lacks_moments(saved, model.policy.optimizer):
        warn_caller(
            f"the saved moments{f' of {saved_optimizer!r}' if other else ''} are of no use to "
            f"{model.optimizer_class!r} under its present options: it starts fresh",
            ResumeWarning,
        )
        return {**own, "state": {}}
    optimizer_state.check_optimizer(saved, model.policy.optimizer)
    pairs = zip(saved["param_groups"], own["param_groups"], strict=True)
    ruling = {"lr", "seed"} & {"lr", *model.optimizer_kwargs}
    groups = [{**theirs, **{name: mine[name] for name in ruling}} for theirs, mine in pairs]
    return {**saved, "param_groups": groups}


def _lacks_moments(saved: dict[Any, Any], optimizer: torch.optim.Optimizer) -> bool:
    """Whether an option is on now without which the saved moments were complete."""
    entries = saved.get("state")
    if not optimizer_state.is_dict_of_dicts(entries):
        return False
    common = [set(entry) for entry in entries.values() if entry]
    whole = all(names == common[0] for names in common)
    return whole and bool(optimizer_state.missing_moments(entries, optimizer))


def capture_generators() -> StateDict:
    """The state of Python's, NumPy's and torch's global generators."""
    version, internal, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(internal), gauss],
        "numpy": [torch.from_numpy(np.asarray(keys).astype(np.int64)), int(position), int(has_gauss), float(cached)],
        "torch": torch.get_rng_state(),
        "cuda": list(torch.cuda.get_rng_state_all()) if torch.cuda.is_available() else [],
    }


def apply_generators(state: StateDict) -> None:
    """Set the global generators to a state captured by ``capture_generators``."""
    fields: Any = state
    version, internal, gauss = fields["python"]
    random.setstate((version, tuple(internal), gauss))
    keys, position, has_gauss, cached = fields["numpy"]
    np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(fields["torch"].cpu())
    if fields["cuda"] and torch.cuda.device_count() == len(fields["cuda"]):
        torch.cuda.set_rng_state_all([t.cpu() for t in fields["cuda"]])


def _plain_numbers(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {key: _plain_numbers(value) for key, value in entry.items()}
    if isinstance(entry, np.ndarray):
        return entry.tolist()
    return entry.item() if isinstance(entry, np.generic) else entry
