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
        facts,
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
    "facts",
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
    "Observation": "rlverify.records.measured",
    **dict.fromkeys(["Planted", "healthy", "null_fault_of", "plant"], "rlverify.project.planting"),
}
"""Of every other name it is `rlverify.project.registry`."""


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for, so that `rlverify.checks` loads nothing of the audit."""
    if name == "__version__":
        return import_module("importlib.metadata").version("rlverify")  # slow to import
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "rlverify.project.registry")), name)
