"""How often the rules for any algorithm detect a defect, and how often they raise a false alarm.

python -m benchmarks.rules    runs every rule on every tiny trainer, with a defect and sound, and writes the page
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import VecNormalize

from benchmarks.field.algorithms import ALGORITHMS, FieldAlgorithm
from benchmarks.field.explanations import EXPLANATIONS
from rlverify.checks import Adapter, CheckRecord, SB3Adapter, Status, check_algorithm, check_subject, subject
from rlverify.checks.engine.rule import RULES
from rlverify.checks.engine.session import TIERS
from tests.engine.checks import test_rules_about_episodes as episodes
from tests.engine.checks import tiny_learner, tiny_trainers
from tests.engine.checks.test_rules_about_training import ALSO, DEFECTS

PAGE: Final = Path("reports/measured/rules.md")
UNPROVEN: Final = replace(TIERS["default"], plants_faults=False)
INCLUDES: Final = {
    "rate": {"learning_rate_zero_freezes"},
    "unsaved": {"resume_is_exact"},
}
"""Rules of the other trainer that a defect breaks, since it includes theirs."""
HEADER: Final = """\
# Do the rules detect what they are for?

Each rule for any algorithm has at least one tiny trainer with exactly its defect, and a sound one without. `python -m
benchmarks.rules` runs every rule on every trainer. A rule *kills* a defect if it fails on the trainer that has it. It
raises a *false alarm* if it fails on a sound trainer, or on a trainer whose defect does not include its own.
"""

SOUND: Final = """\
## Sound algorithms of two libraries

