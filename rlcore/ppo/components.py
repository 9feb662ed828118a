"""What DistributionalPPO's training state consists of, piece by piece."""

from __future__ import annotations

import random
import warnings
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.running_mean_std import RunningMeanStd

from rlcore import env_state
from rlcore.checkpoint.training_state import Scope, StatePart
from rlcore.errors import ResumeWarning, StateError
from rlcore.ppo.optimizers import find_optimizer
from rlcore.types import StateDict

if TYPE_CHECKING:
    from rlcore.ppo.algorithm import DistributionalPPO


def state_parts(model: DistributionalPPO) -> list[StatePart]:
    """Every piece of ``model``'s training state, in the order in which it is restored."""
    policy, optimizer, scaler = PolicyState(model), OptimizerState(model), ScalerState(model)
    normalizer, progress = NormalizerState(model), ProgressState(model)
    environments, position, generators = EnvState(model), LstmState(model), GeneratorState(model)
    return [
        StatePart("policy", Scope.LEARNER, policy.capture, policy.restore, required=True),
        StatePart("policy.optimizer", Scope.LEARNER, optimizer.capture, optimizer.restore, required=True),
        StatePart("vgs_state", Scope.LEARNER, scaler.capture, scaler.restore, scaler.reset),
        StatePart(
            "normalizer_state",
            Scope.LEARNER,
            normalizer.capture,
            normalizer.restore,
            normalizer.reset,
            changes_in_rollout=True,
        ),
        StatePart("progress_state", Scope.PROGRESS, progress.capture, progress.restore, changes_in_rollout=True),
        StatePart("env_state", Scope.RUN, environments.capture, environments.restore, changes_in_rollout=True),
        StatePart("lstm_state", Scope.RUN, position.capture, position.restore, changes_in_rollout=True),
        StatePart("rng_state", Scope.RUN, generators.capture, generators.restore, changes_in_rollout=True),
    ]


class _Component:
    def __init__(self, model: DistributionalPPO) -> None:
        self.model = model


class PolicyState(_Component):
    """The network's parameters and buffers."""

    def capture(self) -> StateDict | None:
        return {name: tensor for name, tensor in self.model.policy.state_dict().items()}  # noqa: C416

    def restore(self, state: StateDict) -> None:
        expected = self.model.policy.state_dict()
        _require_keys("policy", state, set(expected))
        for name, tensor in expected.items():
            given = state[name]
            if not isinstance(given, torch.Tensor) or given.shape != tensor.shape:
                found = tuple(given.shape) if isinstance(given, torch.Tensor) else type(given).__name__
                raise StateError(
                    f"policy[{name!r}] has shape {found}, the model's has {tuple(tensor.shape)}; "
                    "load it into a model with the same network sizes"
                )
        self.model.policy.load_state_dict(state)  # type: ignore[arg-type]


class OptimizerState(_Component):
    """The optimizer's moments, utilities and groups."""

    def capture(self) -> StateDict | None:
        state: StateDict = self.model.policy.optimizer.state_dict()  # type: ignore[assignment]
        return state

    def restore(self, state: StateDict) -> None:
        self._check(state)
        self.model.policy.optimizer.load_state_dict(state)  # type: ignore[arg-type]

    def _check(self, state: StateDict) -> None:
        _require_keys("policy.optimizer", state, {"state", "param_groups"})
        groups: Any = state["param_groups"]
        own = self.model.policy.optimizer.param_groups
        if not isinstance(groups, list) or not all(isinstance(g, dict) and "params" in g for g in groups):
            raise StateError(
                "policy.optimizer['param_groups'] must be a list of dicts with 'params'; the state is damaged"
            )
        sizes, own_sizes = [len(g["params"]) for g in groups], [len(g["params"]) for g in own]
        if sizes != own_sizes:
            raise StateError(
                f"policy.optimizer has groups of {sizes} parameters, the model's has {own_sizes}; "
                "load it into a model of the same network"
            )
        for group, own_group in zip(groups, own, strict=True):
            unknown = set(group) - set(own_group) - {"param_names", "initial_lr"}
            if unknown:
                raise StateError(
                    f"policy.optimizer is not the state of a {type(self.model.policy.optimizer).__name__}, which knows "
                    f"no {sorted(map(str, unknown))[:3]}; use the same optimizer_class on both sides"
                )
        keys = [key for group in groups for key in group["params"]]
        index = dict(zip(keys, [p for group in own for p in group["params"]], strict=True))
        entries: Any = state["state"]
        for key, entry in entries.items():
            for name, value in entry.items():
                if isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape != index[key].shape:
                    raise StateError(
                        f"policy.optimizer's {name!r} of parameter {key} has shape {tuple(value.shape)}, "
                        f"the parameter has {tuple(index[key].shape)}"
                    )


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
        scaler.load_state_dict(state)

    def reset(self) -> None:
        scaler = self.model.variance_gradient_scaler
        if scaler is not None:
            scaler.reset_statistics()


class NormalizerState(_Component):
    """The running statistics of VecNormalize; None where the environment has none."""

    def capture(self) -> StateDict | None:
        if self.model.env is None:
            return self.model.pending_state.get("normalizer_state")
        return env_state.capture_normalizer(self.model.env)

    def restore(self, state: StateDict) -> None:
        if self.model.env is None:
            self.model.pending_state["normalizer_state"] = state
        else:
            env_state.restore_normalizer(self.model.env, state)

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

    COUNTERS = ("num_timesteps", "_total_timesteps", "_episode_num", "_n_updates", "_current_progress_remaining")

    def capture(self) -> StateDict | None:
        state: StateDict = {name: getattr(self.model, name) for name in self.COUNTERS}
        for name in ("ep_info_buffer", "ep_success_buffer"):
            window = getattr(self.model, name)
            state[name] = None if window is None else [_plain_numbers(entry) for entry in window]
        return state

    def restore(self, state: StateDict) -> None:
        _require_keys("progress_state", state, {*self.COUNTERS, "ep_info_buffer", "ep_success_buffer"})
        for name in self.COUNTERS:
            setattr(self.model, name, state[name])
        for name in ("ep_info_buffer", "ep_success_buffer"):
            window: Any = state[name]
            setattr(self.model, name, None if window is None else deque(window, maxlen=self.model.stats_window_size))


