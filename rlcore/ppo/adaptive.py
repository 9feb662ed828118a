"""What adapts while training: the scale of the returns, the entropy coefficient and the KL penalty.

Critics learn z, and raw values are mean + std * z (van Hasselt et al. 2016, "Learning values across many orders of
magnitude", arXiv:1602.07714, called PopArt below). Rollout, advantages, value clipping and logged values are in raw
units; only the value loss is in units of z.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlcore.errors import NonFiniteReturnError, StateError
from rlcore.state.tree import NOT_NEGATIVE, Rule, fit
from rlcore.types import StateDict

ScaleRule = Literal["zero_lag", "snapshot"]

LARGEST = float(np.finfo(np.float32).max)
"""The largest return that a rollout holds; larger statistics could not be squared."""

RULES = dict.fromkeys(("mean", "mean_snapshot"), Rule(-LARGEST, LARGEST)) | {
    "weight": Rule(0.0, 1.0),
    "variance": Rule(0.0, LARGEST**2),
    "std_snapshot": Rule(sys.float_info.min, LARGEST),
}
"""The ranges of a saved state."""


class Moments(NamedTuple):
    """Mean and standard deviation (> 0), in units of the return."""

    mean: float
    std: float


class ReturnScale:
    """Exponential averages over rollouts of the mean and variance of their returns, bias-corrected.

    Every rollout weighs in proportion to decay^(age), so that the first one counts fully; mean and variance are those
    of this mixture, in float64. Before the first rollout: mean 0, variance 1.

    - ``"zero_lag"`` measures a rollout before the update on it, and corrects the critics so that no raw value changes.
      The optimizer's moments of the corrected layers stay, as gradients of the loss in units of z keep their magnitude.
    - ``"snapshot"``, the audited system's order, trains on a rollout with the scale of the rollout before it. Nothing
      is corrected, so that raw values jump whenever a snapshot is taken: before each rollout and each update.

    :param rule: None for returns as they are: mean 0 and standard deviation 1
    :param decay: in [0, 1); 0 for the last rollout alone
    :param min_std: floor of the standard deviation, > 0, so that constant returns stay finite
    """

    snapshot: Moments
    """The moments that values and targets are scaled with now."""

    def __init__(self, rule: ScaleRule | None = None, decay: float = 0.9, min_std: float = 1e-4) -> None:
        self.rule = rule
        self.decay = decay
        self.min_std = min_std if rule else 0.0
        self.reset()

    def reset(self) -> None:
        """Forget the statistics."""
        self._weight, self._mean, self._variance = 0.0, 0.0, 1.0
        self.activate()

    @property
    def statistics(self) -> Moments:
        """The moments measured so far."""
        return Moments(self._mean, max(math.sqrt(self._variance), self.min_std))

    def normalise(self, returns: Tensor) -> Tensor:
        """Return z of raw returns or values; any shape."""
        return (returns - self.snapshot.mean) / self.snapshot.std

    def denormalise(self, values: Tensor) -> Tensor:
        """Return raw values of z; any shape."""
        return self.snapshot.mean + self.snapshot.std * values

    def update(self, returns: NDArray[Any]) -> None:
        """Measure the returns of one rollout, at least one, of any shape and finite; the snapshot stays."""
        exact = returns.astype(np.float64)
        mean, variance = float(exact.mean()), float(exact.var())
        self._weight = self.decay * self._weight + 1.0 - self.decay
        share = (1.0 - self.decay) / self._weight
        between = share * (1.0 - share) * (mean - self._mean) ** 2
        self._variance = (1.0 - share) * self._variance + share * variance + between
        self._mean = (1.0 - share) * self._mean + share * mean

    def activate(self) -> None:
        """Scale with the present statistics from now on."""
        self.snapshot = self.statistics

    def before_rollout(self) -> None:
        """Take the present statistics as the scale of the next rollout, if the rule is ``"snapshot"``."""
        if self.rule == "snapshot":
            self.activate()

    def before_update(self, returns: NDArray[Any], output_layers: Iterable[nn.Linear]) -> float:
        """Measure a rollout before the update on it, and correct the critics for the new scale, by the rule.

        :param returns: the returns of the rollout, any shape
        :param output_layers: the layer of every critic that puts out z
        :return: the factor that the weights of these layers were multiplied by, as their utilities must be
        """
        self.before_rollout()
        if self.rule != "zero_lag":
            return 1.0
        before = self.snapshot
        self.update(returns)
        self.activate()
        for layer in output_layers:
            preserve_outputs(layer, before, self.snapshot)
        return before.std / self.snapshot.std

    def after_update(self, returns: NDArray[Any]) -> None:
        """Measure the rollout that was trained on, if the rule is ``"snapshot"``."""
        if self.rule == "snapshot":
            self.update(returns)

    def state_dict(self) -> StateDict | None:
        """Return the statistics; None without a rule."""
        statistics: StateDict = {"weight": self._weight, "mean": self._mean, "variance": self._variance}
        now: StateDict = {"mean_snapshot": self.snapshot.mean, "std_snapshot": self.snapshot.std}
        return statistics | now if self.rule else None

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the statistics, or raise StateError and change nothing."""
        if self.rule is None:
            raise StateError("return_scale_state is given, and return_scale=None; pass exact_match=False to go without")
        fitted = fit(state, self.state_dict(), "return_scale_state", RULES)
        self._weight, self._mean, self._variance = (fitted[name] for name in ("weight", "mean", "variance"))
        self.snapshot = Moments(fitted["mean_snapshot"], fitted["std_snapshot"])


