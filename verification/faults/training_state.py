"""Known bugs in the registry of training state, and faults that no document claims."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch

from rlcore import ResumeWarning
from rlcore.checkpoint.formats import FORMAT_V1, Checkpoint
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.state.training import LEARNT, Scope, StatePart
from rlcore.state.tree import Rule, fit
from rlcore.types import StateDict
from rlverify import fault, healthy, unclaimed


@fault(
    "bug-10-scaler-state-not-saved",
    target="rlcore.ppo.algorithm:DistributionalPPO._state_parts",
    pins="ae45561019955850",
)
def scaler_state_not_saved(self: Any) -> list[StatePart]:
    """Leave the scaler's statistics out of the parts that are saved and restored."""
    parts: list[StatePart] = healthy("bug-10-scaler-state-not-saved")(self)
    return [part for part in parts if part.key != "vgs_state"]


@fault(
    "bug-10-fix-state-among-the-parameters",
    target="rlcore.ppo.algorithm:DistributionalPPO._state_parts",
    pins="ae45561019955850",
)
def state_among_the_parameters(self: Any) -> list[StatePart]:
    """Put the scaler's state into get_parameters() and set_parameters(). A missing state resets nothing."""
    parts: list[StatePart] = healthy("bug-10-fix-state-among-the-parameters")(self)
    return [
        StatePart(part.key, part.scope, part.capture, part.restore) if part.key == "vgs_state" else part
        for part in parts
    ]


@fault(
    "bug-10-fix-errors-are-logged",
    target="rlcore.ppo.state_parts:restore_scaler",
    pins="8e22894de5898dc5",
)
def errors_are_logged(model: Any, state: StateDict) -> None:
    """Restore the state, and turn every error into a warning: the rest is restored without it."""
    try:
        healthy("bug-10-fix-errors-are-logged")(model, state)
    except Exception as error:  # noqa: BLE001  # as the document has it
        warnings.warn(f"Failed to restore VGS state: {error}", ResumeWarning, stacklevel=2)


@fault(
    "bug-10-state-not-in-the-archive",
    target="rlcore.checkpoint.formats:write_model_file",
    pins="cbb9334c540d7e97",
)
def state_not_in_the_archive(
    path: Any, model: Any, algorithm: str, *, settings: StateDict, state: StateDict, **more: Any
) -> None:
    """Leave the scaler's statistics out of the file of save(), but not out of a pickle."""
    write, without = healthy("bug-10-state-not-in-the-archive"), {**state, "vgs_state": None}
    write(path, model, algorithm, settings=settings, state=without, **more)


@fault(
    "asr-32-kl-penalty-not-saved",
    target="rlcore.ppo.algorithm:DistributionalPPO._state_parts",
    pins="ae45561019955850",
)
def kl_penalty_not_saved(self: Any) -> list[StatePart]:
    """Leave the KL penalty's coefficient out of the parts that are saved and restored."""
    parts: list[StatePart] = healthy("asr-32-kl-penalty-not-saved")(self)
    return [part for part in parts if part.key != "kl_penalty_state"]


@fault(
    "asr-36-a-list-of-its-own",
    target="rlcore.ppo.algorithm:DistributionalPPO.get_parameters",
    pins="6f059b897c98f355",
)
def a_list_of_its_own(self: Any, include_optimizer: bool = True) -> dict[str, Any]:
    """List the parts in get_parameters() by name, as the documented pattern does, so that new parts are missing."""
    named = {"policy", "policy.optimizer", "vgs_state", "kl_penalty_state", "entropy_state", "return_scale_state"}
    parameters: dict[str, Any] = healthy("asr-36-a-list-of-its-own")(self, include_optimizer)
    return {key: state for key, state in parameters.items() if key in {*named, "normalizer_state"}}


