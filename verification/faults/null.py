"""Faults that override and change nothing, one for each area: a check that notices one of them cries wolf."""

from __future__ import annotations

from typing import Any

from verification.faults import fault, healthy


@fault("null-losses", target="rlcore.ppo.losses:valid_predictions", pins="f5c22ea66f562e4a", area="losses")
def losses(predictions: Any, mask: Any) -> Any:
    """Drops the padding, as the healthy code does."""
    return healthy("null-losses")(predictions, mask)


@fault(
    "null-learning-rate",
    target="rlcore.ppo.algorithm:DistributionalPPO._update_learning_rate",
    pins="daee9ba9f2ab41fb",
    area="learning_rate",
)
def learning_rate(self: Any, optimizers: Any) -> Any:
    """Sets the scheduled rate, as the healthy code does."""
    return healthy("null-learning-rate")(self, optimizers)


@fault(
    "null-optimizers",
    target="rlcore.optim.upgd:UtilityGatedOptimizer._protection",
    pins="00540e0dfa1d4ef4",
    area="optimizers",
)
def optimizers(self: Any, utility: Any, extremes: Any) -> Any:
    """Guards the division, as the healthy code does."""
    return healthy("null-optimizers")(self, utility, extremes)


@fault(
    "null-scaler",
    target="rlcore.optim.scaler:VarianceGradientScaler.update_parameters",
    pins="ecda64dc06bc76e8",
    area="scaler",
)
def scaler(self: Any, parameters: Any) -> Any:
    """Relinks and keeps the statistics, as the healthy code does."""
    return healthy("null-scaler")(self, parameters)


@fault(
    "null-training-state",
    target="rlcore.ppo.algorithm:DistributionalPPO._state_parts",
    pins="7cf117ba7bf25a52",
    area="training_state",
)
def training_state(self: Any) -> Any:
    """Names every part, as the healthy code does."""
    return healthy("null-training-state")(self)
