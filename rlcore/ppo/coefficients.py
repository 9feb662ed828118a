"""Coefficients of the loss that change while training: the entropy bonus and the KL penalty."""

from __future__ import annotations

import sys
from typing import Any

from rlcore.state.tree import NOT_NEGATIVE, Rule, fit
from rlcore.types import StateDict


class EntropySchedule:
    """The coefficient of one update, in the order decay, floor, boost::

        c = max(floor, start * remaining + final * (1 - remaining)) * boost^(level / patience)

    The boost is above 1, so that a second floor after it, which the audited system had, would never act.
    ``patience`` bad updates in a row raise ``level`` from 0 to ``patience``; every update that is not bad takes it one
    down, so the boost decays back in as many updates as it waited for. An update is bad if the explained variance of
    its own rollout is below the threshold: the values that acted are known before the training starts, so nothing lags.
    A coefficient of 0 stays 0 unless a floor above 0 was asked for, which then holds whatever the start.

    :param settings: the model, or anything else with these settings
    """

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.reset()

    def reset(self) -> None:
        """Forget all updates."""
        self.bad_updates = 0
        self.boost_level = 0

    def observe(self, explained_variance: float) -> None:
        """Count an update as bad or not, before its coefficient is asked for.

        :param explained_variance: of the rollout it trains on, at most 1; NaN (all returns equal) says nothing and
            changes nothing
        """
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
        """
        :param remaining: progress that remains, from 1 to 0
        :return: at least the floor, at most max(start, final, floor) * boost
        """
        return self._floored(self._decayed(remaining)) * self._boost()

    def capture(self) -> StateDict | None:
        """The counters; None without boost, as everything else follows from settings and progress."""
        if self.settings.ent_coef_boost is None:
            return None
        return {"bad_updates": self.bad_updates, "boost_level": self.boost_level}

    def restore(self, state: StateDict) -> None:
        """Take the counters over under the present settings; without boost they have no effect.

        :raises StateError: if they are no counts; nothing is changed
        """
        counts = fit(state, {"bad_updates": 0, "boost_level": 0}, "entropy_state")
        self.bad_updates, self.boost_level = counts["bad_updates"], counts["boost_level"]

    def _decayed(self, remaining: float) -> float:
        start: float = self.settings.ent_coef
        final: float | None = self.settings.ent_coef_final
        return start if final is None else start * remaining + final * (1.0 - remaining)

    def _floored(self, coefficient: float) -> float:
        floor: float = self.settings.ent_coef_min
        return max(coefficient, floor)

    def _boost(self) -> float:
        boost, patience = self.settings.ent_coef_boost, self.settings.ent_coef_plateau_patience
        return 1.0 if boost is None else float(boost ** (min(self.boost_level, patience) / patience))


TOLERANCE = 1.5
"""How far the divergence may be from its target, as a factor, before the coefficient moves."""
STEP = 2.0
"""The factor by which it moves."""


class KLPenalty:
    """The coefficient of KL(pi_old || pi) in the loss (Schulman et al. 2017, "Proximal Policy Optimization", sec. 4).

    After an update with divergence d the coefficient is doubled if d > 1.5 * target and halved if d < target / 1.5,
    within its bounds. d is the mean over the minibatches of the last epoch, which of all that is measured anyway comes
    nearest to the policy that the update ends with.

    It goes together with ``target_kl``, which stops an update where the penalty only holds it back.

    :param settings: the model, or anything else with these settings
    """

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.reset()

    def reset(self) -> None:
        """Start from ``kl_penalty_coef`` again, and forget the last divergence."""
        self.restart()
        self.last_kl: float | None = None

    def restart(self) -> None:
        """Start from ``kl_penalty_coef`` again."""
        self._adapted = self.settings.kl_penalty_coef

    @property
    def is_on(self) -> bool:
        """True if the settings have a target."""
        return self.settings.kl_penalty_target is not None

    @property
    def coefficient(self) -> float:
        """Within the bounds; 0 where no target was asked for."""
        return self._bounded(self._adapted) if self.is_on else 0.0

    def adapt(self, kl: float) -> None:
        """Move the coefficient once, after an update.

        :param kl: divergence of the policy that the update ended with, in nats, at least 0; infinite or NaN where
            a ratio overflowed and ``target_kl`` stopped the update, which counts as the largest number: a state is
            finite
        """
        if self.is_on:
            self._adapted = self._bounded(self.coefficient * self._factor(kl))
            # NaN becomes the largest number; an estimate just below 0, which rounding gives, becomes 0
            self.last_kl = max(0.0, min(sys.float_info.max, kl))

    def capture(self) -> StateDict | None:
        """Coefficient and last divergence; None where no target was asked for."""
        return {"coefficient": self.coefficient, "last_kl": self.last_kl} if self.is_on else None

    def restore(self, state: StateDict) -> None:
        """Take the coefficient over, within the present bounds; without a target it has no effect.

        :raises StateError: if it is no finite number of at least 0; nothing is changed
        """
        rules = {"coefficient": NOT_NEGATIVE, "last_kl": Rule(0.0, optional=True)}
        fitted = fit(state, {"coefficient": 0.0, "last_kl": 0.0}, "kl_penalty_state", rules)
        self.last_kl, self._adapted = fitted["last_kl"], self._bounded(fitted["coefficient"])

    def keep_within_bounds(self) -> None:
        """Let go of what lies beyond the present bounds, so that wider ones later do not bring it back."""
        self._adapted = self._bounded(self._adapted)

    def _factor(self, kl: float) -> float:
        target = self.settings.kl_penalty_target
        assert target is not None, "adapt() has checked that there is a target"
        if not kl <= TOLERANCE * target:
            return STEP
        return 1.0 / STEP if kl < target / TOLERANCE else 1.0

    def _bounded(self, coefficient: float) -> float:
        low: float = self.settings.kl_penalty_min_coef
        high: float = self.settings.kl_penalty_max_coef
        return min(max(coefficient, low), high)
