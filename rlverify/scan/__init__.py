"""Finds what trusts its input: calls that unpickle, and checkpoint files that would execute something.

`scan` and the records that it returns run without torch. `load_parameters_safely` restores a model of
Stable-Baselines3 without unpickling.
"""

from rlverify.scan.findings import RULES, ScanFinding, ScanRule
from rlverify.scan.safe_loading import RestoredParameters, load_parameters_safely
from rlverify.scan.scanning import scan

__all__ = ["RULES", "RestoredParameters", "ScanFinding", "ScanRule", "load_parameters_safely", "scan"]
