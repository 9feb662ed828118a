"""An adaptive penalty on the divergence of the new policy from the one that acted."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

from rlcore.errors import SettingError
from rlcore.state.schema import read_number, read_record
from rlcore.types import StateDict

if TYPE_CHECKING:
    from rlcore.ppo.settings import PPOSettings

TOLERANCE = 1.5
"""How far the divergence may be from its target, as a factor, before the coefficient moves."""
STEP = 2.0
"""The factor by which it moves."""


class KLPenaltySettings(Protocol):
    """What :class:`KLPenalty` reads anew at every update; the names are those of ``PPOSettings``."""

    kl_penalty_target: float | None
    kl_penalty_coef: float
    kl_penalty_min_coef: float
    kl_penalty_max_coef: float


class KLPenalty:
    """The coefficient of KL(pi_old || pi) in the loss (Schulman et al. 2017, "Proximal Policy Optimization", sec. 4).

    After an update with divergence d the coefficient is doubled if d > 1.5 * target and halved if d < target / 1.5,
    within its bounds. d is the mean over the minibatches of the last epoch, which of all that is measured anyway comes
    nearest to the policy that the update ends with.

    It goes together with ``target_kl``, which stops an update where the penalty only holds it back.

    :param settings: the model, or anything else with these settings
    """

    def __init__(self, settings: KLPenaltySettings) -> None:
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
        """Whether a target was asked for."""
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
            self.last_kl = min(sys.float_info.max, kl)  # in this order it is the largest number for NaN as well

    def capture(self) -> StateDict | None:
        """Coefficient and last divergence; None where no target was asked for."""
        return {"coefficient": self.coefficient, "last_kl": self.last_kl} if self.is_on else None

    def restore(self, state: StateDict) -> None:
        """Take the coefficient over, within the present bounds; without a target it has no effect.

        :raises StateError: if it is no finite number of at least 0; nothing is changed
        """
        record = read_record(state, "kl_penalty_state", ("coefficient", "last_kl"))
        coefficient = read_number(record["coefficient"], "kl_penalty_state['coefficient']", 0.0)
        last_kl = record["last_kl"]
        self.last_kl = None if last_kl is None else read_number(last_kl, "kl_penalty_state['last_kl']", 0.0)
        self._adapted = self._bounded(coefficient)

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
        return min(max(coefficient, self.settings.kl_penalty_min_coef), self.settings.kl_penalty_max_coef)


def check_settings(settings: PPOSettings) -> None:
    """
    :raises SettingError: if the bounds do not contain the coefficient, or ``target_kl`` stops every update before the
        divergence could reach the target of the penalty
    """
    low, start, high = settings.kl_penalty_min_coef, settings.kl_penalty_coef, settings.kl_penalty_max_coef
    if not low <= start <= high:
        raise SettingError(
            "kl_penalty_coef",
            f"kl_penalty_coef={start!r} does not lie between kl_penalty_min_coef={low!r} and "
            f"kl_penalty_max_coef={high!r}, so it could never hold; give a start within the bounds",
        )
    target, stop = settings.kl_penalty_target, settings.target_kl
    if target is not None and stop is not None and stop <= target:
        raise SettingError(
            "kl_penalty_target",
            f"target_kl={stop!r} stops an update before its divergence could grow beyond "
            f"kl_penalty_target={target!r}, so the penalty could only fall; give a larger target_kl, or one of the two",
        )
