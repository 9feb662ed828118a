"""The plots of the page on scale, as SVG files that are the same bytes whenever the figures are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import scale_page
from benchmarks.plots import save


def draw(figures: Mapping[str, Any], folder: Path) -> None:
    """Write the plots of the parts that have been measured."""
    if "populations" in figures:
        populations = sorted(figures["populations"]["figures"].values(), key=lambda each: int(each["members"]))
        save(_turns(populations), folder / scale_page.TURN_PLOT)
        save(_decisions(populations), folder / scale_page.DECISION_PLOT)
    if "executors" in figures:
        save(_overheads(figures["executors"]["figures"]), folder / scale_page.OVERHEAD_PLOT)
        save(_workers(figures["executors"]["figures"]), folder / scale_page.WORKERS_PLOT)


def _turns(populations: list[Mapping[str, Any]]) -> Figure:
    made = Figure(figsize=(7.0, 3.2), layout="constrained")
    axes = made.subplots()
    sizes = [each["members"] for each in populations]
    for name, words in scale_page.PARTS.items():
        axes.plot(sizes, [scale_page.turn(each)[name] for each in populations], marker="o", markersize=3, label=words)
    cheaper = [scale_page.cheaper_turn(each) for each in populations]
    axes.plot(sizes, cheaper, color="black", linestyle="--", label="whole turn with the cheaper commit (computed)")
    _by_members(axes, "seconds of one turn")
    return made


def _decisions(populations: list[Mapping[str, Any]]) -> Figure:
    made = Figure(figsize=(7.0, 2.8), layout="constrained")
    axes = made.subplots()
    sizes = [each["members"] for each in populations]
    for method, color in (("truncation", "tab:blue"), ("binary_tournament", "tab:orange")):
        for kind, words, line in (
            ("decision that ranks", "ranked for each member", "--"),
            ("decision", "ranked once per round", "-"),
        ):
            seconds = [each["costs"][f"{kind}, {method}"]["cpu_s"] for each in populations]
            axes.plot(sizes, seconds, line, color=color, marker="o", markersize=3, label=f"{method}, {words}")
    _by_members(axes, "seconds of CPU time")
    return made


def _by_members(axes: Axes, what: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("members")
    axes.set_ylabel(what)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7)


def _overheads(executors: Mapping[str, Any]) -> Figure:
    made = Figure(figsize=(7.0, 0.9 + 0.4 * len(executors)), layout="constrained")
    axes = made.subplots()
    for place, (name, each) in enumerate(executors.items()):
        axes.barh(place, 1e3 * each["overhead"]["per_task_s"], color="tab:blue", height=0.5)
        target = scale_page.TARGETS_S[name]
        if target is not None:
            axes.plot([1e3 * target] * 2, [place - 0.4, place + 0.4], color="black")
    axes.set_yticks(range(len(executors)), list(executors))
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds for each task that does nothing; black line: target")
    return made


def _workers(executors: Mapping[str, Any]) -> Figure:
    made = Figure(figsize=(7.0, 2.8), layout="constrained")
    axes = made.subplots()
    for name, each in executors.items():
        found = each["workers"]
        counts, seconds = [one["workers"] for one in found], [one["per_task_s"] for one in found]
        axes.plot(counts, seconds, marker="o", markersize=4, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
    axes.axvspan(2.1, 8.5, color="0.93", label="more workers than cores")
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("workers")
    axes.set_ylabel("seconds for each task")
    axes.legend(fontsize=7)
    return made