Each algorithm of Stable-Baselines3 and sb3-contrib in five configurations: as in the field report with the defaults and
with settings that are used less, and with one thing changed in the former. A cell is the number of checks that fail,
and of those the field report does not explain by a script that shows the bug without rlverify: these are false alarms.
"""
CHANGES: Final[dict[str, Callable[[BaseAlgorithm], dict[str, Any]]]] = {
    "schedule": lambda _: {"learning_rate": LinearSchedule(1e-3, 1e-5, 0.5)},
    "normalised": lambda model: {"env": VecNormalize(model.get_env())},
    "network": lambda _: {"policy_kwargs": {"net_arch": [8, 8], "optimizer_class": torch.optim.RMSprop}},
}


@dataclass(frozen=True)
class Trainer:
    """A tiny trainer.

    :param defects: names of the rules that its defect breaks; empty for a sound one
    """

    name: str
    make: Callable[[], Any]
    adapter: Callable[[], Adapter]
    defects: frozenset[str] = frozenset()


def trainers() -> list[Trainer]:
    """All trainers, the sound ones first."""
    found = [
        Trainer("Tiny", tiny_trainers.Tiny, tiny_trainers.TinyAdapter),
        Trainer("Learner", lambda: tiny_learner.Learner(), tiny_learner.TinyAdapter),
        Trainer("Values", episodes.Values, episodes.Of),
    ]
    for name, each in tiny_trainers.DEFECTS.items():
        found.append(Trainer(name, each.make, tiny_trainers.TinyAdapter, frozenset({each.rule})))
    for name, (rule, make, adapter, *_) in DEFECTS.items():
        broken = frozenset({rule, *ALSO.get(name, ()), *INCLUDES.get(name, ())})
        found.append(Trainer(f"{make.__name__}, {adapter.__name__}", lambda make=make: make(), adapter, broken))
    for name, (rule, make, own, *_) in episodes.DEFECTS.items():
        found.append(Trainer(f"{make.__name__}, {name}", make, type(own), frozenset({rule})))
    return found


def main() -> None:
    """Run everything and write the page."""
    found = {}
    for each in trainers():
        sys.stderr.write(f"{each.name}\n")
        made = subject(each.make, name=each.name, adapter=each.adapter())
        found[each] = check_subject(replace(made, tier=UNPROVEN) if each.defects else made)
    sound = {each: dict(configurations(each)) for each in ALGORITHMS}
    PAGE.write_text(page(found) + sound_table(sound), encoding="utf-8")


def configurations(algorithm: FieldAlgorithm) -> Iterable[tuple[str, str]]:
    """How many checks fail in each configuration, and how many of them are false alarms."""

    def changed(change: Callable[[BaseAlgorithm], dict[str, Any]]) -> BaseAlgorithm:
        model = algorithm.defaults()
        return SB3Adapter().with_settings(model, **change(model))

    variants = {name: partial(changed, change) for name, change in CHANGES.items()}
    for name, make in {"defaults": algorithm.defaults, "awkward": algorithm.awkward, **variants}.items():
        sys.stderr.write(f"{algorithm.name}, {name}\n")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            records = check_algorithm(make, name=algorithm.name)
        failed = [each for each in records if each.status in (Status.FAIL, Status.ERROR)]
        alarms = [each.check for each in failed if each.check not in EXPLANATIONS]
        yield name, f"{len(failed)}, {len(alarms)}{': ' * bool(alarms)}{', '.join(alarms)}"


def sound_table(found: dict[FieldAlgorithm, dict[str, str]]) -> str:
    """The section of sound algorithms."""
    names = list(next(iter(found.values())))
    rows = [f"| {each.name} | {' | '.join(cells[name] for name in names)} |" for each, cells in found.items()]
    return "\n".join(["", SOUND, f"| algorithm | {' | '.join(names)} |", f"|---|{'---|' * len(names)}", *rows, ""])


def page(found: dict[Trainer, list[CheckRecord]]) -> str:
    """The page of all records."""
    rows = {rule: _row(rule, found) for rule in RULES}
    totals = Counter[str]()
    for row in rows.values():
        totals.update(row)
    lines = [
        "| rule | defects | killed | sound trainers | passed | faults planted | detected | others | false alarms |",
        f"|---|{'---|' * 8}",
        *(f"| `{rule}` | {' | '.join(str(row[name]) for name in COLUMNS)} |" for rule, row in rows.items()),
        f"| all | {' | '.join(str(totals[name]) for name in COLUMNS)} |",
    ]
    alarms = totals["alarms"]
    clean = totals["sound"] + totals["others"]
    summary = (
        f"Kill rate: {totals['killed']} of {totals['defects']}. False alarms: {alarms} of {clean} runs of a rule on a "
        "trainer without its defect."
    )
    return "\n".join([HEADER, summary, "", *lines, "", *_left_out(found)])


COLUMNS: Final = ("defects", "killed", "sound", "passed", "planted", "detected", "others", "alarms")


def _row(rule: str, found: dict[Trainer, list[CheckRecord]]) -> Counter[str]:
    """What became of one rule; runs that do not apply or are inconclusive are not counted."""
    row: Counter[str] = Counter()
    for trainer, records in found.items():
        (record,) = (each for each in records if each.check == rule)
        if record.status in (Status.NOT_APPLICABLE, Status.INCONCLUSIVE):
            row["defects"] += rule in trainer.defects
            continue
        failed = record.status is Status.FAIL
        if rule in trainer.defects:
            row.update(defects=1, killed=int(failed))
        elif trainer.defects:
            row.update(others=1, alarms=int(failed))
        else:
            detected = sum(each.detected for each in record.proofs)
            row.update(sound=1, passed=int(record.status is Status.PASS), planted=len(record.proofs), detected=detected)
            row.update(alarms=int(failed))
    return row


def _left_out(found: dict[Trainer, list[CheckRecord]]) -> Iterable[str]:
    """What was planted into a sound trainer and not detected."""
    missed = [
        f"- `{record.check}` on {trainer.name}: {each.fault}"
        for trainer, records in found.items()
        for record in records
        for each in record.proofs
        if not each.detected
    ]
    return ["Planted into a sound trainer, and not detected:", "", *missed, ""] if missed else []


if __name__ == "__main__":
    main()
