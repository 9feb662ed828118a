"""Known bugs of what is saved of a model, and ways to break it that no document claims."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rlcore import PPOSettings
from rlverify import fault, healthy, unclaimed


@fault("bug-08-closures-saved", target="rlcore.ppo.model_file:ModelFile.__getstate__", pins="c68a0b50843f250e")
def closures_saved(self: Any) -> dict[str, Any]:
    """Schedules are saved as closures over the model instead of what they were made from."""
    content: dict[str, Any] = healthy("bug-08-closures-saved")(self)
    closures = {
        "learning_rate": lambda remaining: self.lr_schedule(remaining),
        "clip_range": lambda remaining: self.clip_range(remaining),
    }
    return {**content, "settings": {**content["settings"], **closures}}


@fault("bug-08-fix-saves-defaults", target="rlcore.ppo.model_file:ModelFile.__getstate__", pins="c68a0b50843f250e")
def fix_saves_defaults(self: Any) -> dict[str, Any]:
    """What stood in the closures is left out, so that the second phase builds it from the defaults."""
    content: dict[str, Any] = healthy("bug-08-fix-saves-defaults")(self)
    lost = {name: PPOSettings.model_fields[name].default for name in ("clip_range", "critic_lr_multiplier")}
    return {**content, "settings": {**content["settings"], **lost}}


@unclaimed(
    "second-phase-from-defaults",
    target="rlcore.ppo.configured:ConfiguredPPO._configure",
    pins="3dd9440442c74188",
)
def second_phase_from_defaults(self: Any, given: Mapping[str, Any], asked: Collection[str] = ()) -> None:
    """BUG-08: what is built in two phases has lost some of its settings by the second."""
    healthy("second-phase-from-defaults")(self, given, asked)
    self.clip_range, self.critic_lr_multiplier = 0.2, 1.0
