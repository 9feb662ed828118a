"""Known bugs in saving a model, and faults that no document claims."""

from __future__ import annotations

import inspect
from typing import Any

from stable_baselines3.common.utils import FloatSchedule

from rlcore import PPOSettings
from rlverify import fault, healthy, unclaimed


@fault("bug-08-closures-saved", target="rlcore.ppo.saving:SavablePPO.__getstate__", pins="3da386a47f42df1d")
def closures_saved(self: Any) -> dict[str, Any]:
    """Save schedules as closures over the model instead of the settings they were made from."""
    content: dict[str, Any] = healthy("bug-08-closures-saved")(self)
    closures = {
        "learning_rate": lambda remaining: self.lr_schedule(remaining),
        "clip_range": lambda remaining: self.clip_range(remaining),
    }
    return {**content, "settings": {**content["settings"], **closures}}


@fault("bug-08-fix-saves-defaults", target="rlcore.ppo.saving:SavablePPO.__getstate__", pins="3da386a47f42df1d")
def fix_saves_defaults(self: Any) -> dict[str, Any]:
    """Leave out the settings in the closures, so that the second phase uses the defaults."""
    content: dict[str, Any] = healthy("bug-08-fix-saves-defaults")(self)
    lost = {name: PPOSettings.model_fields[name].default for name in ("clip_range", "critic_lr_multiplier")}
    return {**content, "settings": {**content["settings"], **lost}}


@unclaimed(
    "second-phase-from-defaults",
    target="rlcore.ppo.algorithm:DistributionalPPO._setup_model",
    pins="1045aed7765f627c",
)
def second_phase_from_defaults(self: Any) -> None:
    """Lose some settings in the second phase of construction, as in BUG-08."""
    if not any(frame.filename.endswith("construction.py") for frame in inspect.stack(0)):
        self.clip_range, self.critic_lr_multiplier = FloatSchedule(0.2), 1.0
    healthy("second-phase-from-defaults")(self)
