"""Known bugs of variance gradient scaling, and faults that no document claims."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcore.optim.gradient_variance import LARGEST_ELEMENT, Floats, Integers, Moments, TensorLayout
from rlcore.optim.scaler import Pending
from rlcore.ppo import construction
from rlcore.types import StateDict
from rlverify import fault, healthy, unclaimed


@fault(
    "bug-09-scaler-linked-to-copies",
    target="rlcore.ppo.algorithm:DistributionalPPO._relink_scaler",
    pins="19e591b1ca96e874",
)
def scaler_linked_to_copies(self: Any) -> None:
    """Link the scaler to copies of the parameters after a restore, as unpickling does."""
    if self.variance_gradient_scaler is not None:
        self.variance_gradient_scaler.update_parameters(copy.deepcopy(list(self.policy.parameters())))


@fault(
    "bug-09-fix-parameters-given-anew",
    target="rlcore.ppo.algorithm:DistributionalPPO._relink_scaler",
    pins="19e591b1ca96e874",
)
def parameters_given_anew(self: Any) -> None:
    """Call update_parameters() with the policy's parameters after a load."""
    if self.variance_gradient_scaler is not None:
        self.variance_gradient_scaler.update_parameters(self.policy.parameters())


@fault(
    "fnd-50-scaler-made-anew",
    target="rlcore.ppo.algorithm:DistributionalPPO._relink_scaler",
    pins="19e591b1ca96e874",
)
def scaler_made_anew(self: Any) -> None:
    """Build a new scaler for the policy's parameters after a restore."""
    self.variance_gradient_scaler = construction.make_scaler(self)


@fault(
    "bug-10-relink-wipes-statistics",
    target="rlcore.optim.scaler:VarianceGradientScaler.update_parameters",
    pins="6b612f7fdb0c7e88",
)
def relink_wipes_statistics(self: Any, parameters: Any) -> None:
    """Forget each tensor's statistics when relinking, but keep the step count."""
    healthy("bug-10-relink-wipes-statistics")(self, parameters)
    step_count, averages, global_observations = self._step_count, self._global_averages, self._global_observations
    self._forget()
    self._step_count, self._global_averages, self._global_observations = step_count, averages, global_observations


@fault(
    "bug-04-rebuilding-without-relinking",
    target="rlcore.ppo.algorithm:DistributionalPPO.rebuild_optimizer",
    pins="a3b85f1933039697",
)
def rebuilding_without_relinking(self: Any) -> None:
    """Rebuild the optimizer without relinking the scaler."""
    self.policy.rebuild_optimizer()


@fault(
    "fnd-22-statistics-of-scaled-and-clipped-gradients",
    target="rlcore.optim.scaler:VarianceGradientScaler.step",
    pins="d6b28bf93783f5c4",
)
def statistics_of_scaled_and_clipped_gradients(self: Any) -> None:
    """Measure the gradients in step(), after they have been scaled and clipped."""
    if self._pending is not None:
        self._measure()
    healthy("fnd-22-statistics-of-scaled-and-clipped-gradients")(self)


@fault(
    "fnd-26-spread-over-elements-for-noise",
    target="rlcore.optim.gradient_variance:ElementEstimator.commit",
    pins="dbaf37bb8aa2d836",
)
def spread_over_elements_for_noise(
    self: Any,
    positions: Integers,
    moments: Moments,  # noqa: ARG001
    weights: Floats,
) -> None:
    """Apply the document's option 2: average over time the variance between the elements of a gradient."""
    for position, weight in zip(positions, weights.tolist(), strict=True):
        gradient = self._deviations[position] + self._means[position]
        self._variances[position].mul_(1 - weight).add_(gradient.var(correction=0), alpha=weight)


@fault(
    "fnd-27-difference-of-float32-averages",
    target="rlcore.optim.gradient_variance:ElementEstimator.commit",
    pins="dbaf37bb8aa2d836",
)
def difference_of_float32_averages(
    self: Any,
    positions: Integers,
    moments: Moments,  # noqa: ARG001
    weights: Floats,
) -> None:
    """Compute E[g^2] - E[g]^2 in float32, where the difference of two large numbers is lost."""
    for position, weight in zip(positions, weights.tolist(), strict=True):
        mean, variance = self._means[position], self._variances[position]
        gradient = self._deviations[position] + mean
        square = variance + mean.square()
        square.mul_(1 - weight).add_(gradient.square(), alpha=weight)
        mean.mul_(1 - weight).add_(gradient, alpha=weight)
        variance.copy_(square - mean.square())


@fault(
    "asr-21-published-rule-without-floor",
    target="rlcore.optim.scaler:VarianceGradientScaler.get_scaling_factor",
    pins="cd686098d9e3cf24",
)
def published_rule_without_floor(self: Any) -> float:
    """Compute 1 / (1 + alpha nv) without a cap on nv or a floor on the factor."""
    if not self._settings.enabled or self.is_warming_up:
        return 1.0
    ratios = self._estimator.variance() / (self._denominators() + self._settings.eps)
    return float(1.0 / (1.0 + self._settings.alpha * np.percentile(ratios[self._observations > 0], 90)))


