"""The outcome of one run of the gate or of an audit, and its lines of text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from textwrap import shorten
from typing import Final

from rlverify.records.claims import Claim
from rlverify.records.measured import Evidence
from rlverify.records.problems import (
    CLAIM_FELL,
    HARNESS_FAILED,
    Problem,
    ProblemKind,
    Weakening,
    exit_code_of,
    few,
    is_regression,
    with_advice,
)
from rlverify.verdicts.verdict import ClaimStatus, Record

RUN: Final = re.compile(r"^(\w+, )?seed \d+: ")
"""What a reason begins with that is about one run of several."""


@dataclass(frozen=True)
class SymptomChange:
    """A symptom that is not as it was or should be.

    :param symptom: its name, after the variant in which it was observed where that is not the healthy one
    """

    symptom: str
    expected: str
    observed: str


@dataclass(frozen=True)
class FallenClaim:
    """A claim that fell, and what a reader needs to find out why.

    :param reason: why it fell, in a sentence, where no symptom shows it; else empty
    :param suspects: files that may be the reason, the likeliest first; relative to the project where they are in it
    :param suspect_line: the line of the first of them in which its first changed function begins, from 1
    :param edit: the lines that changed there, as a diff has them: "- " before an old one, "+ " before a new one
    :param changed: those of them that changed since the base
    :param changed_parts: what changed of that which its runs executed, as `changed_by_claim` gives it
    """

    claim: Claim
    kind: ProblemKind
    headline: str
    changes: tuple[SymptomChange, ...]
    reason: str
    suspects: tuple[str, ...]
    suspect_line: int
    edit: tuple[str, ...]
    changed: tuple[str, ...]
    changed_parts: tuple[str, ...]
    declared_in: str
    line: int
    command: str

    @property
    def cause(self) -> tuple[object, ...]:
        """The same for claims that fell for the same reason, and for all figures of which only values differ."""
        if self.claim.figure is not None and self.kind == "values":
            return self.kind, "figure"
        return self.kind, RUN.sub("", self.reason) or self.changes


@dataclass(frozen=True)
class Case:
    """One test case."""

    suite: str
    name: str
    status: ClaimStatus
    message: str = ""
    text: str = ""
    seconds: float | None = None


@dataclass(frozen=True)
class Outcome:
    """The records of an audit or a gate, and all that is wrong with them.

    :param seconds: what measuring each claim took, by its id; a run that several claims need is shared among them
    :param committed: the committed evidence that was compared with, by the id of the claim
    :param repeated: of how many figures a run was repeated
    :param exact: how many of these gave the committed value to all digits
    :param weakened: what the change since the base makes weaker, or may make weaker
    """

    records: tuple[Record, ...]
    problems: tuple[Problem, ...]
    fallen: tuple[FallenClaim, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    selection: str = ""
    checks: tuple[Case, ...] = ()
    committed: Mapping[str, Evidence] = field(default_factory=dict)
    repeated: int = 0
    exact: int = 0
    weakened: tuple[Weakening, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code of the worst problem; see `rlverify.records.problems.exit_code_of`."""
        return exit_code_of(self.problems)


MOST_LINES: Final = 60
MOST_OTHERS: Final = 12
SHOWN_CHANGES: Final = 2
SHOWN_IDS: Final = 6
SHOWN_PARTS: Final = 3
SHOWN_REASONS: Final = 2
SHOWN_LINES: Final = 3
"""Lines of an edit that a block quotes."""
LONGEST_VALUE: Final = 120
"""Characters of a value; the whole is in the JSON of the run."""
MOST_OF_A_KIND: Final = 3
MOST_WEAKENED: Final = 20
LONGEST_PART: Final = 70
"""Characters of what it was and of what it is; the whole is in the table and in JSON."""


