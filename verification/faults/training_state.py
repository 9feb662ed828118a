"""Known bugs of the registry of training state, and ways to break it that no document claims."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rlcore.checkpoint import FORMAT_V1, Checkpoint
from rlcore.checkpoint.training_state import Scope, StatePart
from rlcore.ppo import components
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.types import StateDict
from verification.faults import fault, healthy, unclaimed


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


@unclaimed(
    "failed-update-left-as-it-is",
    target="rlcore.ppo.algorithm:DistributionalPPO.train",
    pins="d17696238bd532b1",
)
def failed_update_left_as_it_is(self: Any) -> None:
    """An update that fails keeps the steps that it had made."""
    self._update()
    self._boundary = None


@fault(
    "fnd-36-normalizer-stays-behind",
    target="rlcore.ppo.components:NormalizerState.restore",
    pins="24cecb3db0ca4510",
)
def normalizer_stays_behind(self: Any, state: StateDict) -> None:
    """Weights arrive, the statistics that their observations were normalised with do not."""


@unclaimed(
    "half-restored",
    target="rlcore.checkpoint.training_state:TrainingState._put_back",
    pins="fbf296125fc58c48",
)
def half_restored(self: Any, states: Mapping[str, StateDict | None]) -> None:
    """A state that is refused in the middle leaves what came before it."""


@unclaimed("settings-of-the-source", target="rlcore.ppo.components:under_settings", pins="101aff84255c3c63")
def settings_of_the_source(
    model: DistributionalPPO,  # noqa: ARG001
    state: Mapping[str, Any],
    ruling: Collection[str],  # noqa: ARG001
    saved_optimizer: object,  # noqa: ARG001
) -> dict[str, Any]:
    """What is restored brings the settings along under which it was measured."""
    return dict(state)


@fault("fnd-41-third-format-accepted", target="rlcore.checkpoint.loading:from_payload", pins="b6003b118b34374e")
def third_format_accepted(payload: StateDict) -> Checkpoint:
    """The proposed dict is read for the policy that is in it."""
    if "model_state_dict" in payload:
        return Checkpoint(FORMAT_V1, {"policy": payload["model_state_dict"]}, None, None)
    checkpoint: Checkpoint = healthy("fnd-41-third-format-accepted")(payload)
    return checkpoint
