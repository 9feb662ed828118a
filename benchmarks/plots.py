"""The plots next to the page on speed, as SVG files that are the same bytes whenever the figures are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

STYLE: Final = {"svg.hashsalt": "rlverify", "svg.fonttype": "none", "font.size": 9.0}


def draw(figures: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """Write one plot for the ratios of each file of benchmarks, and one for each benchmark that left a series."""
    for file, names in groupby(sorted(figures), key=lambda name: name.partition("::")[0]):
        own = {name.partition("::")[2]: figures[name] for name in names}
        ratios = {name: each for name, each in own.items() if "ratio" in each}
        if ratios:
            save(_ratios(ratios), folder / file_name(file))
        for name, each in own.items():
            if "plot" in each:
                save(_series(each["plot"]), folder / file_name(file, name))


def file_name(file: str, name: str = "") -> str:
    """The file of a plot: of the ratios of a file of benchmarks, or of one of its benchmarks."""
    return "-".join(filter(None, (file.removesuffix(".py"), name.removeprefix("bench_")))).replace("_", "-") + ".svg"


def _ratios(figures: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Each median with its spread, its target as a line, and its floor."""
    made = Figure(figsize=(7.0, 0.9 + 0.35 * len(figures)), layout="constrained")
    axes = made.subplots()
    for place, each in enumerate(figures.values()):
        axes.plot([each["least"], each["most"]], [place, place], color="0.7", zorder=1)
        bound = each["target"]["bound"]
        axes.plot([bound, bound], [place - 0.4, place + 0.4], color="black", label="target" if place == 0 else None)
        axes.scatter([each["ratio"]], [place], color="tab:blue", zorder=3, label="median" if place == 0 else None)
        if each["floor"] is not None:
            axes.scatter([each["floor"]], [place], color="tab:orange", marker="|", s=90, zorder=2, label=_once(place))
    axes.set_yticks(range(len(figures)), [name.removeprefix("bench_") for name in figures])
    axes.invert_yaxis()
    axes.set_xlim(left=0.0)
    axes.set_xlabel("ours / reference: " + " or ".join(sorted({_meaning(each) for each in figures.values()})))
    axes.legend(loc="upper right", fontsize=7)
    return made


def _once(place: int) -> str | None:
    return "floor" if place == 0 else None


def _meaning(figures: Mapping[str, Any]) -> str:
    return "time" if figures["target"]["side"] == "at most" else "speed"


def _series(plot: Mapping[str, Any]) -> Figure:
    lines: Mapping[str, Sequence[float]] = plot["lines"]
    made = Figure(figsize=(7.0, 2.6), layout="constrained")
    panels: Sequence[Axes] = made.subplots(1, len(lines), squeeze=False)[0]
    for axes, (name, values) in zip(panels, lines.items(), strict=True):
        axes.plot(plot["positions"], values, marker="o", markersize=3)
        axes.set_xlabel(plot["axis"])
        axes.set_ylabel(name)
        axes.set_ylim(bottom=0.0)
        if plot["logarithmic"]:
            axes.set_xscale("log", base=2)
            axes.set_xticks(plot["positions"], [f"{position:g}" for position in plot["positions"]])
    return made


def save(figure: Figure, path: Path) -> None:
    """Write a figure as SVG, without a date."""
    with mpl.rc_context(STYLE):
        figure.savefig(path, format="svg", metadata={"Date": None})
