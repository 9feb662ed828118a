"""Coefficients of the loss that change while training: the entropy bonus and the KL penalty."""

from __future__ import annotations

import sys
from typing import Any

from rlcore.state.tree import NOT_NEGATIVE, Rule, fit
from rlcore.types import StateDict


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
