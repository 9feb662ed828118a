"""Verdicts under other settings: the headline claims of the index and every figure, one setting changed at a time.

``python -m benchmarks.sensitivity`` measures what reports/measured/sensitivity.json lacks and writes the page; with
``--only -``, the page alone. It exits with 1 if a verdict changes that did not before. CI runs it weekly with
``--again``: everything, in a random order.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import re
import sys
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from stable_baselines3.common.vec_env import VecEnv

from rlcore import DistributionalPPO
from rlcore.ppo.settings import MARKS, SHOWN, PPOSettings
from rlverify.evidence.summarising import summarise, summarise_figure
from rlverify.project.content import open_project
from rlverify.records.claims import Claim
from rlverify.running.paired_runs import PairedTask, run_paired
from rlverify.running.runner import run_task, tasks_of
from rlverify.verdicts.verdict import grade_fix, judge
from verification.probes.make import Make

FILE: Final = Path("reports/measured/sensitivity.json")
FACTORS: Final = (4.0, 0.25, 2.0, 0.5)
DEFAULT: Final = 0.0
"""In place of a factor: the default of DistributionalPPO."""
SEEDS: Final = 3
"""Runs of a figure, which has many more of its own."""
LIMIT: Final = 300.0
CORE: Final = "core"


@dataclass(frozen=True)
class Change:
    """One setting times a factor; ``place`` is ``core``, or the module of a constant, or empty for no change."""

    place: str = ""
    name: str = ""
    factor: float = 1.0

    def of(self, value: Any) -> Any:
        """The changed value; an integer stays one, and is at least 1."""
        if isinstance(value, list):
            return [self.of(each) for each in value]
        return max(1, round(value * self.factor)) if isinstance(value, int) else value * self.factor


@dataclass(frozen=True)
class Found(Change):
    """What a claim's verdict, and the grade of its fix, are under a change; without one, how many are planned."""

    claim: str = ""
    verdict: str = ""
    grade: str = ""
    planned: int = 0


@dataclass(frozen=True)
class Varied(Make):
    """Builds every model with one setting changed, and notes the numeric settings of the first."""

    change: Change = Change()
    seen: dict[str, Any] = field(default_factory=dict, compare=False)

    def envs(self, seed: int, env_id: str = "CartPole-v1", n_envs: int = 3) -> VecEnv:
        """As many environments as the change makes of them."""
        self.seen.setdefault("n_envs", n_envs)
        return super().envs(seed, env_id, self.change.of(n_envs) if self.change.name == "n_envs" else n_envs)

    def model(self, seed: int, envs: VecEnv | None = None, **settings: Any) -> DistributionalPPO:
        """The model, built again if the change is of one of its settings."""
        model = super().model(seed, envs, **settings)
        values = dict(_numbers_of(model))
        self.seen.update({name: value for name, value in values.items() if name not in self.seen})
        if self.change.place != CORE or self.change.name not in values:
            return model
        name, _, entry = self.change.name.partition(".")
        new = self.change.of(values[self.change.name])
        new = PPOSettings.model_fields[name].default if self.change.factor == DEFAULT else new
        return super().model(seed, envs, **{**settings, name: {**getattr(model, name), entry: new} if entry else new})


def _numbers_of(model: DistributionalPPO) -> Iterator[tuple[str, Any]]:
    """Name and value of each numeric setting that acts in a model."""
    for name in MARKS.keys() - SHOWN - {"seed", "stats_window_size"}:
        value, switch = getattr(model, name), MARKS[name]["part_of"]
        if switch is None or getattr(model, switch, True):
            value = value(1.0) if name.startswith("clip_range") and value is not None else value
            yield from _numbers(name, value)


def _numbers(name: str, value: object) -> Iterator[tuple[str, Any]]:
    """A number other than 0, a list of them, or those that are values of a dict."""
    for entry, number in value.items() if isinstance(value, Mapping) else [("", value)]:
        parts = number if isinstance(number, list) and number else [number]
        if entry != "seed" and all(isinstance(each, int | float) and type(each) is not bool and each for each in parts):
            yield (f"{name}.{entry}" if entry else name), number


