"""Known bugs of the optimizers, and faults that no document claims."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from rlcore.optim import noise, upgd_step
from rlcore.optim.upgd_step import Coefficients, Scalar, Update, UtilityExtremes, bias_correction
from rlverify import fault, healthy, unclaimed


@fault("bug-05-zero-over-zero", target="rlcore.optim.upgd:UPGD._gate_scale", pins="f5f0101fb8ec0c32")
def zero_over_zero(self: Any, extremes: UtilityExtremes) -> Scalar:  # noqa: ARG001
    """Use sigmoid(u / max u) for every maximum, in all optimizers: 0/0 where every utility is 0."""
    return extremes.maximum


@fault("bug-05-fixed-in-upgd-only", target="rlcore.optim.upgd:AdaptiveUPGD._gate_scale", pins="f5f0101fb8ec0c32")
def fixed_in_upgd_only(self: Any, extremes: UtilityExtremes) -> Scalar:  # noqa: ARG001
    """Leave AdaptiveUPGD without the guard that UPGD has."""
    return extremes.maximum


@fault(
    "bug-06-maximum-starts-at-minus-infinity",
    target="rlcore.optim.upgd:UPGD._gate_scale",
    pins="f5f0101fb8ec0c32",
)
def maximum_starts_at_minus_infinity(self: Any, extremes: UtilityExtremes) -> Scalar:
    """Start the maximum at -inf and raise it tensor by tensor, as the published implementation does."""
    maximum = -math.inf
    for update in _updates_of(self):
        maximum = max(maximum, float(_corrected_utility(update).max()))
    like = extremes.maximum
    own = torch.as_tensor(maximum, dtype=like.dtype, device=like.device) if isinstance(like, Tensor) else maximum
    scale: Scalar = healthy("bug-06-maximum-starts-at-minus-infinity")(self, replace(extremes, maximum=own))
    return scale


def _updates_of(optimizer: Any) -> list[Update]:
    """The updates of the present step, whose averages have been moved."""
    return [
        Update(parameter, parameter.grad, group, optimizer.state[parameter], 0)
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None and parameter.numel() > 0
    ]


def _corrected_utility(update: Update) -> Tensor:
    correction = bias_correction(update.group["beta_utility"], int(update.state["step"]))
    utility: Tensor = update.state["utility"] / correction
    return utility


@fault(
    "fnd-28-negative-maximum-inverts-protection",
    target="rlcore.optim.upgd:utility_scale",
    pins="25aaadc2912115b0",
)
def negative_maximum_inverts_protection(extremes: UtilityExtremes) -> Scalar:
    """Divide u by every nonzero max u. If it is negative, the least useful weight gets the largest ratio."""
    return 1.0 if extremes.maximum == 0 else extremes.maximum


@fault(
    "fnd-29-maximum-of-uncorrected-averages",
    target="rlcore.optim.upgd:UPGD._gate_scale",
    pins="f5f0101fb8ec0c32",
)
def maximum_of_uncorrected_averages(self: Any, extremes: UtilityExtremes) -> Scalar:  # noqa: ARG001
    """Divide bias-corrected utilities by a maximum that is not bias-corrected."""
    uncorrected = upgd_step.utility_extremes([update.state["utility"] for update in _updates_of(self)])
    scale: Scalar = healthy("fnd-29-maximum-of-uncorrected-averages")(self, uncorrected)
    return scale


@fault(
    "fnd-30-infinite-gradient-reaches-the-maximum",
    target="rlcore.optim.upgd:UPGD._update",
    pins="0051a00710ab5fdf",
)
def infinite_gradient_reaches_the_maximum(self: Any, updates: Sequence[Update]) -> None:
    """Apply the published rule: refuse no gradient, limit nothing, divide u by any max u."""
    self._complete(updates)
    for update in updates:
        update.count(self._averages)
        beta, utility = update.group["beta_utility"], update.state["utility"]
        utility.mul_(beta).add_(-update.gradient * update.parameter, alpha=1 - beta)
    maximum = torch.stack([_corrected_utility(update).max() for update in updates]).max()
    for update in updates:
        lr, weight_decay = update.group["lr"], update.group["weight_decay"]
        direction = _unlimited_direction(update)
        if update.group["sigma"] > 0:
            direction = direction + _noise(self, update, direction)
        change = direction * (1 - torch.sigmoid(_corrected_utility(update) / maximum))
        update.parameter.mul_(1 - lr * weight_decay).add_(change, alpha=-lr)


def _noise(optimizer: Any, update: Update, direction: Tensor) -> Tensor:
    size, step, seed = direction.numel(), update.state["step"], update.group["seed"]
    (drawn,) = noise.normal([size], [update.index], [step], seed)
    draw: Tensor = drawn.to(direction.dtype).view(direction.shape)
    if not optimizer._adapts(update.group):
        return draw.mul(update.group["sigma"])
    adapted: Tensor = draw * optimizer._noise_std(update, upgd_step.root_mean_square(direction))
    return adapted


def _unlimited_direction(update: Update) -> Tensor:
    """Return g, or m_hat / (sqrt(v_hat) + eps) if the optimizer has Adam's moments."""
    if "betas" not in update.group:
        return update.gradient
    state, gradient = update.state, update.gradient
    first_beta, second_beta = update.group["betas"]
    state["first_moment"].mul_(first_beta).add_(gradient, alpha=1 - first_beta)
    state["second_moment"].mul_(second_beta).add_(gradient.square(), alpha=1 - second_beta)
    mean = state["first_moment"] / (1 - first_beta ** state["moment_step"])
    root = (state["second_moment"] / (1 - second_beta ** state["moment_step"])).sqrt()
    direction: Tensor = mean / (root + update.group["eps"])
    return direction