class _RunComponent(_Component):
    """State that waits until training goes on: restoring it earlier would disturb whoever only evaluates."""

    key: str

    def capture(self) -> StateDict | None:
        waiting = self.model.pending_state.get(self.key)
        return self.present() if waiting is None else waiting

    def restore(self, state: StateDict) -> None:
        self.model.pending_state[self.key] = state

    def present(self) -> StateDict | None:
        raise NotImplementedError


class EnvState(_RunComponent):
    """Where every environment stands; None where one cannot say."""

    key = "env_state"

    def present(self) -> StateDict | None:
        return None if self.model.env is None else env_state.capture_env_state(self.model.env)


class LstmState(_RunComponent):
    """What the next rollout starts from: LSTM states, observations, episode starts."""

    key = "lstm_state"

    def present(self) -> StateDict | None:
        model: Any = self.model  # SB3 declares what it sets later as None
        if model._last_obs is None:
            return None
        states = model._last_lstm_states
        original = model._last_original_obs
        return {
            "actor": list(states.pi),
            "critic": list(states.vf),
            "observations": torch.as_tensor(model._last_obs),
            "original_observations": None if original is None else torch.as_tensor(original),
            "episode_starts": torch.as_tensor(model._last_episode_starts),
        }

    def apply(self, state: StateDict) -> None:
        """Put the states where the next rollout looks for them."""
        fields: Any = state
        device = self.model.device
        self.model._last_lstm_states = RNNStates(
            tuple(t.to(device) for t in fields["actor"]), tuple(t.to(device) for t in fields["critic"])
        )
        self.model._last_obs = fields["observations"].cpu().numpy()
        original = fields["original_observations"]
        self.model._last_original_obs = None if original is None else original.cpu().numpy()
        self.model._last_episode_starts = fields["episode_starts"].cpu().numpy()

    def fits(self, state: StateDict) -> bool:
        """Whether the state is of as many environments as the model has."""
        fields: Any = state
        return len(fields["episode_starts"]) == self.model.n_envs


class GeneratorState(_RunComponent):
    """The global generators of Python, NumPy and torch, which actions, minibatches and noise are drawn from."""

    key = "rng_state"

    def present(self) -> StateDict | None:
        return capture_generators()

    def apply(self, state: StateDict) -> None:
        """Set the global generators."""
        apply_generators(state)


def under_settings(
    model: DistributionalPPO, state: Mapping[str, StateDict | None], changes: Mapping[str, Any], saved_optimizer: object
) -> dict[str, StateDict | None]:
    """The saved state for a model built with changed settings: where the two disagree, the settings rule.

    :param changes: the settings that were changed
    :param saved_optimizer: the ``optimizer_class`` under which ``state`` was saved
    """
    fitted = dict(state)
    scaler: Any = fitted.get("vgs_state")
    ruled: dict[str | int, Any] = {
        name.removeprefix("vgs_"): getattr(model, name) for name in changes if name.startswith("vgs_")
    }
    if model.variance_gradient_scaler is None:
        fitted["vgs_state"] = None
    elif isinstance(scaler, dict):
        other_estimator = ruled.get("estimator", scaler.get("estimator")) != scaler.get("estimator")
        fitted["vgs_state"] = None if other_estimator else {**scaler, **ruled}
    if OPTIMIZER_SETTINGS & set(changes):
        fitted["policy.optimizer"] = _refitted_optimizer(model, fitted.get("policy.optimizer"), saved_optimizer)
    return fitted


OPTIMIZER_SETTINGS = {"learning_rate", "critic_lr_multiplier", "optimizer_class", "optimizer_kwargs", "policy_kwargs"}


def _refitted_optimizer(model: DistributionalPPO, saved: Any, saved_optimizer: object) -> StateDict | None:
    """The saved moments under the model's own options; the model's fresh state where the optimizer is another."""
    own: Any = model.policy.optimizer.state_dict()
    if find_optimizer(model.optimizer_class) is not find_optimizer(saved_optimizer):
        warnings.warn(
            f"the moments of {saved_optimizer!r} are of no use to {model.optimizer_class!r}: it starts fresh",
            ResumeWarning,
            stacklevel=5,
        )
        return own  # type: ignore[no-any-return]
    if not isinstance(saved, dict) or len(saved.get("param_groups", ())) != len(own["param_groups"]):
        return saved  # type: ignore[no-any-return]  # what does not fit is refused when it is restored
    pairs = zip(saved["param_groups"], own["param_groups"], strict=True)
    return {**saved, "param_groups": [{**mine, "params": theirs["params"]} for theirs, mine in pairs]}


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


def _require_keys(key: str, state: StateDict, expected: set[Any]) -> None:
    if set(state) != expected:
        missing, surplus = sorted(map(str, expected - set(state))), sorted(map(str, set(state) - expected))
        raise StateError(
            f"{key} does not fit the model: missing {missing[:3]}{' ...' if len(missing) > 3 else ''}, "
            f"not known {surplus[:3]}{' ...' if len(surplus) > 3 else ''}"
        )
