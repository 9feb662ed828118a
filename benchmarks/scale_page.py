"""The page on scale, from its figures alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

Figures = Mapping[str, Any]

TURN_PLOT: Final = "scale-turn.svg"
DECISION_PLOT: Final = "scale-decision.svg"
OVERHEAD_PLOT: Final = "scale-overhead.svg"
WORKERS_PLOT: Final = "scale-workers.svg"

PARTS: Final = {
    "report": "report and checkpoint",
    "state": "commit: build the state",
    "write": "commit: write the state",
    "old models": "commit: look for old models",
    "exploit": "decide and read the source",
}
"""What a member's turn costs next to training, by the name of its cost."""
TURN_LIMIT_S: Final = 1.0
"""CPU time of a turn from which on the page calls it slow."""
MEMORY_LIMIT_GIB: Final = 16
TARGETS_S: Final = {"inline": None, "processes": 0.020, "ray": 0.050}
"""Most that an executor may add to each task, once it has started."""
MIB, GIB = 2**20, 2**30


def report(figures: Figures) -> str:
    """The page."""
    sections = []
    if "populations" in figures and "model" in figures:
        sections += _population_sections(_by_size(figures["populations"]["figures"]), figures["model"]["figures"])
    if "executors" in figures:
        sections += _executor_sections(figures["executors"]["figures"])
    return "\n".join([*HEADER, *sections, *_how(figures)])


def turn(population: Figures, which: str = "wall_s") -> dict[str, float]:
    """Seconds that one turn of one member costs next to training, by part.

    :param which: ``wall_s`` by the clock, ``cpu_s`` on a processor
    """
    return {name: population["costs"][name][which] for name in PARTS}


def commit_seconds(population: Figures, which: str = "wall_s") -> float:
    """Seconds of one commit, without what the lineage adds."""
    return sum(float(population["costs"][name][which]) for name in ("state", "write", "old models"))


def round_seconds(population: Figures, which: str = "wall_s") -> float:
    """Seconds of a round next to training: a turn of each member, then one more commit with the lineage."""
    once = sum(float(population["costs"][name][which]) for name in ("statistics", "lineage"))
    return sum(turn(population, which).values()) * population["members"] + commit_seconds(population, which) + once


def cheaper_turn(population: Figures, which: str = "wall_s") -> float:
    """Seconds of a turn if its commit appended one record, and the whole state followed once a round."""
    costs = {name: float(cost[which]) for name, cost in population["costs"].items()}
    once = commit_seconds(population, which) + costs["lineage"]
    return costs["report"] + costs["exploit"] + costs["one record"] + once / population["members"]


def _by_size(populations: Figures) -> list[Figures]:
    return sorted(populations.values(), key=lambda each: int(each["members"]))


def _population_sections(populations: Sequence[Figures], model: Figures) -> list[str]:
    return [
        *_what_breaks_first(populations, model),
        *_turns(populations),
        *_decisions(populations),
        *_commits(populations),
        *_files_and_memory(populations, model),
    ]


def bytes_of_a_report(populations: Sequence[Figures]) -> float:
    """By how much one report of one member lengthens the state, in the largest population."""
    largest = populations[-1]
    sizes = largest["state_bytes"]
    return float(sizes[-1] - sizes[0]) / (len(sizes) - 1) / float(largest["members"])


def _what_breaks_first(populations: Sequence[Figures], model: Figures) -> list[str]:
    largest = populations[-1]
    size, parts = largest["members"], turn(largest, "cpu_s")
    slowest = max(parts, key=lambda name: parts[name])
    memory = model["memory_mib"] * size / 1024
    ranked, alone = (largest["costs"][f"{name}, truncation"]["cpu_s"] for name in ("decision", "decision that ranks"))
    return [
        "## What breaks first",
        "",
        f"The commit breaks first. It gets slow with {_slow(populations)}.",
        "",
        f"1. **The commit after every turn.** `Population` writes the whole state after each turn. With {size:,} "
        f"members a turn costs {time_in_words(sum(parts.values()))} next to training, of which “{PARTS[slowest]}” is "
        f"{parts[slowest] / sum(parts.values()):.1%}. A round takes {time_in_words(round_seconds(largest, 'cpu_s'))} "
        "(computed), and members that train at the same time wait for it, as only one process commits.",
        f"2. **Memory for the models.** Without workers, all models of a population live in one process, and a small "
        f"one takes {model['memory_mib']:.1f} MiB. So {MEMORY_LIMIT_GIB} GiB are full with "
        f"{int(MEMORY_LIMIT_GIB * 1024 / model['memory_mib']):,} members, and {size:,} need {memory:,.0f} GiB "
        "(computed). With workers, each of them holds one model at a time.",
        f"3. **The state grows.** It holds the history of every member: {bytes_of_a_report(populations):.0f} bytes for "
        "each report.",
        f"4. **Decisions** do not break, as the scheduler ranks once per round. With {size:,} members a decision "
        f"takes {time_in_words(ranked)}; a decision that ranks for itself takes {time_in_words(alone)}.",
        "",
        "Times in this list are CPU times; the plot shows times by the clock.",
        "",
        f"![seconds of a turn by part]({TURN_PLOT})",
        "",
    ]


