"""Makes every check of every subject a pytest test of its own, and lays out records as text for all doors."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from rlverify.checks.engine.check_records import CheckFinding, CheckRecord, Status
from rlverify.checks.engine.rule import Rule
from rlverify.checks.engine.rule_runs import chosen_rules, record_of
from rlverify.checks.engine.session import TierName, tier_named
from rlverify.checks.engine.subjects import Subject
from rlverify.checks.rules.advice import KNOWN_BUGS, REMEDIES
from rlverify.checks.suites import Suite

ALL_CAUSES: Final = "RLVERIFY_ALL_CAUSES"
"""The environment variable that ``pytest --rlverify-all-causes`` sets."""


def parametrize_with_checks(
    subjects: Sequence[Subject | Suite],
    *,
    checks: Iterable[str] | None = None,
    tier: TierName | None = None,
    strict: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator for a test function with one argument ``check``, which it calls.

        @parametrize_with_checks([subject(lambda: PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=0), name="ppo")])
        def test_training(check):
            check()

    The ids are ``SUBJECT-CHECK``, so ``-k`` selects subjects and checks. A check that does not apply or cannot tell is
    skipped with its reason; an expected failure is an xfail, and fails the test if it passes.

    :param subjects: with names that differ; a suite is its algorithm under each seed, with the suite's checks
    :param checks: names of the checks; by default all
    :param tier: of all subjects, such as ``smoke``; by default each one's own
    :param strict: whether a failure that the library's own class has as well fails the test; it is an xfail otherwise
    :raises TypeError: if a factory is given instead of subjects
    :raises ValueError: if two subjects have one name, there is nothing to check, or there is no such tier
    :raises UnknownRuleError: if there is no check of a name
    """
    import pytest

    if callable(subjects):
        raise TypeError("parametrize_with_checks takes a list; write [subject(make)]")
    every = [one for each in subjects for one in (each.subjects if isinstance(each, Suite) else [each])]
    if tier is not None:
        every = [replace(each, tier=tier_named(tier)) for each in every]
    if strict:
        every = [replace(each, strict=True) for each in every]
    empty = [each.name for each in every if each.rules is not None and not each.rules]
    if empty or not every:
        raise ValueError(f"{empty[0] if empty else 'the list'} has no checks, so nothing would be checked; add some")
    given = [each.name for each in every]
    twice = sorted({name for name in given if given.count(name) > 1})
    if twice:
        raise ValueError(f"two subjects are named {twice[0]!r}; give each a name: subject(..., name=...)")
    names = list(checks) if checks is not None and not isinstance(checks, str) else checks
    tests = [
        pytest.param(_test(each, rule), id=f"{each.name}-{rule.name}")
        for each in every
        for rule in chosen_rules(each, names)
    ]
    return pytest.mark.parametrize("check", tests)


def _test(each: Subject, rule: Rule) -> Callable[[], CheckRecord]:
    def check() -> CheckRecord:
        record = record_of(rule, each, each.runs)
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        record = replace(record, reproduction=f"pytest {shlex.quote(test)}") if test else record
        _judge(record)
        return record

    return check


def _judge(record: CheckRecord) -> None:
    """Give pytest the outcome of a check."""
    import pytest

    text = details(record, all_causes=ALL_CAUSES in os.environ)
    if record.status in (Status.INCONCLUSIVE, Status.NOT_APPLICABLE):
        pytest.skip(f"{record.status.value}: {record.finding.seen}")
    if record.status is Status.FAIL and not record.is_unexpected:
        pytest.xfail(record.expected_failure or record.outcome.removeprefix("fail, "))
    if record.is_unexpected:
        pytest.fail(text, pytrace=False)


def table(records: Sequence[CheckRecord]) -> str:
    """One line for each check, and below it what is wrong."""
    width = max((len(each.check) for each in records), default=0)
    return "".join(f"{_entry(each, width)}\n" for each in records)


def _entry(record: CheckRecord, width: int) -> str:
    line = f"{record.subject}  {record.check:<{width}}  {record.outcome}"
    is_proven = record.status is Status.PASS and all(each.detected for each in record.proofs)
    if not record.is_unexpected and (is_proven or record.is_librarys):
        return line
    return "\n    ".join([line, *details(record).splitlines()[1:]])


def details(record: CheckRecord, *, all_causes: bool = False) -> str:
    """Everything that a reader needs about a check, in some lines.

    :param all_causes: whether each cause of a failure has a line, with whose it is
    """
    found = record.finding
    rows = {
        "expected": found.expected,
        "seen": found.seen,
        "where": found.where,
        "why": found.why,
        "expected failure": record.expected_failure,
        "not detected": ", ".join(each.fault for each in record.proofs if not each.detected),
        **(advice(record) if record.status is Status.FAIL else {}),
    }
    but = ", but a failure is expected" if record.expected_failure and record.status is Status.PASS else ""
    lines = [f"{record.subject}: {record.check}: {record.outcome}{but}"]
    lines += [f"{name}: {text}" for name, text in rows.items() if text]
    if all_causes and found.causes:
        lines += ["causes:", *(f"    {text}" for text in _owned_causes(found))]
    if record.shrunk and record.status in (Status.FAIL, Status.ERROR):
        lines.append(record.shrunk)
    if record.reproduction and record.status in (Status.FAIL, Status.ERROR):
        lines += ["reproduce:", *(f"    {line}" for line in record.reproduction.splitlines())]
    return "\n".join(lines)


def _owned_causes(found: CheckFinding) -> list[str]:
    owners = found.owners if len(found.owners) == len(found.causes) else [None] * len(found.causes)
    pairs = zip(found.causes, owners, strict=True)
    return [f"{cause} ({owner.library}: {owner.name})" if owner and owner.name else cause for cause, owner in pairs]


def advice(record: CheckRecord) -> dict[str, str]:
    """Whose failure it is, its cause and remedy, and public reports of its kind."""
    library = record.library
    reports = [(bug.name, bug.url) for bug in KNOWN_BUGS.get(record.check, ())]
    rows = {"remedy": REMEDIES.get(record.check, ""), "reports": reports}
    if library is not None and record.is_librarys and library.finding is not None:
        found = library.finding
        rows = {"cause": found.cause, "remedy": found.advice or rows["remedy"], "reports": found.reports or reports}
    elif library is not None and library.other_causes:
        rows = {"yours": f"{', '.join(library.other_causes)}; the other causes: {library.text}", **rows}
    return {**rows, "reports": ", ".join(f"{name} ({url})" for name, url in rows["reports"])}  # type: ignore[dict-item]
