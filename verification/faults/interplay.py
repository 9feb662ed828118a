"""Ways in which the components could fail each other, which no document claims."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rlcore.checkpoint import FORMAT_V1, Checkpoint
from rlcore.functional import utility as utility_functions
from rlcore.optim.scaler import Pending
from rlcore.optim.upgd import Update
from rlcore.types import StateDict
from verification.faults import fault, healthy

if TYPE_CHECKING:
    from rlcore.ppo.algorithm import DistributionalPPO


@fault(
    "factor-never-applied",
    target="rlcore.optim.scaler:VarianceGradientScaler._apply",
    pins="f7836e7d4db6d768",
    claimed=False,
)
def factor_never_applied(self: Any, factor: float) -> None:
    """The factor is told and the gradients stay as they were."""


@fault(
    "warm-up-ignored",
    target="rlcore.optim.scaler:VarianceGradientScaler.is_warming_up",
    pins="fafa60d2e47b1b82",
    claimed=False,
)
def warm_up_ignored(self: Any) -> bool:  # noqa: ARG001
    """The scaling acts from the first step, whatever was asked for."""
    return False


@fault(
    "disabled-scaler-acts",
    target="rlcore.optim.scaler:VarianceGradientScaler.scale_gradients",
    pins="44333503afe0a787",
    claimed=False,
)
def disabled_scaler_acts(self: Any) -> float:
    """Nobody asks whether the scaler is enabled, and without statistics it halves."""
    self._measure()
    factor: float = self.get_scaling_factor() if self._settings.enabled else 0.5
    self._apply(factor)
    return factor


@fault(
    "scaler-keeps-every-measurement",
    target="rlcore.optim.scaler:VarianceGradientScaler._commit",
    pins="8d1f7c99dfa195d3",
    claimed=False,
)
def scaler_keeps_every_measurement(self: Any, pending: Pending) -> None:
    """What was measured in a step is never let go."""
    self.__dict__.setdefault("_kept", []).append(pending)
    healthy("scaler-keeps-every-measurement")(self, pending)


@fault(
    "clipped-before-scaled",
    target="rlcore.ppo.algorithm:DistributionalPPO._optimize",
    pins="adcc44f0d9325103",
    claimed=False,
)
def clipped_before_scaled(self: Any, loss: Tensor) -> float:
    """The norm is limited first, and what is measured and scaled is what was left."""
    scaler = self.variance_gradient_scaler
    self.policy.optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
    factor = 1.0 if scaler is None else scaler.scale_gradients()
    self.policy.optimizer.step()
    if scaler is not None:
        scaler.step()
    return factor


@fault(
    "scaler-steps-before-the-optimizer",
    target="rlcore.ppo.algorithm:DistributionalPPO._optimize",
    pins="adcc44f0d9325103",
    claimed=False,
)
def scaler_steps_before_the_optimizer(self: Any, loss: Tensor) -> float:
    """Statistics are committed whether or not the optimizer then makes the step."""
    scaler = self.variance_gradient_scaler
    self.policy.optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    factor = 1.0
    if scaler is not None:
        factor = scaler.scale_gradients()
        scaler.step()
    torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
    self.policy.optimizer.step()
    return factor


@fault(
    "failed-update-left-as-it-is",
    target="rlcore.ppo.algorithm:DistributionalPPO.train",
    pins="d17696238bd532b1",
    claimed=False,
)
def failed_update_left_as_it_is(self: Any) -> None:
    """An update that fails keeps the steps that it had made."""
    self._update()
    self._boundary = None


@fault(
    "nothing-added-to-the-power",
    target="rlcore.optim.scaler:VarianceGradientScaler._normalized_variances",
    pins="31ea421058ba29f1",
    claimed=False,
)
def nothing_added_to_the_power(self: Any) -> Tensor:
    """0/0 for a tensor whose gradient is 0 throughout, which then speaks for all."""
    ratio: Tensor = self._estimator.variance() / self._denominators()
    return ratio.clamp_(max=self._settings.max_normalized_variance)


@fault(
    "factor-falls-with-every-step",
    target="rlcore.optim.scaler:VarianceGradientScaler.get_scaling_factor",
    pins="353974f55cb858c0",
    claimed=False,
)
def factor_falls_with_every_step(self: Any) -> float:
    """The factor drifts towards 0 as steps are counted, below any floor."""
    factor: float = healthy("factor-falls-with-every-step")(self)
    return float(factor * 0.9**self.step_count)


@fault(
    "rate-multiplied-by-the-factor",
    target="rlcore.ppo.algorithm:DistributionalPPO._update_learning_rate",
    pins="daee9ba9f2ab41fb",
    claimed=False,
)
def rate_multiplied_by_the_factor(self: Any, optimizers: list[torch.optim.Optimizer] | torch.optim.Optimizer) -> None:
    """The rate of the schedule is multiplied by the factor of the scaling."""
    healthy("rate-multiplied-by-the-factor")(self, optimizers)
    scaler = self.variance_gradient_scaler
    for group in self.policy.optimizer.param_groups:
        group["lr"] *= 1.0 if scaler is None else scaler.get_scaling_factor()


@fault(
    "second-critic-detached",
    target="rlcore.ppo.policy:Critics.forward",
    pins="380111daee26c79e",
    claimed=False,
)
def second_critic_detached(self: Any, latent: Tensor) -> Tensor:
    """All critics but the first speak and do not learn."""
    first, *others = self.heads
    return torch.stack([first(latent), *(head(latent).detach() for head in others)], dim=1)


@fault(
    "state-in-the-precision-of-the-parameter",
    target="rlcore.optim.upgd_state:state_dtype",
    pins="f72e9ee06781ac23",
    claimed=False,
)
def state_in_the_precision_of_the_parameter(parameter: Tensor) -> torch.dtype:
    """Averages of 16 bits, which stand still under a decay of 0.999."""
    return parameter.dtype


@fault(
    "single-advantage-divided-by-its-deviation",
    target="rlcore.ppo.losses:normalize_advantages",
    pins="64c4066e72526ada",
    claimed=False,
)
def single_advantage_divided_by_its_deviation(advantages: Tensor) -> Tensor:
    """The deviation of one number is NaN."""
    centred = advantages - advantages.mean()
    deviation = (centred.square().sum() / (advantages.numel() - 1)).sqrt()
    return centred / (deviation + 1e-8)


@fault(
    "nothing-committed",
    target="rlcore.optim.scaler:VarianceGradientScaler._commit",
    pins="8d1f7c99dfa195d3",
    claimed=False,
)
def nothing_committed(self: Any, pending: Pending) -> None:
    """What was measured in a step is dropped."""


@fault(
    "normalizer-stays-behind",
    target="rlcore.ppo.components:NormalizerState.restore",
    pins="24cecb3db0ca4510",
    claimed=False,
)
def normalizer_stays_behind(self: Any, state: StateDict) -> None:
    """PPO-03: weights arrive, the statistics that their observations were normalised with do not."""


@fault(
    "half-restored",
    target="rlcore.checkpoint.training_state:TrainingState._put_back",
    pins="86350a0d0ef420e1",
    claimed=False,
)
def half_restored(self: Any, states: Mapping[str, StateDict | None]) -> None:
    """A state that is refused in the middle leaves what came before it."""


@fault("settings-of-the-source", target="rlcore.ppo.components:under_settings", pins="101aff84255c3c63", claimed=False)
def settings_of_the_source(
    model: DistributionalPPO,  # noqa: ARG001
    state: Mapping[str, Any],
    ruling: Collection[str],  # noqa: ARG001
    saved_optimizer: object,  # noqa: ARG001
) -> dict[str, Any]:
    """What is restored brings the settings along under which it was measured."""
    return dict(state)


@fault("third-format-accepted", target="rlcore.checkpoint.loading:from_payload", pins="b6003b118b34374e", claimed=False)
def third_format_accepted(payload: StateDict) -> Checkpoint:
    """The proposed dict is read for the policy that is in it."""
    if "model_state_dict" in payload:
        return Checkpoint(FORMAT_V1, {"policy": payload["model_state_dict"]}, None, None)
    checkpoint: Checkpoint = healthy("third-format-accepted")(payload)
    return checkpoint


@fault(
    "noise-adaptive-unasked",
    target="rlcore.optim.upgd:UtilityGatedOptimizer._noise_std",
    pins="a11720da08c6a85e",
    claimed=False,
)
def noise_adaptive_unasked(self: Any, update: Update, direction: Tensor) -> Tensor | float:
    """Noise follows the step whatever was asked for, down to nothing."""
    group: dict[str, Any] = {**update.group, "min_noise_std": 0.0}
    if not group["adaptive_noise"]:
        return utility_functions.root_mean_square(direction) * float(group["sigma"])
    std: Tensor | float = healthy("noise-adaptive-unasked")(self, replace(update, group=group), direction)
    return std


@fault(
    "noise-follows-the-gradient",
    target="rlcore.optim.upgd:UtilityGatedOptimizer._noise_reference",
    pins="485ff4d222f54651",
    claimed=False,
)
def noise_follows_the_gradient(self: Any, update: Update, direction: Tensor) -> Tensor:  # noqa: ARG001
    """INT-04: adaptive noise in proportion to the gradient, also where the step does not know its scale."""
    return utility_functions.root_mean_square(update.gradient)


@fault(
    "direction-of-the-mean-alone",
    target="rlcore.optim.upgd:AdaptiveUPGD._direction",
    pins="6824f6d1c34a51fd",
    claimed=False,
)
def direction_of_the_mean_alone(self: Any, update: Update) -> Tensor:
    """The average of the gradient is not divided by the root of its power."""
    whole: Tensor = healthy("direction-of-the-mean-alone")(self, update)
    state = self.state[update.parameter]
    mean: Tensor = state["first_moment"] / (1.0 - update.group["betas"][0] ** state["moment_step"])
    return mean.reshape(whole.shape)


@fault("gap-with-its-sign", target="rlcore.ppo.monitoring:_of_values", pins="fa6a904c8e9d7ba9", claimed=False)
def gap_with_its_sign(model: DistributionalPPO) -> Iterator[tuple[str, float]]:
    """The critics' differences cancel each other."""
    signed = float(np.diff(model.rollout_buffer.critic_values, axis=-1).mean())
    figures = healthy("gap-with-its-sign")(model)
    return iter([(key, signed if key == "twin_critics/divergence" else value) for key, value in figures])


@fault(
    "gymnasium-environment-refused",
    target="stable_baselines3.common.base_class:_patch_env",
    pins="8160a47f51a9ec93",
    claimed=False,
)
def gymnasium_environment_refused(env: Any) -> Any:
    """None is good enough."""
    raise ValueError(f"The environment is of type {type(env)}, not a Gymnasium environment")


@fault(
    "second-phase-from-defaults",
    target="rlcore.ppo.algorithm:DistributionalPPO.__init__",
    pins="f3051388ba55787e",
    claimed=False,
)
def second_phase_from_defaults(
    self: Any,
    policy: Any,
    env: Any,
    *,
    device: torch.device | str = "auto",
    _init_setup_model: bool = True,
    **settings: Any,
) -> None:
    """BUG-08: what is built in two phases has lost some of its settings by the second."""
    construct = healthy("second-phase-from-defaults")
    construct(self, policy, env, device=device, _init_setup_model=_init_setup_model, **settings)
    if not _init_setup_model:
        self.clip_range, self.critic_lr_multiplier = 0.2, 1.0
