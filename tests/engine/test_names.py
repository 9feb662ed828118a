"""Names and imports in the engine: no two public classes or modules share a name, and the checks import little."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "rlverify").rglob("*.py"))
OF_THIS_REPOSITORY = (r"rlcore", r"\bverification[./\"`]", r"\.venv/bin", r"\b00[0-4]\b", r"audited system")
CONTENT = sorted((ROOT / "verification").rglob("*.py"))


def public_classes(path: Path) -> Iterator[str]:
    """Classes and type aliases at the top of a module."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
            yield ast.unparse(node.target)


def shared(places: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_two_public_classes_share_a_name() -> None:
    places = defaultdict(list)
    for path in (*SOURCES, *CONTENT):
        for name in public_classes(path):
            places[name].append(str(path.relative_to(ROOT)))
    assert len(places) > 60
    assert shared(places) == {}


def test_no_two_modules_or_packages_of_the_engine_share_a_name() -> None:
    places = defaultdict(list)
    for path in SOURCES:
        name = path.parent.name if path.name == "__init__.py" else path.stem
        places[name].append(str(path.relative_to(ROOT)))
    assert len(places) > 60
    assert shared(places) == {}


@pytest.mark.parametrize("pattern", OF_THIS_REPOSITORY)
def test_the_engine_names_nothing_of_this_repository(pattern: str) -> None:
    files = [*SOURCES, *sorted((ROOT / "rlverify").rglob("*.j2"))]
    assert [str(each.relative_to(ROOT)) for each in files if re.search(pattern, each.read_text(encoding="utf-8"))] == []


def test_the_checks_import_neither_torch_nor_pydantic() -> None:
    code = "import sys, rlverify.checks; print(*sorted({'torch', 'pydantic', 'stable_baselines3'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
