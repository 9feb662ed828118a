"""rlverify re-injects known bugs and proves that the checks which should catch them do.

What the modules of a verification project need is importable from here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlverify.project.experiments import experiment
    from rlverify.project.faults import Fault, add_fault, fault, get_fault, unclaimed
    from rlverify.project.pages import page
    from rlverify.project.planting import Planted, healthy, null_fault_of, plant
    from rlverify.project.plots import figure_plot
    from rlverify.project.probes import probe
    from rlverify.records.plot_points import Line, Plot
    from rlverify.records.runs import Observation

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
    "Fault": "rlverify.project.faults",
    "Line": "rlverify.records.plot_points",
    "Observation": "rlverify.records.runs",
    "Planted": "rlverify.project.planting",
    "Plot": "rlverify.records.plot_points",
    "add_fault": "rlverify.project.faults",
    "experiment": "rlverify.project.experiments",
    "fault": "rlverify.project.faults",
    "figure_plot": "rlverify.project.plots",
    "get_fault": "rlverify.project.faults",
    "healthy": "rlverify.project.planting",
    "null_fault_of": "rlverify.project.planting",
    "page": "rlverify.project.pages",
    "plant": "rlverify.project.planting",
    "probe": "rlverify.project.probes",
    "unclaimed": "rlverify.project.faults",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for, so that `rlverify.checks` loads nothing of the audit."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
