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

COMMANDS = (
    "list --json",
    "show TOY-02 --json",
    "reproduce TOY-02 --json",
    "audit TOY-02 --json",
    "gate TOY-02 --json -",
    "gate TOY-02 --json FILE",
    "report --json",
    "report --check --json",
    "report --format json",
    "matrix --fault clip-one-sided --json",
    "reproduce FIG-GAIN --json",
    "reproduce FIG-BETTER --all --json",
    "pilot FIG-GAIN --seeds 2 --json",
)


@pytest.mark.parametrize("words", COMMANDS)
def test_json_has_its_schema_version(words: str, toy: Command, tmp_path: Path) -> None:
    of_figures = {"project": PROJECTS / "figureproject"} if "FIG" in words else {}
    options = ("--reports", tmp_path / "reports") if "FIG" in words else ()
    output = toy(*words.replace("FILE", str(tmp_path / "file")).split(), *options, **of_figures)[1]
    text = (tmp_path / "file").read_text(encoding="utf-8") if "FILE" in words else output
    assert json.loads(text)["schema_version"] == 1


def test_every_command_that_gives_json_is_tried() -> None:
    known = get_command(app).commands  # type: ignore[attr-defined]
    giving = {name for name, command in known.items() if any("--json" in each.opts for each in command.params)}
    assert giving == {words.split()[0] for words in COMMANDS} | {"check"}  # which have tests of their own
