"""All files of the report: the index, every claim, pages that the project registers, and plots as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from textwrap import wrap
from typing import Final

from rlverify.project.registry import Line, Page, Plot
from rlverify.reporting.markdown import render
from rlverify.reporting.report_data import CLAIMS, ReportData


def render_claims(data: ReportData) -> str:
    """Render the page of the claims that have no page of their own, each in full."""
    return render("claims.md.j2", replace(data, in_full=True))


CLAIMS_PAGE: Final = Page(CLAIMS, "Claims", "every claim that has no page of its own", (), render_claims)


def render_all(data: ReportData) -> Mapping[str, str]:
    """Every file of the report by its name within the folder of reports: pages and plots."""
    others = any(data.home(record.claim) == CLAIMS for record in data.records)
    pages = (*data.pages, CLAIMS_PAGE) if others else data.pages
    return {
        "index.md": render("index.md.j2", data, pages=pages),
        **{page.name: page.render(data) for page in pages},
        "all-claims.md": render("all-claims.md.j2", data),
        **{f"plots/{name}.svg": draw(plot) for name, plot in data.plots.items()},
    }


WIDTH, HEIGHT = 760.0, 340.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 540.0, 40.0, 290.0
ROW = 30.0
WRAP = 25

# Okabe and Ito's colours, told apart by colour-blind readers; the dashes tell them apart in grey.
STROKES: Final = (
    ("#0072b2", ""),
    ("#d55e00", "7 3"),
    ("#009e73", "2 3"),
    ("#cc79a7", "9 3 2 3"),
    ("#000000", "1 4"),
)
STYLE: Final = "text{font:12px sans-serif;fill:#222}.title{font-weight:bold;font-size:14px}.end{text-anchor:end}"
MIDDLE: Final = ".middle{text-anchor:middle}.grid{stroke:#ddd}.line{fill:none;stroke-width:2}"


@dataclass(frozen=True)
class _Axis:
    """Maps numbers to points of the picture."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    def place(self, number: float) -> float:
        return self.start + (number - self.low) / (self.high - self.low) * (self.end - self.start)


def draw(plot: Plot) -> str:
    """The plot as an SVG file."""
    values = [value for line in plot.lines for value in line.values if value is not None]
    x = _axis(plot.positions, LEFT, RIGHT)
    y = _axis([0.0, *values], BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(WIDTH)} {_n(HEIGHT)}" role="img">',
        f"<title>{escape(plot.title)}</title>",
        f"<desc>{escape(plot.note)}</desc>",
        f"<style>{STYLE}{MIDDLE}</style>",
        f'<rect width="{_n(WIDTH)}" height="{_n(HEIGHT)}" fill="#fff"/>',
        _text(LEFT, 22.0, plot.title, "title"),
        *_grid(x, y),
        _text((LEFT + RIGHT) / 2.0, HEIGHT - 12.0, plot.x_label, "middle"),
        _turned(16.0, (TOP + BOTTOM) / 2.0, plot.y_label),
    ]
    strokes = [f'stroke="{colour}"' + f' stroke-dasharray="{dashes}"' * bool(dashes) for colour, dashes in STROKES]
    for line, stroke in zip(plot.lines, strokes, strict=False):
        parts += _line(line, plot.positions, x, y, stroke)
    return "\n".join([*parts, *_legend(plot.lines, strokes), "</svg>", ""])


def _axis(numbers: Sequence[float], start: float, end: float) -> _Axis:
    low, high = min(numbers), max(numbers)
    step = _step((high - low) or abs(high) or 1.0)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    return _Axis(first * step, last * step, start, end, tuple(k * step for k in range(first, last + 1)))


def _step(span: float) -> float:
    """A round number of which four to ten make up the span."""
    power: float = 10.0 ** math.floor(math.log10(span / 4.0))
    return next(factor * power for factor in (5.0, 2.0, 1.0) if factor * power <= span / 4.0 * (1.0 + 1e-9))


def _grid(x: _Axis, y: _Axis) -> Iterator[str]:
    for tick in y.ticks:
        place = y.place(tick)
        yield f'<path class="grid" d="M{_n(LEFT)} {_n(place)}H{_n(RIGHT)}"/>'
        yield _text(LEFT - 6.0, place + 4.0, _label(tick), "end")
    for tick in x.ticks:
        place = x.place(tick)
        yield f'<path class="grid" d="M{_n(place)} {_n(TOP)}V{_n(BOTTOM)}"/>'
        yield _text(place, BOTTOM + 18.0, _label(tick), "middle")


def _line(line: Line, positions: Sequence[float], x: _Axis, y: _Axis, stroke: str) -> Iterator[str]:
    path, command = "", "M"
    for position, value in zip(positions, line.values, strict=True):
        if value is not None:
            path += f"{command}{_n(x.place(position))} {_n(y.place(value))}"
        command = "M" if value is None else "L"
    yield f'<path class="line" {stroke} d="{path}"/>'


def _legend(lines: Sequence[Line], strokes: Sequence[str]) -> Iterator[str]:
    place = TOP + 10.0
    for line, stroke in zip(lines, strokes, strict=False):
        yield f'<path class="line" {stroke} d="M{_n(RIGHT + 14.0)} {_n(place)}h26"/>'
        for row in wrap(line.label, WRAP, break_long_words=False, break_on_hyphens=False):
            yield _text(RIGHT + 46.0, place + 4.0, row, "start")
            place += ROW / 2.0
        place += ROW / 2.0


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text class="{style}" x="{_n(x)}" y="{_n(y)}">{escape(text)}</text>'


def _turned(x: float, y: float, text: str) -> str:
    place = f"{_n(x)} {_n(y)}"
    return f'<text class="middle" transform="translate({place}) rotate(-90)">{escape(text)}</text>'


def _label(number: float) -> str:
    return f"{number:.6g}".replace("e-0", "e-").replace("e+0", "e")


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
