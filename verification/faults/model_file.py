"""Known bugs of what is saved of a model."""

from __future__ import annotations

from typing import Any

from rlcore import PPOSettings
from verification.faults import fault, healthy


@fault("bug-08-closures-saved", target="rlcore.ppo.model_file:ModelFile.__getstate__", pins="2b2611df7c5256b7")
def closures_saved(self: Any) -> dict[str, Any]:
    """Schedules are saved as closures over the model instead of what they were made from."""
    content: dict[str, Any] = healthy("bug-08-closures-saved")(self)
    closures = {
        "learning_rate": lambda remaining: self.lr_schedule(remaining),
        "clip_range": lambda remaining: self.clip_range(remaining),
    }
    return {**content, "settings": {**content["settings"], **closures}}


@fault("bug-08-fix-saves-defaults", target="rlcore.ppo.model_file:ModelFile.__getstate__", pins="2b2611df7c5256b7")
def fix_saves_defaults(self: Any) -> dict[str, Any]:
    """What stood in the closures is left out, so that the second phase builds it from the defaults."""
    content: dict[str, Any] = healthy("bug-08-fix-saves-defaults")(self)
    lost = {name: PPOSettings.model_fields[name].default for name in ("clip_range", "critic_lr_multiplier")}
    return {**content, "settings": {**content["settings"], **lost}}