@fault(
    "mon-21-lost-without-a-word",
    target="rlcore.state.training:TrainingState._start_fresh",
    pins="9755192ac8765c40",
)
def lost_without_a_word(self: Any, parts: Iterable[StatePart]) -> None:  # noqa: ARG001
    """Start missing parts of a restored state fresh, without a warning."""
    for part in parts:
        if part.capture() is not None:
            part.reset()


@fault(
    "fnd-56-told-when-all-is-changed",
    target="rlcore.state.training:TrainingState.restore",
    pins="a78fc5efc25d9de5",
)
def told_when_all_is_changed(
    self: Any,
    states: Mapping[str, StateDict | None],
    *,
    exact_match: bool = True,
    expected: Collection[Scope] = LEARNT,
    undoes: bool = True,
) -> None:
    """Warn about missing parts after the restore, where an error no longer undoes it."""
    kept = {part.key: part.capture() for part in self.parts.values() if part.scope in LEARNT and not part.required}
    given = {**kept, **{key: state for key, state in states.items() if state is not None}}
    how = {"exact_match": exact_match, "expected": expected, "undoes": undoes}
    healthy("fnd-56-told-when-all-is-changed")(self, given, **how)
    if exact_match:
        lost = [key for key, state in kept.items() if state is not None and states.get(key) is None]
        self._start_fresh(self.parts[key] for key in lost)


@unclaimed(
    "failed-update-left-as-it-is",
    target="rlcore.ppo.algorithm:DistributionalPPO.train",
    pins="7e07064ed4cab5c9",
)
def failed_update_left_as_it_is(self: Any) -> None:
    """Keep the steps of an update that fails."""
    self._update()
    self._boundary = None


@fault(
    "fnd-36-normalizer-stays-behind",
    target="rlcore.ppo.state_parts:restore_normalizer",
    pins="1231542bdc57d75e",
)
def normalizer_stays_behind(model: Any, state: StateDict) -> None:
    """Restore weights without the normaliser's statistics."""


@unclaimed(
    "half-restored",
    target="rlcore.state.training:TrainingState._put_back",
    pins="5d15a9acfbe3cc53",
)
def half_restored(self: Any, states: Mapping[str, StateDict | None]) -> None:
    """Keep the parts restored before one is refused."""


@unclaimed("settings-of-the-source", target="rlcore.ppo.saving:under_settings", pins="f754f2a67dfbd015")
def settings_of_the_source(
    model: DistributionalPPO,  # noqa: ARG001
    state: Mapping[str, Any],
    ruling: Collection[str],  # noqa: ARG001
    saved_optimizer: object,  # noqa: ARG001
) -> dict[str, Any]:
    """Restore a state together with the settings it was measured with."""
    return dict(state)


@fault("fnd-41-third-format-accepted", target="rlcore.checkpoint.formats:from_payload", pins="78a47deb05eaefd4")
def third_format_accepted(payload: StateDict) -> Checkpoint:
    """Read the policy in a checkpoint of the proposed format."""
    if "model_state_dict" in payload:
        return Checkpoint(FORMAT_V1, {"policy": payload["model_state_dict"]}, None, None)
    checkpoint: Checkpoint = healthy("fnd-41-third-format-accepted")(payload)
    return checkpoint


@fault("fnd-69-any-weight-is-taken", target="rlcore.ppo.state_parts:fit", pins="8766db118b33aacd")
def any_weight_is_taken(saved: Any, like: Any, where: str, rules: Any) -> Any:
    """Check names, shapes and types of weights, but not their values."""
    return fit(saved, like, where, {name: Rule(finite=False) for name in like} | dict(rules))


@fault(
    "fnd-72-generator-of-torch-starts-over", target="rlcore.ppo.state_parts:apply_generators", pins="f99a2fa71c399bb9"
)
def generator_of_torch_starts_over(state: StateDict) -> None:
    """Restore the generators of Python and NumPy, but not torch's."""
    before = torch.get_rng_state()
    healthy("fnd-72-generator-of-torch-starts-over")(state)
    torch.set_rng_state(before)
