"""rlverify re-injects known bugs and proves that the checks which should catch them do.

What the modules of a verification project need is importable from here.
"""

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
