"""Known bugs in changing the settings of a live model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore import DistributionalPPO
from rlverify import fault, healthy

ATOMS = ("num_atoms", "v_min", "v_max")


@fault("int-05-atoms-change-live", target="rlcore.ppo.live:_placed", pins="d7ed782c79a0cac1", area="values")
def atoms_change_live(hyperparams: Mapping[str, Any], present: Any) -> dict[str, Any]:
    """Let a mutation change the support of a categorical distribution like any other setting."""
    others = {name: value for name, value in hyperparams.items() if name not in ATOMS}
    placed: dict[str, Any] = healthy("int-05-atoms-change-live")(others, present)
    return {**placed, **{name: hyperparams[name] for name in ATOMS if name in hyperparams}}


@fault(
    "fnd-70-told-when-it-is-changed",
    target="rlcore.ppo.live:SettingsChange.warn_of_losses",
    pins="3664a86b4d191a27",
)
def told_when_it_is_changed(self: Any, model: DistributionalPPO, state: Mapping[str, Any]) -> None:
    """Warn about lost state after the change, so that an error does not undo it."""
    self.apply(model)
    healthy("fnd-70-told-when-it-is-changed")(self, model, state)
