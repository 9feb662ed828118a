"""Whether the settings use deprecated pydantic validators."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Sequence

from pydantic.warnings import PydanticDeprecationWarning

from rlcore import TrainingConfig
from rlverify import Observation, probe
from verification.probes.make import Make, equal

MODULES = ("rlcore.ppo.settings", "rlcore.pbt.hyperparams", "rlcore.run.config_file")
"""Modules that define settings."""
RUN = {"environment": {"id": "CartPole-v1"}, "algorithm": {"n_steps": 32, "batch_size": 32}, "total_timesteps": 64}


@probe("settings-use-no-deprecated-validator")
def settings_use_no_deprecated_validator(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Execute the settings modules again and read a run configuration. Count the deprecation warnings."""
    deprecated = {
        "deprecation warnings while the settings modules are imported": _deprecations(_import_again),
        "deprecation warnings while a run configuration is read": _deprecations(
            lambda: TrainingConfig.from_mapping(RUN)
        ),
    }
    observations = [
        Observation(symptom, "none", _counted(found), holds=found == 0) for symptom, found in deprecated.items()
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PydanticDeprecationWarning)
        steps = TrainingConfig.from_mapping(RUN).algorithm.n_steps
    return [*observations, equal("n_steps of the run configuration that was read", 32, steps)]


def _deprecations(action: Callable[[], object]) -> int:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return sum(issubclass(warning.category, PydanticDeprecationWarning) for warning in caught)


def _import_again() -> None:
    """Execute the modules again, without replacing those in use."""
    for name in MODULES:
        spec = importlib.util.find_spec(name)
        assert spec is not None, "the settings modules exist"
        assert spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _counted(found: int) -> str:
    return "some" if found else "none"
