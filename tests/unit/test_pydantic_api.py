"""INT-02: nothing uses what pydantic 2 deprecates, by what is imported and by what is written."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [
    path for room in ("rlcore", "rlverify", "verification", "tests") for path in sorted((ROOT / room).rglob("*.py"))
]
OLD_IMPORTS = {"validator", "root_validator", "parse_obj_as", "parse_raw_as", "BaseSettings", "v1"}
OLD_METHODS = {"parse_obj", "parse_raw", "parse_file", "from_orm", "construct", "update_forward_refs", "__fields__"}


def old_names(source: str) -> set[str]:
    """What a source takes from the API of pydantic 1."""
    tree = ast.parse(source)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pydantic":
            names = {alias.name for alias in node.names} | set((node.module or "").split("."))
            found |= names & OLD_IMPORTS
        if isinstance(node, ast.Attribute) and node.attr in OLD_METHODS:
            found.add(node.attr)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pydantic":
            found |= {node.attr} & OLD_IMPORTS
        if isinstance(node, ast.ClassDef) and any(
            isinstance(part, ast.ClassDef) and part.name == "Config" for part in node.body
        ):
            found.add("Config")
    return found


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from pydantic import validator", "validator"),
        ("from pydantic import BaseModel, root_validator as check", "root_validator"),
        ("from pydantic.v1 import BaseModel", "v1"),
        ("import pydantic\n@pydantic.root_validator(pre=True)\ndef f(): ...", "root_validator"),
        ("Model.parse_obj({})", "parse_obj"),
        ("class Model(BaseModel):\n    class Config:\n        frozen = True", "Config"),
    ],
)
def test_the_scan_finds_what_it_looks_for(source: str, name: str) -> None:
    assert old_names(source) == {name}


def test_no_source_uses_the_api_of_pydantic_1_but_the_one_that_puts_it_back() -> None:
    assert len(SOURCES) > 100
    found = {path: names for path in SOURCES if (names := old_names(path.read_text()))}
    # Settings are broken there on purpose, to see that somebody notices.
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
