"""Known bugs of the optimizers, and ways to break them that no document claims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from rlcore.functional import utility as utility_functions
from rlcore.functional.utility import UtilityExtremes
from rlcore.optim.upgd_state import Averages
from rlcore.optim.upgd_updates import Update
from rlverify import fault, healthy, unclaimed


def _unguarded_gate(utility: Tensor, extremes: UtilityExtremes) -> Tensor:
    """sigmoid(u / max u), whatever the maximum: 0/0 where every utility is 0."""
    return torch.sigmoid(utility / extremes.maximum)


@fault("bug-05-zero-over-zero", target="rlcore.optim.upgd:UtilityGatedOptimizer._protection", pins="3cdfb68f5373e625")
def zero_over_zero(self: Any, utility: Tensor, extremes: UtilityExtremes) -> Tensor:  # noqa: ARG001
    """No guard, in any of the optimizers."""
    return _unguarded_gate(utility, extremes)


@fault("bug-05-fixed-in-upgd-only", target="rlcore.optim.upgd:AdaptiveUPGD._protection", pins="3cdfb68f5373e625")
def fixed_in_upgd_only(self: Any, utility: Tensor, extremes: UtilityExtremes) -> Tensor:  # noqa: ARG001
    """UPGD got its guard, AdaptiveUPGD did not."""
    return _unguarded_gate(utility, extremes)


@fault(
    "bug-06-maximum-starts-at-minus-infinity",
    target="rlcore.functional.utility:utility_extremes",
    pins="ca17d843c5107589",
)
def maximum_starts_at_minus_infinity(utilities: Sequence[Tensor]) -> UtilityExtremes:
    """The maximum begins at -inf and rises tensor by tensor, as the published implementation has it."""
    extremes: UtilityExtremes = healthy("bug-06-maximum-starts-at-minus-infinity")(utilities)
    start = torch.full_like(utilities[0].new_empty(()), -torch.inf)
    return replace(extremes, maximum=reduce(torch.maximum, (each.max().to(start.device) for each in utilities), start))


@fault(
    "fnd-28-negative-maximum-inverts-protection",
    target="rlcore.functional.utility:utility_scale",
    pins="42bbe3bf50f1848d",
)
def negative_maximum_inverts_protection(extremes: UtilityExtremes) -> Tensor:
    """u / max u wherever max u is not 0: where it is negative the least useful weight has the largest ratio."""
    return torch.where(extremes.maximum == 0, 1.0, extremes.maximum)


@fault(
    "fnd-29-maximum-of-uncorrected-averages",
    target="rlcore.optim.upgd:UtilityGatedOptimizer._extremes",
    pins="d22e7c4c359d4bad",
)
def maximum_of_uncorrected_averages(self: Any, updates: Sequence[Update]) -> UtilityExtremes:  # noqa: ARG001
    """The utilities are corrected for the zero start of their averages, the maximum that divides them is not."""
    return utility_functions.utility_extremes([update.state["utility"] for update in updates])


@fault(
    "fnd-30-infinite-gradient-reaches-the-maximum",
    target="rlcore.optim.upgd:UtilityGatedOptimizer._update",
    pins="217ff094e0f5523f",
)
def infinite_gradient_reaches_the_maximum(self: Any, updates: Sequence[Update]) -> None:
    """The published rule as it stands: no gradient refused, nothing limited, u divided by max u as it comes."""
    for update in updates:
        self._complete(update)
        beta, state = update.group["beta_utility"], update.state
        state["step"] += 1
        state["utility"].mul_(beta).add_(-update.gradient * update.parameter, alpha=1 - beta)
    maximum = torch.stack([self._utility(update).max() for update in updates]).max()
    for update, noise in zip(updates, self._workspace.noise(updates), strict=True):
        lr, weight_decay = update.group["lr"], update.group["weight_decay"]
        direction = _unlimited_direction(update)
        if noise is not None:
            direction = direction + noise * self._noise_std(update, direction)
        change = direction * (1 - torch.sigmoid(self._utility(update) / maximum))
        update.parameter.mul_(1 - lr * weight_decay).add_(change, alpha=-lr)


def _unlimited_direction(update: Update) -> Tensor:
    """g, or m_hat / (sqrt(v_hat) + eps) where the optimizer has the moments of Adam."""
    if "betas" not in update.group:
        return update.gradient
    state, gradient = update.state, update.gradient
    first_beta, second_beta = update.group["betas"]
    state["moment_step"] += 1
    state["first_moment"].mul_(first_beta).add_(gradient, alpha=1 - first_beta)
    state["second_moment"].mul_(second_beta).add_(gradient.square(), alpha=1 - second_beta)
    mean = state["first_moment"] / (1 - first_beta ** state["moment_step"])
    root = (state["second_moment"] / (1 - second_beta ** state["moment_step"])).sqrt()
    direction: Tensor = mean / (root + update.group["eps"])
    return direction


@fault(
    "fnd-31-averages-only-of-a-fresh-state",
    target="rlcore.optim.upgd:UtilityGatedOptimizer._complete",
    pins="aa5346d45198045b",
)
def averages_only_of_a_fresh_state(self: Any, update: Update) -> None:
    """What a step needs is made when a parameter is first seen, and not when a setting needs it later."""
    if not update.state:
        healthy("fnd-31-averages-only-of-a-fresh-state")(self, update)


@fault(
    "fnd-32-noise-average-starts-at-one",
    target="rlcore.optim.upgd:UtilityGatedOptimizer._initial_average",
    pins="a726bdafc4269f7c",
)
def noise_average_starts_at_one(self: Any, name: str, parameter: Tensor) -> Tensor:
    """The average that adaptive noise follows starts at 1 and is corrected as if it had started at 0."""
    initial: Tensor = healthy("fnd-32-noise-average-starts-at-one")(self, name, parameter)
    return initial.fill_(1.0) if name == "direction_rms" else initial


@fault(
    "fnd-33-noise-follows-the-norm",
    target="rlcore.optim.upgd:UtilityGatedOptimizer._noise_reference",
    pins="485ff4d222f54651",
)
def noise_follows_the_norm(self: Any, update: Update, direction: Tensor) -> Tensor:  # noqa: ARG001
    """Noise in proportion to the norm of the direction instead of its root mean square."""
    norm: Tensor = torch.linalg.vector_norm(direction)
    return norm


@unclaimed(
    "state-in-the-precision-of-the-parameter",
    target="rlcore.optim.upgd_state:state_dtype",
    pins="f72e9ee06781ac23",
)
def state_in_the_precision_of_the_parameter(parameter: Tensor) -> torch.dtype:
    """Averages of 16 bits, which stand still under a decay of 0.999."""
    return parameter.dtype


@unclaimed(
    "noise-adaptive-unasked",
    target="rlcore.optim.upgd:UtilityGatedOptimizer._noise_std",
    pins="71d839867e8e88ce",
)
def noise_adaptive_unasked(self: Any, update: Update, direction: Tensor) -> Tensor | float:
    """Noise follows the step whatever was asked for, down to nothing."""
    group: dict[str, Any] = {**update.group, "min_noise_std": 0.0}
    if not group["adaptive_noise"]:
        return utility_functions.root_mean_square(direction) * float(group["sigma"])
    std: Tensor | float = healthy("noise-adaptive-unasked")(self, replace(update, group=group), direction)
    return std


@fault(
    "fnd-37-noise-follows-the-gradient",
    target="rlcore.optim.upgd:UtilityGatedOptimizer._noise_reference",
    pins="485ff4d222f54651",
)
def noise_follows_the_gradient(self: Any, update: Update, direction: Tensor) -> Tensor:  # noqa: ARG001
    """Adaptive noise in proportion to the gradient, also where the step does not know its scale."""
    return utility_functions.root_mean_square(update.gradient)


@unclaimed(
    "direction-of-the-mean-alone",
    target="rlcore.optim.upgd:AdaptiveUPGD._direction",
    pins="9b070f3b1fbc2ac6",
)
def direction_of_the_mean_alone(self: Any, update: Update) -> Tensor:
    """The average of the gradient is not divided by the root of its power."""
    whole: Tensor = healthy("direction-of-the-mean-alone")(self, update)
    state = update.state
    mean: Tensor = state["first_moment"] / (1.0 - update.group["betas"][0] ** state["moment_step"])
    return mean.reshape(whole.shape)


@fault("fnd-55-norm-not-asked-for", target="rlcore.ppo.gradients:clip_norm", pins="c22df641a2587b1e")
def norm_not_asked_for(parameters: Iterable[tuple[str, nn.Parameter]], max_norm: float) -> None:
    """What every gradient holds is known to be finite, so their norm is taken to be."""
    torch.nn.utils.clip_grad_norm_([parameter for _, parameter in parameters], max_norm)


@fault(
    "fnd-63-utilities-left-as-they-were",
    target="rlcore.optim.upgd:UtilityGatedOptimizer.rescale_utilities",
    pins="fe37106a93f12f93",
)
def utilities_left_as_they_were(self: Any, parameters: Iterable[Tensor], factor: float) -> None:
    """Weights are corrected and their utilities are not."""


@fault(
    "fnd-67-vector-counts-as-its-first",
    target="rlcore.optim.upgd_updates:can_be_bundled",
    pins="6e15ab702f556e7c",
)
def vector_counts_as_its_first(parts: Sequence[Update], averages: Averages) -> bool:
    """Of what the state of a parameter holds only the counters are looked at, whatever else one of them lacks."""
    counted = [
        replace(part, state={name: part.state[name] for name in averages if name in part.state}) for part in parts
    ]
    bundled: bool = healthy("fnd-67-vector-counts-as-its-first")(counted, averages)
    return bundled
