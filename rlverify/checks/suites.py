"""Suites: a project's own checks and claims about its algorithm, in Python.

The functions make checks: resuming with other sizes, parts of the state, and functions of a trained model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rlverify.checks.adapters.adapter import Adapter
from rlverify.checks.engine import faults as faults
from rlverify.checks.engine.check_records import CheckFinding, CheckRecord, ExpectedFailures, Status
from rlverify.checks.engine.faults import GenericFault
from rlverify.checks.engine.rule import RULES, Rule, failing, passing
from rlverify.checks.engine.rule_runs import check_subject, rule_named
from rlverify.checks.engine.session import SubjectSession, digest_of
from rlverify.checks.engine.subjects import Subject, check_settings
from rlverify.checks.rules.resume import forgettable, resume_is_exact
from rlverify.checks.state.tree import find, is_below, leaves_below
from rlverify.records.claims import Severity

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


SUITE: str = "suite"
"""The family of what a suite adds."""


def resume(*, steps: int, interrupt_at: int, name: str = "resume") -> Rule:
    """Training that is saved, loaded in a new process and continued gives the same parameters as without.

    Both learn in two calls, so that a schedule over the steps of one call makes no difference. An algorithm may round
    the steps up, as those of Stable-Baselines3 do to whole rollouts.

    :param steps: of the whole training
    :param interrupt_at: the step after which the model is saved, from 1 to one less than ``steps``
    :param name: of the check in its suite
    :raises ValueError: if ``interrupt_at`` is outside
    """
    if not 0 < interrupt_at < steps:
        raise ValueError(
            f"interrupt_at={interrupt_at} is not inside of a training of {steps} steps; choose a step in it"
        )
    spans = (interrupt_at, steps - interrupt_at)
    return replace(
        RULES["resume_is_exact"],
        name=name,
        family=SUITE,
        expected=f"Training of {steps} steps that is saved and resumed after {interrupt_at} gives the same parameters.",
        function=lambda session: resume_is_exact(replace(session, spans=spans)),
        faults=lambda session: forgettable(replace(session, spans=spans)),
    )


def save_load(*, state: Sequence[str], name: str = "save_load") -> Rule:
    """Parts of the state are the same after a save and a load.

    :param state: paths of attributes of the model, such as ``ret_ema`` or ``policy.optimizer.state``
    :param name: of the check in its suite
    :raises ValueError: if no path is given
    """
    paths = [state] if isinstance(state, str) else list(state)
    if not paths:
        raise ValueError("state is empty, so nothing would be compared; name the attributes that have to survive")

    def survives(session: SubjectSession) -> CheckFinding:
        with session.folder(has_model=True) as folder:
            before, after = session.run(lambda: _before_and_after(session, folder, paths))
        lost = [path for path in paths if before[path] != after[path]]
        if not lost:
            return passing()
        return failing(f"{', '.join(lost)} differ{'s' * (len(lost) == 1)} after the load", where=lost[0], causes=lost)

    return Rule(
        name,
        SUITE,
        "high",
        f"{', '.join(paths)} {'is' if len(paths) == 1 else 'are'} the same after a save and a load.",
        survives,
        rests_on=("deterministic",),
        faults=lambda _session: [faults.forget(path) for path in paths],
        blamed="caller",
    )


def _before_and_after(
    session: SubjectSession, folder: Path, paths: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    model = session.trained_model()
    loaded = session.loaded(folder)
    for path in paths:
        if not leaves_below(model, path):
            raise AttributeError(f"{type(model).__name__} has no {path!r} after training; correct the path")
    return _digests(model, paths), _digests(loaded, paths)


def _digests(model: Any, paths: Sequence[str]) -> dict[str, str]:
    """One digest for each path: of all leaves that belong to it, also where another path is the shorter to them."""
    return {path: repr({each: digest_of(find(model, each)[0]) for each in leaves_below(model, path)}) for path in paths}


def holds(
    function: Callable[[Any], str | None],
    *,
    name: str = "",
    expected: str = "",
    severity: Severity = "high",
    faults: Sequence[GenericFault] = (),
    after_load: bool = False,
) -> Rule:
    """A rule of one's own about a trained model.

    :param function: gets a model after training, and returns what is wrong with it; None or an empty text for nothing.
        Another value, such as True, is an error of the check
    :param name: of the check in its suite; by default that of the function
    :param expected: what holds, in a sentence; by default the first line of the function's documentation
    :param faults: those that prove it, such as ``faults.overwrite("ret_ema", 0.0)``; with ``after_load`` also those in
        load(), such as ``faults.forget("ret_ema")``
    :param after_load: whether the function gets the model after a load too, and once more after some training then
    :raises ValueError: if the function has no name and none is given
    """
    shown = name or getattr(function, "__name__", "<lambda>")
    if shown == "<lambda>":
        raise ValueError("the function has no name that a report could show; give one: holds(function, name=...)")

    def checked(session: SubjectSession) -> CheckFinding:
        def wrong_in(model: Any) -> str | None:
            found = function(model)
            if found is not None and not isinstance(found, str):
                raise TypeError(f"{shown} returned {found!r:.80}; return None, or what is wrong as a text")
            return found

        def loaded(folder: Path) -> str | None:
            model = session.loaded(folder)
            wrong = wrong_in(model)
            session.learn(model, session.steps_after)
            return wrong or wrong_in(model)

        wrong = session.run(lambda: wrong_in(session.trained_model()))
        if wrong or not after_load:
            return failing(wrong) if wrong else passing()
        with session.folder(has_model=True) as folder:
            wrong = session.run(lambda: loaded(folder))
        return failing(wrong, where="after load()") if wrong else passing()

    first = inspect.cleandoc(function.__doc__ or "").partition("\n")[0]
    says = expected or first or f"{shown} finds nothing."
    return Rule(shown, SUITE, severity, says, checked, faults=lambda _: faults, blamed="caller")
