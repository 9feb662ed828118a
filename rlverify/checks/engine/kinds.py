"""Kinds of subjects that are no algorithms: optimizers, gradient transforms, states of environments, checkpoints.

Their rules are run and proven as those for algorithms are. The subject takes the place of the adapter: a
fault makes a wrong subject of a right one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypedDict, TypeVar, Unpack, cast

from rlverify.checks.adapters.adapter import Adapter
from rlverify.checks.engine.check_records import CheckFinding, CheckRecord, ExpectedFailures
from rlverify.checks.engine.faults import GenericFault
from rlverify.checks.engine.rule import Rule, rule
from rlverify.checks.engine.rule_runs import chosen_rules, installed_modules, preload, record_of
from rlverify.checks.engine.session import SEED, SubjectSession
from rlverify.checks.engine.subjects import Runs, Subject, check_settings
from rlverify.checks.engine.twins import Twin, distribution_of
from rlverify.checks.state.random_state import seed_globals
from rlverify.records.attempts import Crash, attempt
from rlverify.records.claims import Severity

Checked = TypeVar("Checked")
RuleFunction = Callable[[Checked], CheckFinding]


class CheckOptions(TypedDict, total=False):
    """The options of the functions that check one kind of subject.

    ``name`` is that of the records, by default the factory's; ``checks`` names the rules to run, by default all;
    ``expected_failures`` has reasons, or `KnownFailure`, by name of the rule, and a rule that passes in spite of it is
    reported; ``limit`` is how many seconds each process of a check may take, by default 60; ``strict`` counts failures
    that the nearest class of torch has as well.
    """

    name: str
    checks: Iterable[str] | None
    expected_failures: ExpectedFailures | None
    limit: float
    strict: bool


@dataclass
class Kind(Generic[Checked]):
    """A kind of subject.

    :param nearest: the class of a library that a subject is or is most alike, and a subject of it; None for the latter
        if the subject is such a one. It is called in a process of its own. A failure that this class has as well is the
        library's
    """

    family: str
    door: str
    rules: dict[str, Rule] = field(default_factory=dict)
    nearest: Callable[[Checked], tuple[type, Checked | None]] | None = None

    def rule(
        self, severity: Severity, *, faults: Sequence[GenericFault] = ()
    ) -> Callable[[RuleFunction[Checked]], RuleFunction[Checked]]:
        """Register the decorated function as a rule of its name; it runs in a process of its own."""

        def register(function: RuleFunction[Checked]) -> RuleFunction[Checked]:
            @functools.wraps(function)
            def found(session: SubjectSession) -> CheckFinding:
                def action() -> CheckFinding:
                    seed_globals(SEED)
                    return function(cast("Checked", session.adapter))

                return session.run(action)

            rule(self.family, severity, faults=faults, blamed="rule", rules=self.rules)(found)
            return function

        return register

    def check(
        self, subject: Checked, factory: object, uses: Callable[[], object], **options: Unpack[CheckOptions]
    ) -> list[CheckRecord]:
        """Run the rules on a subject.

        :param uses: uses the subject once, so that the libraries that it needs are imported here and once
        """
        limit, expected_failures = options.get("limit", 60.0), options.get("expected_failures") or {}
        name: str = options.get("name") or getattr(factory, "__name__", "") or type(factory).__name__
        check_settings(None, limit)
        made = Subject(
            name,
            object,
            expected_failures=expected_failures,
            limit=limit,
            strict=options.get("strict", False),
            rules=self.rules,
            door=self.door,
        )
        session = SubjectSession(object, cast("Adapter", subject), limit)
        before, nearest_of = installed_modules(), self.nearest

        def look() -> tuple[list[str], tuple[type, Checked | None] | None]:
            attempt(uses)
            nearest = None if nearest_of is None else attempt(lambda: nearest_of(subject))
            return sorted(installed_modules() - before), None if isinstance(nearest, Crash) else nearest

        found = attempt(lambda: session.run(look))
        imported, nearest = ([], None) if isinstance(found, Crash) else found
        preload(imported)
        runs = Runs(session, twin=(_twin(session, nearest),))
        return [record_of(rule, made, runs) for rule in chosen_rules(made, options.get("checks"))]


def _twin(session: SubjectSession, nearest: tuple[type, Any] | None) -> Twin | None:
    if nearest is None:
        return None
    kind, subject = nearest
    twin = None if subject is None else replace(session, adapter=subject)
    return Twin(twin, kind.__name__, distribution_of(kind.__module__.partition(".")[0]))