def lines_of(outcome: Outcome, files: str = "--junit FILE or --json FILE") -> list[str]:
    """At most `MOST_LINES` lines, the worst first."""
    after = _after_blocks(outcome)
    blocks = _blocks(outcome.fallen)
    if not blocks:
        return after
    head = [_title(outcome), *_changed_line(outcome.fallen), ""]
    room = MOST_LINES - len(head) - len(after) - 1
    shown = _that_fit(blocks, room)
    left = sum(len(group) for group, _ in blocks[len(shown) :])
    more = [f"and {left} more {'claim' if left == 1 else 'claims'} fell; see {files}", ""] if left else []
    return [*head, *(line for _, lines in shown for line in lines), *more, *after]


def block(fallen: FallenClaim) -> list[str]:
    """What happened to one claim, and how to go on."""
    lines = [f"{fallen.claim.id}  {fallen.claim.title}  {fallen.headline}"]
    shown = fallen.changes if len(fallen.changes) == SHOWN_CHANGES + 1 else fallen.changes[:SHOWN_CHANGES]
    before = "committed" if fallen.kind == "values" else "expected"
    lines += [
        f"  {each.symptom}: {before} {_shortened(each.expected)}, observed {_shortened(each.observed)}"
        for each in shown
    ]
    if hidden := len(fallen.changes) - len(shown):
        lines.append(f"  and {hidden} more symptoms")
    lines += [f"  {fallen.reason}"] if fallen.reason else []
    if fallen.suspects:
        suspect = fallen.suspects[0]
        place = f"{suspect}:{fallen.suspect_line} (changed)" if suspect in fallen.changed else suspect
        lines.append(f"  first suspect: {place}")
        lines += [f"    {_shortened(line)}" for line in _few_lines(fallen.edit)]
    return [*lines, f"  reproduce: {fallen.command}"]


def summary(outcome: Outcome) -> str:
    """The last line: how many claims are as expected, and what the exit code means."""
    fell = {each.claim.id for each in outcome.fallen}
    expected = sum(record.as_expected and record.claim.id not in fell for record in outcome.records)
    if outcome.fallen:
        others = len(outcome.records) - expected - len(outcome.fallen)
        words = f"{_claims(len(outcome.fallen))} fell" + f", {others} could not be judged" * bool(others)
    elif outcome.exit_code == HARNESS_FAILED:
        words = "the harness failed"
    elif outcome.exit_code == CLAIM_FELL:
        words = _what_failed(outcome)
    elif expected < len(outcome.records):
        words = "no other has failed"
    else:
        words = "see the notes" if outcome.notes or outcome.weakened else "nothing to report"
    if not outcome.records:
        return f"no claim was measured; {words}"
    return f"{expected} of {len(outcome.records)} claims as expected; {words}"


def _what_failed(outcome: Outcome) -> str:
    """What the exit code 1 means if no claim fell."""
    if in_suites := sum(problem.kind == "suite" for problem in outcome.problems):
        return f"{in_suites} check{'s' * (in_suites != 1)} of suites not as expected"
    if all(problem.remedy for problem in outcome.problems if problem.exit_code == CLAIM_FELL):
        return "the committed evidence or reports are out of date"
    return "something else failed, see above"


def _title(outcome: Outcome) -> str:
    fell = _claims(len(outcome.fallen))
    if is_regression(outcome.problems):
        return f"{fell} fell: the code does something else than the catalogue and the committed evidence say"
    return f"{fell} fell: the verdicts are as expected, but values differ from the committed evidence"


def _changed_line(fallen: Sequence[FallenClaim]) -> list[str]:
    """What changed, and how many of the claims executed it; the most executed first."""
    counts = Counter(name for each in fallen for name in each.changed_parts)
    names = sorted(counts, key=lambda name: (-counts[name], name))
    if not names:
        return []
    shown = [f"{name} (by {counts[name]})" for name in names[:SHOWN_PARTS]]
    more = [f"and {len(names) - SHOWN_PARTS} more"] if len(names) > SHOWN_PARTS else []
    return [f"changed code that fallen claims executed: {', '.join([*shown, *more])}"]


def _few_lines(edit: Sequence[str]) -> Sequence[str]:
    return edit if len(edit) <= SHOWN_LINES + 1 else [*edit[:SHOWN_LINES], f"and {len(edit) - SHOWN_LINES} more lines"]


