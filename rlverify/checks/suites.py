"""Suites: a project's own claims about its algorithm, in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rlverify.checks.adapters.adapter import Adapter
from rlverify.checks.engine.check_records import CheckFinding, CheckRecord, ExpectedFailures, Status
from rlverify.checks.engine.faults import GenericFault
from rlverify.checks.engine.rule import RULES, Rule, passing
from rlverify.checks.engine.rule_runs import check_subject, rule_named
from rlverify.checks.engine.subjects import Subject, check_settings
from rlverify.checks.state.tree import is_below

CLAIMS = "claims"
"""The family of claims."""


class Suite:
    """Checks and claims about one algorithm.

    A claim names a check of the suite and a fault. It holds if the check passes on the algorithm as it is, and fails
    once the fault is planted: a check that has never failed proves nothing.

        suite = Suite("my-ppo", make=lambda seed: MyPPO("MlpPolicy", envs(seed), seed=seed))
        suite.add(checks.resume(steps=2048, interrupt_at=1024), checks.save_load(state=["ret_ema"]))
        suite.claim("MY-01", "The return average survives load()", check="save_load", fault=faults.forget("ret_ema"))

    ``parametrize_with_checks([suite])``, ``rlverify check module:suite`` and ``suites`` in ``[tool.rlverify]``, for
    ``rlverify gate``, run it.

    A check can fail for several parts of the state. A claim about one of them, by a fault that forgets it, fails for
    that part alone.

    :param name: of the suite
    :param make: makes a fresh model from a seed, with its environment
    :param seeds: all checks run under each of them
    :param adapter, expected_failures, limit: as those of `rlverify.checks.subject`
    :raises ValueError: if no seed is given, or another argument cannot be used
    """

    def __init__(
        self,
        name: str,
        make: Callable[[int], Any],
        *,
        adapter: Adapter | None = None,
        seeds: Sequence[int] = (0,),
        expected_failures: ExpectedFailures | None = None,
        limit: float = 60.0,
    ) -> None:
        if not seeds:
            raise ValueError(f"the suite {name!r} has no seed, so nothing would be checked; give seeds=[0]")
        check_settings(adapter, limit)
        self.name = name
        self.make, self._adapter, self._seeds, self._limit = make, adapter, tuple(seeds), limit
        self._expected = dict(expected_failures or {})
        self._rules: dict[str, Rule] = {}

    def add(self, *checks: Rule | str) -> None:
        """Add checks: those of `rlverify.checks.checks`, or names of the rules for any algorithm.

        :raises ValueError: if there is a check or claim of this name already, or a rule for any algorithm has it
        :raises UnknownRuleError: if there is no rule of a name
        """
        for each in checks:
            self._register(rule_named(each) if isinstance(each, str) else each)

    def claim(self, name: str, title: str, *, check: str, fault: GenericFault) -> None:
        """Claim that a check of the suite passes, and fails once a fault is planted.

        :param name: of the claim, such as ``MY-01``
        :param title: what is claimed, in a sentence
        :raises ValueError: if there is a check or claim of this name already, no such check, or no such fault
        """
        if not isinstance(fault, GenericFault):
            raise ValueError(f"{name}: fault={fault!r:.60} is no fault; give one, such as faults.forget(path)")
        if check not in self._rules:
            raise ValueError(
                f"{name}: the suite {self.name!r} has no check {check!r} ({', '.join(self._rules) or 'none so far'}); "
                "add it before the claim"
            )
        own = self._rules[check]
        claimed = replace(
            own,
            name=name,
            family=CLAIMS,
            expected=title,
            function=lambda session: _about(fault, own.function(session)),
            faults=lambda _session: [fault],
            must_be_proven=True,
            blamed="caller",
        )
        self._register(claimed)

    def _register(self, rule: Rule) -> None:
        if rule.name in self._rules:
            raise ValueError(f"the suite {self.name!r} has a check {rule.name!r} already; give it another name")
        if RULES.get(rule.name, rule) is not rule:
            raise ValueError(f"{rule.name!r} is the name of a rule for any algorithm; give the check another name")
        self._rules[rule.name] = rule

    @property
    def subjects(self) -> list[Subject]:
        """The algorithm under each seed, with the checks and claims of the suite."""
        own: dict[str, Any] = {"expected_failures": self._expected, "limit": self._limit, "rules": self._rules}
        names = {each: self.name if len(self._seeds) == 1 else f"{self.name}[seed={each}]" for each in self._seeds}
        return [
            Subject(name, partial(self.make, each), self._adapter, as_is=True, **own) for each, name in names.items()
        ]

    def run(self) -> list[CheckRecord]:
        """The records of all checks and claims under all seeds."""
        return [record for each in self.subjects for record in check_subject(each)]


def _about(fault: GenericFault, found: CheckFinding) -> CheckFinding:
    """The finding of a check, or that nothing is wrong if all causes are other parts of the state than the fault's."""
    if found.status is not Status.FAIL or not fault.path or not found.causes:
        return found
    is_own = any(is_below(each, fault.path) or is_below(fault.path, each) for each in found.causes)
    return found if is_own else passing()
