"""Known bugs of what is handed over as an environment."""

from __future__ import annotations

from typing import Any

from verification.faults import fault


@fault(
    "bug-03-foreign-environment-let-in",
    target="stable_baselines3.common.base_class:_patch_env",
    pins="8160a47f51a9ec93",
)
def foreign_environment_let_in(env: Any) -> Any:
    """Nobody asks whether it is a Gymnasium environment."""
    return env
