"""Known bugs of the registry of training state."""

from __future__ import annotations

from typing import Any

from rlcore.checkpoint.training_state import Scope, StatePart
from rlcore.ppo import components
from verification.faults import fault, healthy


@fault(
    "bug-10-scaler-state-not-saved",
    target="rlcore.ppo.algorithm:DistributionalPPO._state_parts",
    pins="7cf117ba7bf25a52",
)
def scaler_state_not_saved(self: Any) -> list[StatePart]:
    """The scaler's statistics have no name in what is saved and restored."""
    parts: list[StatePart] = healthy("bug-10-scaler-state-not-saved")(self)
    return [part for part in parts if part.key != "vgs_state"]


@fault(
    "bug-10-fix-state-among-the-parameters",
    target="rlcore.ppo.algorithm:DistributionalPPO._state_parts",
    pins="7cf117ba7bf25a52",
)
def state_among_the_parameters(self: Any) -> list[StatePart]:
    """get_parameters() gives the scaler's state and set_parameters() takes it; one that is absent resets nothing."""
    parts: list[StatePart] = healthy("bug-10-fix-state-among-the-parameters")(self)
    scaler = components.ScalerState(self)
    taken = StatePart("vgs_state", Scope.LEARNER, scaler.capture, scaler.restore)
    return [taken if part.key == "vgs_state" else part for part in parts]
