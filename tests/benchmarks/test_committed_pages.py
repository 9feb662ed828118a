"""The committed pages and plots of measurements follow from the committed figures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import defaults, effects, learning, plots, scale_page, scale_plots, sensitivity, speed
from benchmarks.cuda import page as cuda_page
from benchmarks.field.page import render_field_report
from benchmarks.field.records import read_field_report, text_of
from tests.engine.reporting.records import PROJECT

MEASURED = Path(PROJECT.settings.reports) / "measured"


def content(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


PAGES: dict[str, Callable[[Path], str]] = {
    "benchmarks": lambda path: speed.report(content(path)),
    "cuda": lambda path: cuda_page.render(content(path)),
    "defaults": lambda path: defaults.report(learning.read(path)),
    "effects": lambda path: effects.report(effects.read(path), effects.defects(PROJECT)),
    "field-report": lambda path: render_field_report(read_field_report(path)),
    "learning": lambda path: learning.report(learning.read(path)),
    "scale": lambda path: scale_page.report(content(path)),
    "sensitivity": lambda path: sensitivity.report(
        [sensitivity.Found(**each) for each in content(path)], sensitivity.headlines()
    ),
}
PLOTS: dict[str, Callable[[Any, Path], None]] = {"benchmarks": plots.draw, "scale": scale_plots.draw}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_follows_from_its_figures(name: str) -> None:
    path = MEASURED / f"{name}.json"
    committed, made = path.with_suffix(".md").read_text(encoding="utf-8"), PAGES[name](path)
    if name == "benchmarks":  # its header names the processor and the torch that it is made with
        committed, made = (text.partition("\n## ")[2] for text in (committed, made))
    assert committed == made


def test_every_page_with_figures_is_compared() -> None:
    assert {path.stem for path in MEASURED.glob("*.json")} == set(PAGES)


@pytest.mark.parametrize("name", PLOTS)
def test_a_page_links_to_the_plots_of_its_figures(name: str, tmp_path: Path) -> None:
    page = (MEASURED / f"{name}.md").read_text(encoding="utf-8")
    PLOTS[name](content(MEASURED / f"{name}.json"), tmp_path)
    drawn = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(drawn) == sorted(re.findall(r"!\[.*?\]\((.*?)\)", page))
    assert drawn == {each: (MEASURED / each).read_bytes() for each in drawn}


def test_the_field_report_is_read_and_written_without_a_change() -> None:
    data = MEASURED / "field-report.json"
    assert text_of(read_field_report(data)) == data.read_text(encoding="utf-8")


def test_the_reports_describe_effects_as_the_runs_show_them() -> None:
    runs, claims = effects.read(MEASURED / "effects.json"), effects.defects(PROJECT)
    committed = (PROJECT.folder / "effects.toml").read_text(encoding="utf-8")
    assert committed == effects.effects_file(effects.effects_of_claims(runs, claims))
    assert len(runs) > len(effects.CHANCE) * len(effects.SEEDS)