def _slow(populations: Sequence[Figures]) -> str:
    for each in populations:
        seconds = sum(turn(each, "cpu_s").values())
        if seconds > TURN_LIMIT_S:
            return (
                f"{each['members']:,} members, the smallest simulated size whose turns cost more than "
                f"{TURN_LIMIT_S:g} s next to training ({time_in_words(seconds)})"
            )
    return f"more members than were simulated (no turn costs more than {TURN_LIMIT_S:g} s next to training)"


def _turns(populations: Sequence[Figures]) -> list[str]:
    rows = []
    for name, words in PARTS.items():
        cells = [(turn(each)[name], turn(each, "cpu_s")[name], sum(turn(each).values())) for each in populations]
        rows.append(
            [
                words,
                *(f"{time_in_words(wall)} / {time_in_words(cpu)}, {wall / whole:.0%}" for wall, cpu, whole in cells),
            ]
        )
    for words, figure in (("turn", lambda *e: sum(turn(*e).values())), ("round (computed)", round_seconds)):
        rows.append(
            [
                words,
                *(
                    f"{time_in_words(figure(each, 'wall_s'))} / {time_in_words(figure(each, 'cpu_s'))}"
                    for each in populations
                ),
            ]
        )
    return [
        "## A turn of one member, without its training",
        "",
        "Each cell: time by the clock / CPU time of the process, share of the turn by the clock.",
        "",
        *_table(["part", *(f"{each['members']:,} members" for each in populations)], rows),
        "",
        "A round is computed: the statistics for the log, a turn of each member, and one commit more for the exploits.",
        "",
    ]


def _decisions(populations: Sequence[Figures]) -> list[str]:
    rows = []
    for each in populations:
        costs, cells = each["costs"], [f"{each['members']:,}"]
        for method in ("truncation", "binary_tournament"):
            cells += [
                time_in_words(costs[f"{kind}, {method}"]["cpu_s"]) for kind in ("decision", "decision that ranks")
            ]
        rows.append(
            [
                *cells,
                time_in_words(costs["exploit"]["cpu_s"]),
                f"{each['copies'] / (each['members'] * each['rounds']):.0%}",
            ]
        )
    columns = [
        "members",
        "truncation, ranked once per round",
        "truncation, ranked for each member",
        "tournament, ranked once per round",
        "tournament, ranked for each member",
        "`exploit_and_explore()`, truncation",
        "members that copy",
    ]
    return [
        "## One decision",
        "",
        "CPU time for each member: is the population ready, and whom does the member copy. The ranking of the round is "
        "included. `exploit_and_explore()` also reads the file of the source, and draws new hyperparameters.",
        "",
        *_table(columns, rows),
        "",
        f"![time of a decision]({DECISION_PLOT})",
        "",
    ]


def _commits(populations: Sequence[Figures]) -> list[str]:
    rows = [
        [
            f"{each['members']:,}",
            time_in_words(commit_seconds(each)),
            time_in_words(each["costs"]["one record"]["wall_s"]),
            f"{time_in_words(sum(turn(each).values()))} → {time_in_words(cheaper_turn(each))}",
        ]
        for each in populations
    ]
    return [
        "## A cheaper commit",
        "",
        "A turn could append what it changed as one record with a sync, and the whole state would follow once a round. "
        "Times are by the clock; the last column is computed.",
        "",
        *_table(["members", "commit now", "append one synced record instead", "turn now → with the record"], rows),
        "",
    ]


