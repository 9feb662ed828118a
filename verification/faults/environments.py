"""Known bugs in checking environments, and faults that no document claims."""

from __future__ import annotations

from typing import Any

from rlverify import fault, unclaimed


@fault(
    "bug-03-foreign-environment-let-in",
    target="stable_baselines3.common.base_class:_patch_env",
    pins="f06143364d89c76f",
)
def foreign_environment_let_in(env: Any) -> Any:
    """Accept any object, without checking that it is a Gymnasium environment."""
    return env


@unclaimed(
    "gymnasium-environment-refused",
    target="stable_baselines3.common.base_class:_patch_env",
    pins="f06143364d89c76f",
)
def gymnasium_environment_refused(env: Any) -> Any:
    """Refuse every environment."""
    raise ValueError(f"The environment is of type {type(env)}, not a Gymnasium environment")