@fault(
    "asr-26-ratio-in-float32",
    target="rlcore.optim.scaler:VarianceGradientScaler._normalized_variances",
    pins="107e1b21a7edd90f",
)
def ratio_in_float32(self: Any) -> Floats:
    """Compute variance / squared mean in float32, where both are infinite for gradients above 1e19."""
    with np.errstate(over="ignore", invalid="ignore"):
        variances, means = self._estimator.variance().astype(np.float32), self._mean.astype(np.float32)
        ratio = variances / (np.square(means) + np.float32(self._settings.eps))
    limited: Floats = np.minimum(ratio, self._settings.max_normalized_variance).astype(np.float64)
    return limited


@unclaimed(
    "factor-never-applied",
    target="rlcore.optim.scaler:VarianceGradientScaler._apply",
    pins="6ddd7a49dee169ce",
)
def factor_never_applied(self: Any, factor: float) -> None:
    """Return the factor without scaling the gradients."""


@fault(
    "warm-up-ignored",
    target="rlcore.optim.scaler:VarianceGradientScaler.is_warming_up",
    pins="f1771f65cfff3d22",
)
def warm_up_ignored(self: Any) -> bool:  # noqa: ARG001
    """Scale from the first step, whatever the warm-up."""
    return False


@unclaimed(
    "disabled-scaler-acts",
    target="rlcore.optim.scaler:VarianceGradientScaler.scale_gradients",
    pins="47cba186b341912c",
)
def disabled_scaler_acts(self: Any) -> float:
    """Scale even if the scaler is disabled, then by 0.5."""
    self._measure()
    factor: float = self.get_scaling_factor() if self._settings.enabled else 0.5
    self._apply(factor)
    return factor


@fault(
    "scaler-keeps-every-measurement",
    target="rlcore.optim.scaler:VarianceGradientScaler._commit",
    pins="fa65b6d077019ee4",
)
def scaler_keeps_every_measurement(self: Any, pending: Pending) -> None:
    """Keep the measurements of every step."""
    self.__dict__.setdefault("_kept", []).append(pending)
    healthy("scaler-keeps-every-measurement")(self, pending)


@fault(
    "nothing-added-to-the-power",
    target="rlcore.optim.scaler:VarianceGradientScaler._normalized_variances",
    pins="107e1b21a7edd90f",
)
def nothing_added_to_the_power(self: Any) -> Floats:
    """Add no eps to the denominator: 0/0 for a tensor with zero gradients, which makes the factor NaN."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio: Floats = self._estimator.variance() / self._denominators()
    limited: Floats = np.minimum(ratio, self._settings.max_normalized_variance)
    return limited


@fault(
    "factor-falls-with-every-step",
    target="rlcore.optim.scaler:VarianceGradientScaler.get_scaling_factor",
    pins="cd686098d9e3cf24",
)
def factor_falls_with_every_step(self: Any) -> float:
    """Let the factor fall towards 0 with every step, below any floor."""
    factor: float = healthy("factor-falls-with-every-step")(self)
    return float(factor * 0.9**self.step_count)


@unclaimed(
    "nothing-committed",
    target="rlcore.optim.scaler:VarianceGradientScaler._commit",
    pins="fa65b6d077019ee4",
)
def nothing_committed(self: Any, pending: Pending) -> None:
    """Drop the measurements of a step."""


@fault(
    "clipped-before-scaled",
    target="rlcore.ppo.algorithm:DistributionalPPO._optimize",
    pins="a156c4d88ff49d55",
)
def clipped_before_scaled(self: Any, loss: Tensor) -> float:
    """Clip the gradients before they are measured and scaled."""
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
    pins="a156c4d88ff49d55",
)
def scaler_steps_before_the_optimizer(self: Any, loss: Tensor) -> float:
    """Commit the statistics before the optimizer's step, even if it then fails."""
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
    "asr-13-averages-not-restored",
    target="rlcore.optim.scaler:VarianceGradientScaler.load_state_dict",
    pins="cf368be6e8865088",
)
def averages_not_restored(self: Any, state: StateDict) -> None:
    """Restore the step count of a state, but not its averages."""
    healthy("asr-13-averages-not-restored")(self, state)
    steps = self._step_count
    self._forget()
    self._step_count = steps


@fault(
    "asr-14-only-the-count-is-reset",
    target="rlcore.optim.scaler:VarianceGradientScaler.reset_statistics",
    pins="a81746975122f671",
)
def only_the_count_is_reset(self: Any) -> None:
    """Reset the step count, but keep the averages."""
    self._step_count = 0


@fault(
    "fnd-68-means-as-large-as-variances", target="rlcore.optim.gradient_variance:_largest_mean", pins="22eba7215c77b946"
)
def means_as_large_as_variances(layout: TensorLayout) -> float:
    """Use the limit of the variances for the means, too."""
    return 4.0 * LARGEST_ELEMENT[layout.state_dtype] ** 2
