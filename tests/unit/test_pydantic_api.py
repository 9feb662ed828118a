"""INT-02: nothing uses what pydantic 2 deprecates, by what is imported and by what is written."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [
    path for room in ("rlcore", "rlverify", "verification", "tests") for path in sorted((ROOT / room).rglob("*.py"))
]
OLD_NAMES = {"validator", "root_validator", "parse_obj_as", "parse_raw_as", "BaseSettings"}


def old_names(source: str) -> set[str]:
    """Return what a source imports of the API of pydantic 1."""
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    of_pydantic = [node for node in imports if (node.module or "").partition(".")[0] == "pydantic"]
    return {alias.name for node in of_pydantic for alias in node.names} & OLD_NAMES


def test_no_source_uses_the_api_of_pydantic_1_but_the_fault_that_re_injects_it() -> None:
    assert len(SOURCES) > 100
    found = {path: names for path in SOURCES if (names := old_names(path.read_text()))}
    assert {(path.parent.name, path.name): names for path, names in found.items()} == {
        ("faults", "settings.py"): {"root_validator"}
    }


def test_importing_everything_warns_of_nothing() -> None:
    script = (
        "import importlib, importlib.util, pkgutil, rlcore, rlverify, verification\n"
        "rooms = (rlcore, rlverify, verification)\n"
        "names = [m.name for p in rooms for m in pkgutil.walk_packages(p.__path__, p.__name__ + '.')]\n"
        "left_out = () if importlib.util.find_spec('ray') else ('rlcore.tune', 'rlverify.running.ray_executor')\n"
        "for name in names:\n"
        "    if not name.endswith('__main__') and name not in left_out: importlib.import_module(name)\n"
        "print(len(names) > 80)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
