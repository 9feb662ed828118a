"""Imports here what a first process imported, so that the processes after it need not.

Libraries import much of themselves on first use: making a first optimizer of torch takes over a second of imports,
which every process would repeat. Only installed libraries are imported, since a caller's own modules may do anything.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
import warnings
from collections.abc import Iterable
from pathlib import Path

from rlverify.checks.random_state import kept
from rlverify.records.attempts import attempt


def installed_modules() -> set[str]:
    """Names of the imported modules that belong to installed libraries or to Python."""
    folders = tuple(str(Path(sysconfig.get_path(name))) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    modules = ((name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items()))
    return {name for name, file in modules if file is not None and file.startswith(folders)}


def preload(names: Iterable[str]) -> None:
    """Import modules that are not imported yet; one that cannot be imported is left out."""
    with warnings.catch_warnings(), kept():
        warnings.simplefilter("ignore")
        for name in names:
            if name not in sys.modules and "__main__" not in name:
                attempt(lambda name=name: importlib.import_module(name))  # type: ignore[misc]