def _blocks(fallen: Sequence[FallenClaim]) -> list[tuple[list[FallenClaim], list[str]]]:
    """The claims that fell for one reason, and the lines about them: those of the first, and the ids of the others."""
    causes = list(dict.fromkeys(each.cause for each in fallen))
    grouped = groupby(sorted(fallen, key=lambda each: causes.index(each.cause)), key=lambda each: each.cause)
    found = []
    quoted: set[tuple[str, ...]] = set()
    for _, members in grouped:
        first, *others = group = list(members)
        first = replace(first, edit=()) if first.edit in quoted else first
        quoted.add(first.edit)
        same = [f"  for the same reason: {few((each.claim.id for each in others), SHOWN_IDS)}"] if others else []
        found.append((group, [*block(first), *same, ""]))
    return found


def _that_fit(
    blocks: Sequence[tuple[list[FallenClaim], list[str]]], room: int
) -> Sequence[tuple[list[FallenClaim], list[str]]]:
    total = sum(len(lines) for _, lines in blocks)
    if total <= room:
        return blocks
    room -= 2  # for the line that says how many more fell
    for number, (_, lines) in enumerate(blocks):
        room -= len(lines)
        if room < 0 and number > 0:
            return blocks[:number]
    return blocks


def _after_blocks(outcome: Outcome) -> list[str]:
    others = [str(problem) for problem in with_advice(outcome.problems) if problem.kind in ("other", "suite")]
    if len(others) > MOST_OTHERS:
        others = [*others[: MOST_OTHERS - 1], f"and {len(others) - MOST_OTHERS + 1} more problems; see --json FILE"]
    advice = {each.remedy for each in with_advice(outcome.problems) if each.kind == "values" and each.remedy}
    fell = {each.claim.id for each in outcome.fallen}
    problems = [each for each in with_advice(outcome.problems) if each.subject not in fell]
    stale = _in_one_line([each for each in problems if each.kind == "stale"], "committed results are out of date")
    pins = _in_one_line([each for each in problems if each.kind == "pin"], "claims have stale faults")
    lines = [*others, *advice, *pins, *stale, *outcome.notes, *lines_of_weakened(outcome.weakened)]
    return [*lines, *([outcome.selection] if outcome.selection else []), summary(outcome)]


def _in_one_line(problems: Sequence[Problem], what: str) -> list[str]:
    """One line for several problems of a kind, with the first reasons, each with its remedy."""
    if len(problems) < 2:
        return [str(problem) for problem in problems]
    why = [*dict.fromkeys("; ".join(filter(None, (each.sentence, each.remedy))) for each in problems)]
    subjects = few((problem.subject for problem in problems), SHOWN_IDS)
    return [f"{len(problems)} {what} ({subjects}): {few(why, SHOWN_REASONS, '; ')}"]


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."


def _claims(number: int) -> str:
    return f"{number} {'claim' if number == 1 else 'claims'}"


def lines_of_weakened(weakened: Sequence[Weakening]) -> list[str]:
    """A line for each, of which a kind has at most `MOST_OF_A_KIND`; none if nothing is weakened."""
    of_kinds: dict[str, list[Weakening]] = {}
    for each in weakened:
        of_kinds.setdefault(each.kind, []).append(each)
    shown = [each for own in of_kinds.values() for each in own[:MOST_OF_A_KIND]][:MOST_WEAKENED]
    left = len(weakened) - len(shown)
    more = [f"  and {left} more; see --summary FILE or --json FILE"] * bool(left)
    title = [f"what this change weakens, or may weaken ({len(weakened)}):"] * bool(weakened)
    return [*title, *(f"  {_in_words(each)}" for each in shown), *more]


def _in_words(one: Weakening) -> str:
    before, after = (shorten(text, LONGEST_PART, placeholder="...") or "nothing" for text in (one.before, one.after))
    return f"{one.kind}: {one.subject}: {before} -> {after}"