@fault(
    "fnd-31-averages-only-of-a-fresh-state",
    target="rlcore.optim.upgd:UPGD._complete",
    pins="fb8af8db7505d9ac",
)
def averages_only_of_a_fresh_state(self: Any, updates: Sequence[Update]) -> None:
    """Create averages only when a parameter is first seen, not when a setting needs them later."""
    healthy("fnd-31-averages-only-of-a-fresh-state")(self, [update for update in updates if not update.state])


@fault(
    "fnd-32-noise-average-starts-at-one",
    target="rlcore.optim.upgd:initial_average",
    pins="231b710a1a13aed6",
)
def noise_average_starts_at_one(name: str, parameter: Tensor) -> Tensor:
    """Start the average for adaptive noise at 1, but correct it as if it started at 0."""
    initial: Tensor = healthy("fnd-32-noise-average-starts-at-one")(name, parameter)
    return initial.fill_(1.0) if name == "direction_rms" else initial


@fault(
    "fnd-33-noise-follows-the-norm",
    target="rlcore.optim.upgd:UPGD._noise_std",
    pins="6d0f820dd28f71f4",
)
def noise_follows_the_norm(self: Any, update: Update, rms: Tensor) -> Scalar:
    """Make noise proportional to the norm of the direction instead of its root mean square."""
    std: Scalar = healthy("fnd-33-noise-follows-the-norm")(self, update, rms * math.sqrt(update.gradient.numel()))
    return std


@unclaimed(
    "state-in-the-precision-of-the-parameter",
    target="rlcore.optim.upgd_step:state_dtype",
    pins="036f4f3d97708dbf",
)
def state_in_the_precision_of_the_parameter(parameter: Tensor) -> torch.dtype:
    """Keep averages in 16 bits, where a decay of 0.999 can leave them unchanged."""
    return parameter.dtype


@unclaimed("noise-adaptive-unasked", target="rlcore.optim.upgd:UPGD._adapts", pins="20e9c3cc65e4d412")
def noise_adaptive_unasked(self: Any, group: dict[str, Any]) -> bool:  # noqa: ARG001
    """Make noise follow the step even if that is not requested, without a floor."""
    group["min_noise_std"] = 0.0
    return bool(group["sigma"] > 0)


@fault(
    "fnd-37-noise-follows-the-gradient",
    target="rlcore.optim.upgd:UPGD._noise_std",
    pins="6d0f820dd28f71f4",
)
def noise_follows_the_gradient(self: Any, update: Update, rms: Tensor) -> Scalar:  # noqa: ARG001
    """Make adaptive noise proportional to the gradient, even where the step does not depend on its scale."""
    gradient = upgd_step.root_mean_square(update.gradient)
    std: Scalar = healthy("fnd-37-noise-follows-the-gradient")(self, update, gradient)
    return std


@unclaimed(
    "direction-of-the-mean-alone", target="rlcore.optim.upgd:AdaptiveUPGD._coefficients", pins="80ec2578c1fe6fb0"
)
def direction_of_the_mean_alone(self: Any, update: Update) -> Coefficients:
    """Do not divide the averaged gradient by the root of its averaged square."""
    coefficients: Coefficients = healthy("direction-of-the-mean-alone")(self, update)
    return coefficients._replace(root_factor=0.0, eps=1.0)


@fault("fnd-55-norm-not-asked-for", target="rlcore.ppo.losses:clip_norm", pins="3f91bd7200a18ad8")
def norm_not_asked_for(
    parameters: Iterable[tuple[str, nn.Parameter]],
    max_norm: float,
    known: float = 0.0,  # noqa: ARG001
) -> None:
    """Check that gradients are finite, but not that their norm is."""
    torch.nn.utils.clip_grad_norm_([parameter for _, parameter in parameters], max_norm)


@fault(
    "fnd-63-utilities-left-as-they-were",
    target="rlcore.optim.upgd:UPGD.rescale_utilities",
    pins="e0b4f43e29bab6fc",
)
def utilities_left_as_they_were(self: Any, parameters: Iterable[Tensor], factor: float) -> None:
    """Correct weights without correcting their utilities."""