def constants(function: Callable[..., Any]) -> dict[tuple[str, str], Any]:
    """The numbers, by module and name, that a function of the project reads, or a function that it calls."""
    found: dict[tuple[str, str], Any] = {}
    left, known = [function], set()
    while left:
        each: Any = left.pop()
        if each in known or not each.__module__.startswith("verification."):
            continue
        known.add(each)
        codes = [each.__code__]
        for code in codes:
            codes += [part for part in code.co_consts if isinstance(part, types.CodeType)]
        for name in {name for code in codes for name in code.co_names}:
            value = each.__globals__.get(name)
            left += [value] if isinstance(value, types.FunctionType) else []
            found |= {(each.__module__, key): number for key, number in _numbers(name, value) if name.isupper()}
    return found


def headlines() -> dict[str, list[Claim]]:
    """The claims of "What matters most" and the figures, by the experiment that measures them or the claim's id."""
    index = Path("reports/index.md").read_text(encoding="utf-8")
    ids = re.findall(r"^\d+\. \*\*\[([\w-]+)\]", index, re.MULTILINE)
    found: dict[str, list[Claim]] = {}
    for claim in open_project(Path()).claims:
        if not claim.condition_of and (claim.id in ids or claim.kind == "figure"):
            found.setdefault(claim.experiment or claim.id, []).append(claim)
    return found


def measure(given: tuple[str, Change]) -> tuple[str, list[Found], list[Change]]:
    """Verdicts under one change of a group; without a change also which changes there are to make."""
    warnings.simplefilter("ignore")
    key, change = given
    claims, project, make = headlines()[key], open_project(Path()), Varied(change=change)
    vars(project)["make"] = lambda: (make,)
    first = claims[0]
    function = project.experiment(key) if first.figure else project.probe(first.probe)
    with ExitStack() as stack:
        if change.place not in ("", CORE):
            module, (name, _, entry) = sys.modules[change.place], change.name.partition(".")
            old = getattr(module, name)
            new = {**old, entry: change.of(old[entry])} if entry else change.of(old)
            stack.enter_context(patch.object(module, name, new))
        if first.figure is None:
            evidence = [summarise(first, [run_task(each) for each in tasks_of(project, first, first.seeds, LIMIT)])]
        else:
            seeds = tuple(range(SEEDS))
            runs = [run_paired(PairedTask(project, key, seed, LIMIT)) for seed in seeds]
            evidence = [summarise_figure(replace(each, seeds=seeds), runs) for each in claims]
    core = {name: PPOSettings.model_fields[name].default for name in make.seen if name in PPOSettings.model_fields}
    others = [name for name, value in core.items() if value and value != make.seen[name]]
    places = [*((CORE, name) for name in make.seen), *constants(function)]
    changes = [Change(*place, factor) for factor in FACTORS for place in places]
    changes = [*(Change(CORE, name, DEFAULT) for name in others), *changes]
    found = [
        Found(
            **asdict(change),
            claim=claim.id,
            verdict=judge(each).value,
            grade=str(grade_fix(each) or ""),
            planned=0 if change.name else len(changes),
        )
        for claim, each in zip(claims, evidence, strict=True)
    ]
    return key, found, changes


def run(minutes: float, processes: int, only: str, *, again: bool) -> int:
    """Measure as many changes as the time allows; each is in the file and on the page as soon as it ends."""
    before = [Found(**each) for each in json.loads(FILE.read_text(encoding="utf-8"))] if FILE.is_file() else []
    shown = headlines()
    groups = {key: claims for key, claims in shown.items() if re.fullmatch(only, claims[0].id)}
    ends, draw = time.monotonic() + 60 * minutes, random.Random(time.time())
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=20) as pool:
        plans = pool.map(measure, [(key, Change()) for key in groups], chunksize=1)
        wanted = {(each.id, *_setting(c)) for key, _, changes in plans for each in groups[key] for c in changes}
        planned = {each.id for claims in groups.values() for each in claims}
        found = [each for each in before if each.claim not in planned]
        if not again:
            found += [each for each in before if (each.claim, *_setting(each)) in wanted]
        found += [each for _, own, _ in plans for each in own]
        done = {(each.claim, *_setting(each)) for each in found}
        left = [(k, c) for k, _, changes in plans for c in changes if (groups[k][0].id, *_setting(c)) not in done]
        draw.shuffle(left)
        left.sort(key=lambda each: groups[each[0]][0].kind == "figure")
        write(found, shown)
        for number, (_, own, _) in enumerate(pool.imap_unordered(measure, left)):
            found += own
            write(found, shown)
            if time.monotonic() > ends:
                print(f"the time is up: {number + 1} of {len(left)} changes were measured")
                break
    known = {(each.claim, each.name, each.verdict, each.grade) for each in before}
    new = [each for _, each in flips(found) if (each.claim, each.name, each.verdict, each.grade) not in known]
    print(*new, sep="\n")
    return int(bool(new))


