"""Makes every check of every subject a pytest test of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rlverify.checks.check_records import CheckRecord, Status
from rlverify.checks.engine import check_subject, rule_named
from rlverify.checks.rule import RULES
from rlverify.checks.subjects import Subject
from rlverify.checks.table import details


def parametrize_with_checks(
    subjects: Sequence[Subject], *, checks: Iterable[str] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator for a test function with one argument ``check``, which it calls.

        @parametrize_with_checks([subject(lambda: PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=0), name="ppo")])
        def test_training(check):
            check()

    The ids are ``SUBJECT-CHECK``, so ``-k`` selects subjects and checks. A check that does not apply or cannot tell is
    skipped with its reason; an expected failure is an xfail, and fails the test if it passes.

    :param subjects: with names that differ
    :param checks: names of the checks; by default all
    :raises ValueError: if two subjects have one name
    :raises UnknownRuleError: if there is no check of a name
    """
    import pytest

    names = [each.name for each in subjects]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two subjects are named {twice[0]!r}; give each a name: subject(..., name=...)")
    chosen = [rule_named(name).name for name in (checks if checks is not None else RULES)]
    tests = [pytest.param(_test(each, name), id=f"{each.name}-{name}") for each in subjects for name in chosen]
    return pytest.mark.parametrize("check", tests)


def _test(each: Subject, name: str) -> Callable[[], CheckRecord]:
    def check() -> CheckRecord:
        (record,) = check_subject(each, checks=[name])
        _judge(record)
        return record

    return check


def _judge(record: CheckRecord) -> None:
    """Give pytest the outcome of a check."""
    import pytest

    text = details(record)
    if record.status in (Status.INCONCLUSIVE, Status.NOT_APPLICABLE):
        pytest.skip(f"{record.status.value}: {record.finding.seen}")
    if record.status is Status.FAIL and record.expected_failure:
        pytest.xfail(record.expected_failure)
    if record.is_unexpected:
        pytest.fail(text, pytrace=False)
