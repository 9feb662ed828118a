"""Telling a user which setting was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from rlcore.errors import UnknownSettingError

OTHER_NAMES = {
    "use_twin_critics": "n_critics=2",
    "twin_critics": "n_critics=2",
    "vgs_enabled": "variance_gradient_scaling",
    "use_vgs": "variance_gradient_scaling",
    "vgs_warmup": "vgs_warmup_steps",
    "critic_lr": "critic_lr_multiplier",
    "vgs_floor": "vgs_min_scaling_factor",
    "vgs_cap": "vgs_max_normalized_variance",
    "entropy_coef": "ent_coef",
    "value_coef": "vf_coef",
    "env": "the section environment, or env=... where the model is made",
    "device": "--device of the command, or device=... where the model is made",
    "total_timesteps": "learn(total_timesteps=...)",
}


def reject_unknown(given: Iterable[str], where: str, homes: Mapping[str, Sequence[str]]) -> None:
    """Refuse the first name that does not belong ``where`` it was written.

    :param given: the names written there
    :param where: the level, a key of ``homes``
    :param homes: for every level, the names that belong to it
    :raises UnknownSettingError: naming the right place or the nearest name
    """
    for name in given:
        if name not in homes[where]:
            raise UnknownSettingError(
                name if where == "DistributionalPPO" else f"{where}[{name!r}]",
                f"{where} knows no setting {name!r}, so it would have no effect; {_remedy(name, where, homes)}",
            )


def _remedy(name: str, where: str, homes: Mapping[str, Sequence[str]]) -> str:
    elsewhere = [home for home, names in homes.items() if home != where and name in names]
    if elsewhere:
        return f"{name!r} belongs in {elsewhere[0]}"
    if name in OTHER_NAMES:
        return f"use {OTHER_NAMES[name]}"
    for home in (where, *(home for home in homes if home != where)):
        spelt = {known.lower(): known for known in homes[home]}
        nearest = difflib.get_close_matches(name.lower(), spelt, n=1, cutoff=0.6 if home == where else 0.75)
        if nearest:
            return f"did you mean {spelt[nearest[0]]!r}" + (f" in {home}?" if home != where else "?")
    return f"known here: {', '.join(sorted(homes[where])) or 'none'}"