def preserve_outputs(layer: nn.Linear, before: Moments, after: Moments) -> None:
    """Change a linear layer so that its raw outputs under ``after`` are those under ``before``.

    W' = sigma / sigma' W and b' = (sigma b + mu - mu') / sigma' (PopArt, proposition 1), in float64.
    """
    scale, shift = before.std / after.std, (before.mean - after.mean) / after.std
    with torch.no_grad():
        layer.weight.copy_(scale * layer.weight.double())
        layer.bias.copy_(scale * layer.bias.double() + shift)


def require_finite(returns: NDArray[Any]) -> None:
    """
    :param returns: the returns of a rollout, any shape
    :raises NonFiniteReturnError: for NaN or infinity
    """
    finite = np.isfinite(returns)
    if not finite.all():
        raise NonFiniteReturnError(
            f"{int((~finite).sum())} of {returns.size} returns of the rollout are NaN or infinite; look at the rewards "
            "and observations of the environment (VecCheckNan finds the step). Nothing was changed."
        )


class EntropySchedule:
    """The coefficient of one update, in the order decay, floor, boost::

        c = max(floor, start * remaining + final * (1 - remaining)) * boost^(level / patience)

    ``patience`` bad updates in a row raise ``level`` from 0 to ``patience``; every update that is not bad takes it one
    down. An update is bad if the explained variance of its own rollout is below the threshold.

    :param settings: the model, or anything else with its settings as attributes
    """

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.reset()

    def reset(self) -> None:
        """Forget all updates."""
        self.bad_updates = self.boost_level = 0

    def observe(self, explained_variance: float) -> None:
        """Count an update by the explained variance of its rollout; NaN (all returns equal) changes nothing."""
        if self.settings.ent_coef_boost is None:
            return
        patience, threshold = self.settings.ent_coef_plateau_patience, self.settings.ent_coef_plateau_explained_variance
        if explained_variance < threshold:
            self.bad_updates += 1
            if self.bad_updates >= patience:
                self.boost_level = patience
        elif explained_variance >= threshold:
            self.bad_updates = 0
            self.boost_level = max(0, min(self.boost_level, patience) - 1)

    def coefficient(self, remaining: float) -> float:
        """Return c, where ``remaining`` is the progress that remains, from 1 to 0."""
        return self._floored(self._decayed(remaining)) * self._boost()

    def capture(self) -> StateDict | None:
        """Return the counters; None without boost, as everything else follows from settings and progress."""
        counts: StateDict = {"bad_updates": self.bad_updates, "boost_level": self.boost_level}
        return None if self.settings.ent_coef_boost is None else counts

    def restore(self, state: StateDict) -> None:
        """Restore the counters, or raise StateError and change nothing; without boost they have no effect."""
        vars(self).update(fit(state, {"bad_updates": 0, "boost_level": 0}, "entropy_state"))

    def _decayed(self, remaining: float) -> float:
        start, final = self.settings.ent_coef, self.settings.ent_coef_final
        return float(start if final is None else start * remaining + final * (1.0 - remaining))

    def _floored(self, coefficient: float) -> float:
        return float(max(coefficient, self.settings.ent_coef_min))

    def _boost(self) -> float:
        boost, patience = self.settings.ent_coef_boost, self.settings.ent_coef_plateau_patience
        return 1.0 if boost is None else float(boost ** (min(self.boost_level, patience) / patience))


class KLPenalty:
    """The coefficient of KL(pi_old || pi) in the loss (Schulman et al. 2017, "Proximal Policy Optimization", sec. 4).

    After an update with divergence d, the mean over the minibatches of its last epoch, the coefficient is doubled if
    d > 1.5 * target and halved if d < target / 1.5, within its bounds.

    :param settings: the model, or anything else with its settings as attributes
    """

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.reset()

    def reset(self) -> None:
        """Start from ``kl_penalty_coef`` again, and forget the last divergence."""
        self.move_to(self.settings.kl_penalty_coef)
        self.last_kl: float | None = None

    def move_to(self, coefficient: float) -> None:
        """Go on from a coefficient, within the present bounds; wider bounds later do not bring it back."""
        low, high = self.settings.kl_penalty_min_coef, self.settings.kl_penalty_max_coef
        self.adapted = float(min(max(coefficient, low), high))

    @property
    def coefficient(self) -> float:
        """The coefficient within its bounds; 0 without ``kl_penalty_target``."""
        return 0.0 if self.settings.kl_penalty_target is None else self.adapted

    def adapt(self, kl: float) -> None:
        """Move the coefficient once, after an update.

        :param kl: in nats; infinity and NaN count as the largest number, and less than 0, by rounding, as 0
        """
        target = self.settings.kl_penalty_target
        if target is not None:
            factor = 2.0 if not kl <= 1.5 * target else 0.5 if kl < target / 1.5 else 1.0
            self.move_to(factor * self.adapted)
            self.last_kl = max(0.0, min(sys.float_info.max, kl))

    def capture(self) -> StateDict | None:
        """Return coefficient and last divergence; None without ``kl_penalty_target``."""
        state: StateDict = {"coefficient": self.adapted, "last_kl": self.last_kl}
        return None if self.settings.kl_penalty_target is None else state

    def restore(self, state: StateDict) -> None:
        """Restore the coefficient, within the present bounds, or raise StateError and change nothing."""
        rules = {"coefficient": NOT_NEGATIVE, "last_kl": Rule(0.0, optional=True)}
        fitted = fit(state, {"coefficient": 0.0, "last_kl": 0.0}, "kl_penalty_state", rules)
        self.move_to(fitted["coefficient"])
        self.last_kl = fitted["last_kl"]