def _files_and_memory(populations: Sequence[Figures], model: Figures) -> list[str]:
    rows = [
        [
            f"{each['members']:,}",
            f"{each['files']:,}",
            f"{each['checkpoint_files']:,}, {_size(each['checkpoint_bytes'])}",
            " → ".join(_size(size) for size in each["state_bytes"]),
            _size(each["lineage_bytes"]),
            f"{_size(model['file_bytes'] * each['members'])}",
            f"{each['peak_mib']} MiB ({each['peak_mib'] - each['start_mib']:+} MiB)",
            _size(model["memory_mib"] * MIB * each["members"]),
        ]
        for each in populations
    ]
    columns = [
        "members",
        "files",
        "checkpoints",
        "state after rounds 1 → 2 → 3",
        "lineage",
        "models on disk (computed)",
        "peak memory (above start)",
        "live models in memory (computed)",
    ]
    return [
        f"## Files and memory after {populations[-1]['rounds']} rounds",
        "",
        *_table(columns, rows),
        "",
        "The state grows with every round, since it holds the history of all members. A checkpoint here holds three "
        "tensors of 1,000 numbers. A model is measured separately, after one update of CartPole in one environment "
        f"with an LSTM of 64: it takes {model['memory_mib']:.1f} MiB of memory and a file of "
        f"{_size(model['file_bytes'])}. Each save takes {time_in_words(model['save']['wall_s'])} by the clock and "
        f"{time_in_words(model['save']['cpu_s'])} of CPU time.",
        "",
    ]


def _executor_sections(executors: Figures) -> list[str]:
    rows = []
    for name, each in executors.items():
        seconds, target = each["overhead"]["per_task_s"], TARGETS_S[name]
        verdict = "-" if target is None else "MET" if seconds < target else "MISSED"
        goal = "-" if target is None else f"under {time_in_words(target)}"
        rows.append([name, str(each["overhead"]["jobs"]), time_in_words(seconds), goal, verdict])
    tasks = next(iter(executors.values()))["overhead"]["tasks"]
    scaling = [
        [
            name,
            str(each["workers"]) + (" (oversubscribed)" if each["workers"] > 2 else ""),
            time_in_words(each["per_task_s"]),
            f"{executors[name]['workers'][0]['per_task_s'] / each['per_task_s']:.2f}",
            time_in_words(each["own_wall_s"]),
            time_in_words(each["own_cpu_s"]),
        ]
        for name, found in executors.items()
        for each in found["workers"]
    ]
    return [
        "## Overhead of an executor for each task",
        "",
        f"{tasks} tasks that do nothing, after 20 others: time by the clock from result to result.",
        "",
        *_table(["executor", "workers", "time per task", "target", ""], rows),
        "",
        f"![overhead per task]({OVERHEAD_PLOT})",
        "",
        "## Time per task with more workers",
        "",
        "A task is always the same products of matrices on one thread. The machine has 2 cores, so 4 and 8 workers are "
        "oversubscribed: they cannot be faster than 2, and the time that a task itself takes by the clock grows.",
        "",
        *_table(
            [
                "executor",
                "workers",
                "time per task",
                "times as fast as with 1 worker",
                "a task itself, by the clock",
                "a task itself, CPU time",
            ],
            scaling,
        ),
        "",
        f"![time per task with more workers]({WORKERS_PLOT})",
        "",
    ]


def _how(figures: Figures) -> list[str]:
    machines = [
        f"- {part}: {each['machine']['cores']} cores, {each['machine']['architecture']}, load average "
        f"{each['machine']['load']:g} when the measurement began"
        for part, each in sorted(figures.items())
    ]
    return [
        "## How this was measured",
        "",
        "No model trains. Each member reports a score from a seeded generator. The scheduler and its checkpoints are "
        "real. The commit repeats what `Population._commit` does, with empty files in place of models, twice a round "
        "and not after every turn. Each size runs in its own process with one thread.",
        "",
        "Times by the clock include waiting for the disk and for other programs; CPU times do not.",
        "",
        *machines,
        "",
    ]


def time_in_words(seconds: float) -> str:
    """In a unit that suits it, two or three digits."""
    for unit, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        if seconds >= length:
            return f"{_short(seconds / length)} {unit}"
    return f"{_short(seconds * 1e6)} µs"


def _size(size: float) -> str:
    for unit, length in (("GiB", GIB), ("MiB", MIB), ("KiB", 1024)):
        if size >= length:
            return f"{_short(size / length)} {unit}"
    return f"{size:.0f} B"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 9.95 else f"{number:.1f}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows)]


HEADER: Final = [
    "# Scale of a population, and of executors",
    "",
    "Generated by `python -m benchmarks.scale report` from `scale.json`, which `python -m benchmarks.scale run` "
    "measures.",
    "",
]
