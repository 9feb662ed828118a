"""rlverify re-injects known bugs and proves that the checks which should catch them do.

What the modules of a verification project need is importable from here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlverify.project.planting import Planted, healthy, null_fault_of, plant
    from rlverify.project.registry import (
        Fault,
        Line,
        Plot,
        add_fault,
        experiment,
        fault,
        figure_plot,
        get_fault,
        page,
        probe,
        unclaimed,
    )
    from rlverify.records.measured import Observation

__all__ = [
    "Fault",
    "Line",
    "Observation",
    "Planted",
    "Plot",
    "add_fault",
    "experiment",
    "fault",
    "figure_plot",
    "get_fault",
    "healthy",
    "null_fault_of",
    "page",
    "plant",
    "probe",
    "unclaimed",
]

_HOMES = {
    "Fault": "rlverify.project.registry",
    "Line": "rlverify.project.registry",
    "Observation": "rlverify.records.measured",
    "Planted": "rlverify.project.planting",
    "Plot": "rlverify.project.registry",
    "add_fault": "rlverify.project.registry",
    "experiment": "rlverify.project.registry",
    "fault": "rlverify.project.registry",
    "figure_plot": "rlverify.project.registry",
    "get_fault": "rlverify.project.registry",
    "healthy": "rlverify.project.planting",
    "null_fault_of": "rlverify.project.planting",
    "page": "rlverify.project.registry",
    "plant": "rlverify.project.planting",
    "probe": "rlverify.project.registry",
    "unclaimed": "rlverify.project.registry",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for, so that `rlverify.checks` loads nothing of the audit."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
