"""Plots as SVG: the same bytes each time, and points where they belong."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree

import pytest
from syrupy.assertion import SnapshotAssertion

from rlverify.project.registry import Line, Plot
from rlverify.reporting.rendering import BOTTOM, HEIGHT, LEFT, RIGHT, STROKES, TOP, WIDTH, draw
from tests.engine.reporting.records import toy_plot
from verification.experiments.exploit import UPDATES_WATCHED
from verification.experiments.training import STEPS_OF_AN_UPDATE
from verification.plots.figures import LAST, recovery_after_exploit


def points(text: str) -> list[list[tuple[str, float, float]]]:
    """For each line of a plot: command and place of each of its points."""
    stroke = r'stroke="[^"]+"(?: stroke-dasharray="[^"]+")?(?: style="[^"]+")?'
    paths = re.findall(rf'<path class="line" {stroke} d="([^"]+)"/>', text)
    found = [re.findall(r"([ML])([\d.]+) ([\d.]+)", path) for path in paths]
    return [[(command, float(x), float(y)) for command, x, y in line] for line in found if "h" not in line]


def test_the_whole_picture(snapshot: SnapshotAssertion) -> None:
    assert draw(toy_plot()) == snapshot


def test_the_plot_of_recovery_shows_the_runs_of_its_figures() -> None:
    kept, reset = [48.0, 80.0, 832.0, 832.0], [100.0, 120.0, 140.0, 160.0]
    plot = recovery_after_exploit(kept, reset)
    at = dict(zip(plot.positions, zip(*(line.values for line in plot.lines), strict=True), strict=True))
    assert (at[32.0], at[48.0], at[112.0], at[160.0], at[816.0]) == ((0, 0), (25, 0), (50, 25), (50, 100), (50, 100))
    assert plot.title == "Half of the runs adapt within 456 steps if statistics are kept, 130 if reset"
    assert plot.note.startswith("4 exploits")
    assert "50 % (kept) and 0 % (reset) do not adapt" in plot.note


def test_the_plot_of_recovery_ends_with_its_runs() -> None:
    assert LAST == UPDATES_WATCHED * STEPS_OF_AN_UPDATE


def test_a_picture_is_xml_that_tells_its_title() -> None:
    root = ElementTree.fromstring(draw(replace(toy_plot(), title="a < b & c")))
    space = "{http://www.w3.org/2000/svg}"
    assert root.findtext(f"{space}title") == "a < b & c"
    assert root.findtext(f"{space}desc") == "What is seen."


def test_points_lie_where_their_values_say() -> None:
    plot = Plot("t", "x", "y", (0.0, 5.0, 10.0), (Line("l", (0.0, 4.0, 2.0)),), "")
    (line,) = points(draw(plot))[:1]
    assert line == [("M", LEFT, BOTTOM), ("L", (LEFT + RIGHT) / 2, TOP), ("L", RIGHT, (TOP + BOTTOM) / 2)]


def test_a_gap_interrupts_the_line() -> None:
    plot = Plot("t", "x", "y", (0.0, 1.0, 2.0, 3.0), (Line("l", (1.0, None, 2.0, 3.0)),), "")
    assert [command for command, _, _ in points(draw(plot))[0]] == ["M", "M", "L"]


def test_values_below_zero_and_constant_ones_can_be_drawn() -> None:
    for values in ((-3.0, 2.0), (5.0, 5.0), (0.0, 0.0), (1e-7, 2e-7), (-1e6, 1e6)):
        (line,) = points(draw(Plot("t", "x", "y", (0.0, 1.0), (Line("l", values),), "")))[:1]
        assert all(TOP <= y <= BOTTOM for _, _, y in line), values


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ((0.0, 0.3), ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3"]),
        ((1e-7, 2e-7), ["0", "5e-8", "1e-7", "1.5e-7", "2e-7"]),
        ((-1e6, 1e6), ["-1e6", "-500000", "0", "500000", "1e6"]),
    ],
)
def test_an_axis_is_labelled_with_round_numbers(values: tuple[float, ...], labels: list[str]) -> None:
    text = draw(Plot("t", "x", "y", (0.0, 1.0), (Line("l", values),), ""))
    assert re.findall(r'<text class="end"[^>]*>([^<]+)</text>', text) == labels


def test_lines_are_told_apart_without_colour() -> None:
    assert len({dashes for _, dashes in STROKES}) == len(STROKES)


EM = 0.57
"""Width of a letter in units of the size of its font, on average; DejaVu Sans, which is wide, needs up to 0.56 here."""


def ends(text: str) -> list[tuple[str, float, float]]:
    """Every text of a picture that is not turned, with an estimate of its left and its right end."""
    found = []
    for style, x, words in re.findall(r'<text class="(\w+)" x="([\d.]+)" y="[\d.]+">([^<]*)</text>', text):
        width = EM * (14 if style == "title" else 12) * len(unescape(words))
        left = float(x) - width * {"middle": 0.5, "end": 1.0}.get(style, 0.0)
        found.append((words, left, left + width))
    return found


def heights(text: str) -> list[float]:
    return [float(y) for y in re.findall(r'<text class="\w+" x="[\d.]+" y="([\d.]+)">', text)]


LONG = "AdaptiveUPGD, adaptive noise as it is documented"


def test_every_text_lies_within_the_picture() -> None:
    values = tuple(1.0 for _ in toy_plot().positions)
    crowded = replace(toy_plot(), lines=tuple(Line(f"{LONG} {n}", values) for n in range(len(STROKES))))
    text = draw(crowded)
    assert len(ends(text)) > 10
    assert [end for end in ends(text) if end[1] < 0.0 or end[2] > WIDTH] == []
    assert max(heights(text)) < HEIGHT
