"""Known bugs of changing settings while a model lives."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from verification.faults import fault, healthy

ATOMS = ("num_atoms", "v_min", "v_max")


@fault("int-05-atoms-change-live", target="rlcore.ppo.live_settings:_placed", pins="f2a01b6bc659a0d1", area="values")
def atoms_change_live(
    hyperparams: Mapping[str, Any], known_options: Collection[str], present_options: Mapping[str, Any]
) -> dict[str, Any]:
    """The support of a categorical distribution is mutated like any other setting."""
    others = {name: value for name, value in hyperparams.items() if name not in ATOMS}
    placed: dict[str, Any] = healthy("int-05-atoms-change-live")(others, known_options, present_options)
    return {**placed, **{name: hyperparams[name] for name in ATOMS if name in hyperparams}}
