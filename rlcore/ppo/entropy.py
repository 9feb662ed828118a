"""The weight of the entropy bonus: constant or linear, with a floor, raised while the critics explain nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rlcore.errors import SettingError
from rlcore.state.schema import read_count, read_record
from rlcore.types import StateDict

if TYPE_CHECKING:
    from rlcore.ppo.settings import PPOSettings


class EntropySettings(Protocol):
    """What :class:`EntropySchedule` reads anew at every update; the names are those of ``PPOSettings``."""

    ent_coef: float
    ent_coef_final: float | None
    ent_coef_min: float
    ent_coef_boost: float | None
    ent_coef_plateau_explained_variance: float
    ent_coef_plateau_patience: int


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

    def __init__(self, settings: EntropySettings) -> None:
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
        patience, threshold = self._patience(), self.settings.ent_coef_plateau_explained_variance
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
        decayed = self._floored(self._decayed(remaining))
        return decayed * self._boost()

    def capture(self) -> StateDict | None:
        """The counters; None without boost, as everything else follows from settings and progress."""
        if self.settings.ent_coef_boost is None:
            return None
        return {"bad_updates": self.bad_updates, "boost_level": self.boost_level}

    def restore(self, state: StateDict) -> None:
        """Take the counters over under the present settings; without boost they have no effect.

        :raises StateError: if they are no counts; nothing is changed
        """
        record = read_record(state, "entropy_state", ("bad_updates", "boost_level"))
        counts = {name: read_count(value, f"entropy_state[{name!r}]") for name, value in record.items()}
        self.bad_updates, self.boost_level = counts["bad_updates"], counts["boost_level"]

    def _decayed(self, remaining: float) -> float:
        start, final = self.settings.ent_coef, self.settings.ent_coef_final
        return start if final is None else start * remaining + final * (1.0 - remaining)

    def _floored(self, coefficient: float) -> float:
        return max(coefficient, self.settings.ent_coef_min)

    def _boost(self) -> float:
        boost, patience = self.settings.ent_coef_boost, self._patience()
        return 1.0 if boost is None else float(boost ** (min(self.boost_level, patience) / patience))

    def _patience(self) -> int:
        return self.settings.ent_coef_plateau_patience


def resolve_start(settings: PPOSettings) -> float:
    """The coefficient that training starts from: ``ent_coef`` or ``ent_coef_initial``, which mean the same, else 0.

    :raises SettingError: if both are given and differ, or if a final value has no start
    """
    start, initial = settings.ent_coef, settings.ent_coef_initial
    if start is not None and initial is not None and start != initial:
        raise SettingError(
            "ent_coef_initial",
            f"ent_coef={start!r} and ent_coef_initial={initial!r} contradict each other; give one of them",
        )
    given = initial if start is None else start
    if given is None and settings.ent_coef_final is not None:
        raise SettingError(
            "ent_coef_final",
            f"ent_coef_final={settings.ent_coef_final!r} is where a schedule ends, and none begins; "
            "give ent_coef_initial as well, or the constant ent_coef instead",
        )
    return 0.0 if given is None else given