def _setting(change: Change) -> tuple[str, str, float]:
    return change.place, change.name, change.factor


def write(found: Sequence[Found], shown: Mapping[str, Sequence[Claim]]) -> None:
    """Write the file and the page of the claims that are shown."""
    ids = {each.id for claims in shown.values() for each in claims}
    rows = sorted((each for each in found if each.claim in ids), key=lambda each: (each.claim, *_setting(each)))
    texts = (json.dumps({name: x for name, x in asdict(each).items() if name != "planned" or x}) for each in rows)
    FILE.write_text("[\n" + ",\n".join(texts) + "\n]\n", encoding="utf-8")
    FILE.with_suffix(".md").write_text(report(rows, shown), encoding="utf-8")


def flips(found: Sequence[Found]) -> list[tuple[Found, Found]]:
    """What a claim was without a change and what it is under one, wherever verdict or grade is another one."""
    base = {each.claim: each for each in found if not each.name}
    pairs = [(base[each.claim], each) for each in found if each.name and each.claim in base and each.verdict != "ERROR"]
    return [
        (was, now) for was, now in pairs if (was.verdict, was.grade) != (now.verdict, now.grade)
        and (not was.claim.startswith("FIG-") or {was.verdict, now.verdict} == {"CONFIRMED", "REFUTED"})
    ]  # fmt: skip


def report(found: Sequence[Found], shown: Mapping[str, Sequence[Claim]]) -> str:
    """The page."""
    changed = flips(found)
    rows: dict[tuple[str, ...], list[str]] = {}
    for was, now in changed:
        words = (f"{each.verdict}{f', fix {each.grade}' if each.grade else ''}" for each in (was, now))
        factor = "core's default" if now.factor == DEFAULT else f"times {now.factor:g}"
        rows.setdefault((now.claim, now.name, *words), []).append(factor)
    table = [f"| {c} | `{n}` | {', '.join(f)} | {was} | {now} |" for (c, n, was, now), f in sorted(rows.items())]
    base = sorted((each for each in found if not each.name), key=lambda each: each.claim)
    measured = Counter(each.claim for each in found if each.name)
    flipped = Counter(now.claim for _, now in changed)
    counts = [f"| {c.claim} | {measured[c.claim]} | {c.planned} | {flipped[c.claim]} |" for c in base]
    planned = sum(each.planned for each in base)
    fixed = {each.claim for each in base if not each.planned}
    without = sorted({each.id for claims in shown.values() for each in claims} - fixed - set(measured))
    total = f"{measured.total()} of {planned} planned changes of {len(base)} claims are measured."
    return "\n".join([
        HEADER, f"{total} None is measured of: {', '.join(without) or 'no claim'}.", "",
        "| claim | changes measured | planned | that change the result |", "|---|---|---|---|", *counts, "",
        "| claim | setting | changed to | was | becomes |", "|---|---|---|---|---|", *table, "",
    ])  # fmt: skip


HEADER: Final = f"""# Verdicts under other settings

Generated by `python -m benchmarks.sensitivity` from `sensitivity.json`, which it completes first. The plan: for each
claim of "What matters most" and each figure, every number that its probe reads and every numeric setting of the models
that it builds becomes a quarter, half, twice and four times as large, and the core's own default, one at a time. A
figure is judged by {SEEDS} runs; only a change from CONFIRMED to REFUTED, or back, counts. With REGRESSED, the probe
cannot judge the claim, as healthy code does not show what it looks at. A value that the core refuses gives no verdict.
"""


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=300)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default=".*", help="pattern of the claims' ids")
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args()
    return run(given.minutes, given.processes, given.only, again=given.again)


if __name__ == "__main__":
    sys.exit(main())
