"""Every JSON object that the command line gives says which version of its schema it has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.main import get_command

from rlverify.cli.app import app
from tests.engine.project_folders import PROJECTS

Command = Callable[..., tuple[int, str, str]]

COMMANDS = [
    ("list", "--json"),
    ("show", "TOY-02", "--json"),
    ("reproduce", "TOY-02", "--json"),
    ("audit", "TOY-02", "--json"),
    ("gate", "TOY-02", "--json", "-"),
    ("report", "--json"),
    ("report", "--check", "--json"),
    ("report", "--format", "json"),
]
OF_FIGURES = [
    ("reproduce", "FIG-GAIN", "--json"),
    ("reproduce", "FIG-BETTER", "--all", "--json"),
    ("pilot", "FIG-GAIN", "--seeds", "2", "--json"),
]
OF_THE_MATRIX = [("matrix", "--fault", "clip-one-sided", "--json")]


def version(output: str) -> int:
    found: int = json.loads(output)["schema_version"]
    return found


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_json_has_its_schema_version(arguments: tuple[str, ...], toy: Command) -> None:
    assert version(toy(*arguments)[1]) == 1


def test_a_json_file_of_the_gate_has_its_schema_version(toy: Command, tmp_path: Path) -> None:
    assert toy("gate", "TOY-02", "--json", tmp_path / "gate.json")[0] == 0
    assert version((tmp_path / "gate.json").read_text(encoding="utf-8")) == 1


@pytest.mark.parametrize("arguments", OF_FIGURES, ids=" ".join)
def test_json_of_figures_has_its_schema_version(arguments: tuple[str, ...], toy: Command, tmp_path: Path) -> None:
    output = toy(*arguments, "--reports", tmp_path / "reports", project=PROJECTS / "figureproject")[1]
    assert version(output) == 1


@pytest.mark.parametrize("arguments", OF_THE_MATRIX, ids=" ".join)
def test_json_of_the_matrix_has_its_schema_version(arguments: tuple[str, ...], toy: Command) -> None:
    assert version(toy(*arguments)[1]) == 1


def test_every_command_that_gives_json_is_tried() -> None:
    known = get_command(app).commands  # type: ignore[attr-defined]
    giving = {name for name, command in known.items() if any("--json" in each.opts for each in command.params)}
    tried = {arguments[0] for arguments in (*COMMANDS, *OF_FIGURES, *OF_THE_MATRIX)}
    assert giving == tried | {"check"}  # which have tests of their own
