"""Commands that are advised repeat the option ``--reports``, where it was given."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rlverify.project.settings import ReportPaths
from rlverify.records.problems import Problem
from rlverify.reporting.outcome import Outcome

ADVISED: Final = re.compile(r"`(rlverify (?:audit|gate|matrix|pilot|report|reproduce)\b[^`]*)`")


def advised(text: str, paths: ReportPaths) -> str:
    """A text with the option in each command that it quotes."""
    return ADVISED.sub(lambda command: f"`{command[1]}{_option(paths)}`", text)


def advised_problems(problems: Iterable[Problem], paths: ReportPaths) -> list[Problem]:
    """Problems with the option in their sentences and remedies."""
    return [
        replace(each, sentence=advised(each.sentence, paths), remedy=advised(each.remedy, paths)) for each in problems
    ]


def advised_outcome(outcome: Outcome, paths: ReportPaths) -> Outcome:
    """An outcome with the option in all that it advises."""
    return replace(
        outcome,
        problems=tuple(advised_problems(outcome.problems, paths)),
        fallen=tuple(replace(each, command=f"{each.command}{_option(paths)}") for each in outcome.fallen),
        notes=tuple(advised(note, paths) for note in outcome.notes),
    )


def given_paths(arguments: Sequence[str]) -> ReportPaths | None:
    """The report paths that arguments of a command give; None where they give none."""
    for number, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == "--reports" and (equals or number + 1 < len(arguments)):
            return ReportPaths(Path(value if equals else arguments[number + 1]).absolute())
    return None


def _option(paths: ReportPaths) -> str:
    """Empty where the paths are those of the settings."""
    return "" if paths.root is not None else f" --reports {shlex.quote(str(paths.reports))}"
