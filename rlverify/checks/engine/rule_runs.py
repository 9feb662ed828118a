"""Runs rules on subjects, and proves those that pass by planting faults into the subject."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rlverify.checks.adapters.adapter import Adapter, NotSupportedError, adapter_name, adapter_named
from rlverify.checks.engine.check_records import (
    CheckFinding,
    CheckRecord,
    ExpectedFailures,
    Proof,
    Status,
    known_failure,
)
from rlverify.checks.engine.isolation import Failed, Server, in_process, is_copied_by_fork
from rlverify.checks.engine.rule import RULES, Rule, inconclusive
from rlverify.checks.engine.session import Known, SubjectError, SubjectSession, TierName, hide_warnings
from rlverify.checks.engine.subjects import Runs, Subject, subject
from rlverify.checks.engine.twins import library_failure, smaller_model, twin_of, what_is_smaller
from rlverify.checks.state.random_state import kept
from rlverify.records.attempts import Crash, attempt
from rlverify.records.errors import UsageError, suggestion

Progress = Callable[[str, str], None]


def check_algorithm(
    factory: Callable[[], Any] | Any,
    *,
    name: str = "",
    adapter: Adapter | None = None,
    checks: Iterable[str] | None = None,
    expected_failures: ExpectedFailures | None = None,
    limit: float = 60.0,
    tier: TierName = "default",
    strict: bool = False,
    as_is: bool = False,
    on_check: Progress = lambda _subject, _check: None,
) -> list[CheckRecord]:
    """Run the rules on one algorithm; nothing is raised for what the algorithm does.

    The arguments that are not named here are those of `subject`.

    :param factory: makes a model, with its environment and seeds; or a model, which is copied and never changed
    :param checks: names of rules; by default all
    :param on_check: called with the names of subject and rule before each rule
    :raises UnknownRuleError: if there is no rule of a name
    :raises ValueError: if there is no such tier
    """
    own: dict[str, Any] = {"expected_failures": expected_failures, "limit": limit, "tier": tier, "as_is": as_is}
    made = subject(factory, name=name, adapter=adapter, strict=strict, **own)
    return check_subject(made, checks=checks, on_check=on_check)


def check_subject(
    made: Subject, *, checks: Iterable[str] | None = None, on_check: Progress = lambda _subject, _check: None
) -> list[CheckRecord]:
    """Run the rules on a subject, those that others rest on first."""
    chosen, runs = chosen_rules(made, checks), Runs()
    records = []
    for rule in chosen:
        on_check(made.name, rule.name)
        records.append(record_of(rule, made, runs))
    return records


def chosen_rules(made: Subject, checks: Iterable[str] | None = None) -> list[Rule]:
    """The rules of some names, by default all."""
    own = RULES if made.rules is None else made.rules
    known = own if made.door else {**own, **RULES}
    for name in made.expected_failures:
        rule_named(name, known)
    names = [checks] if isinstance(checks, str) else checks
    return [rule_named(name, known) for name in names] if names is not None else list(own.values())


def rule_named(name: str, known: Mapping[str, Rule] = RULES) -> Rule:
    """The rule of a name."""
    if name not in known:
        hint = suggestion(name, known) or f"; choose from {', '.join(known)}"
        raise UnknownRuleError(f"no check is named {name!r}{hint}")
    return known[name]


class UnknownRuleError(UsageError):
    """There is no rule of this name."""


@dataclass(frozen=True)
class Look:
    """What a fresh model shows.

    :param adapter: the name of the adapter that talks to it
    :param modules: those that were imported to make it
    :param is_smaller: whether it trains with smaller settings
    :param shrunk: what was made smaller, in a line; or why nothing was
    """

    adapter: str
    modules: tuple[str, ...]
    is_smaller: bool = False
    shrunk: str = ""


def look_at(made: Subject) -> Look | Failed:
    """Make the subject, in this process; or what is wrong with what its factory returned."""
    before = installed_modules()
    model = SubjectSession(made.factory, Adapter()).make()
    if isinstance(model, type):
        return Failed(f"the factory returned the class {model.__name__}; call it")
    name = adapter_name(model)
    if model is None or (made.adapter is None and name == "plain" and not hasattr(model, "learn")):
        advice = "return the model" if model is None else "give an adapter"
        return Failed(f"the factory returned {type(model).__name__}, which has no learn(); {advice}")
    adapter = adapter_named(name, made.adapter)
    adapter.optimizers(model)
    is_smaller, shrunk = what_is_smaller(adapter, model)
    return Look(name, tuple(sorted(installed_modules() - before)), is_smaller, shrunk)


def session_of(made: Subject, look: Look) -> SubjectSession:
    """What runs a subject that was looked at."""
    adapter = adapter_named(look.adapter, made.adapter)
    session = SubjectSession(made.factory, adapter, made.limit, tier=made.tier)
    small = replace(session, factory=partial(smaller_model, adapter, made.factory), known=Known())
    if made.as_is:
        return replace(session, small=small if look.is_smaller else None)
    return replace(small if look.is_smaller else session, shrunk=look.shrunk)


@dataclass
class _Engine:
    """Runs the rules in the process of a server, which has trained a model."""

    made: Subject
    runs: Runs = field(default_factory=Runs)

    def __call__(self, method: str, *arguments: Any) -> Any:
        return getattr(self, method)(*arguments)

    def look(self) -> Look | Failed:
        found = look_at(self.made)
        if isinstance(found, Look):
            self.runs.session = session_of(self.made, found)
        return found

    def train(self) -> bool:
        hide_warnings()
        assert isinstance(self.runs.session, SubjectSession)
        self.runs.session.train_start()
        if self.runs.session.small is not None:
            self.runs.session.small.train_start()
        return is_copied_by_fork()

    def judge(self, rule: str, base: CheckRecord, is_again: bool) -> CheckRecord:
        assert isinstance(self.runs.session, SubjectSession)
        return _judged(self.made.known_rules[rule], self.runs.session, self.runs, base, is_again=is_again)


def _session(made: Subject, runs: Runs) -> SubjectSession | CheckFinding:
    """What runs the subject, or the finding of every check if the subject cannot be made."""
    server = Server(_Engine(made)) if hasattr(os, "fork") else None
    found = server.ask("look", seconds=made.limit) if server else in_process(lambda: look_at(made), made.limit)
    if isinstance(found, Failed):
        return _error(found)
    if server is not None and server.ask("train", seconds=made.limit) is True:
        runs.server = server
    else:
        preload(found.modules)
    return session_of(made, found)


def record_of(rule: Rule, made: Subject, runs: Runs) -> CheckRecord:
    """Run one rule on a subject, and prove it if it passes."""
    started = time.monotonic()
    if runs.session is None or (runs.server is not None and not runs.server.end.alive):
        runs.session = _session(made, runs)
    session, is_again = runs.session, rule.name in runs.reported
    runs.reported.add(rule.name)
    base = not_run(rule, made)
    known, lines = known_failure(made.expected_failures, rule.name), made.reproduction(rule.name)
    base = replace(base, known=known, strict=made.strict, reproduction=lines)
    if isinstance(session, CheckFinding):
        return replace(base, finding=replace(session, expected=rule.expected))
    if made.tier.seconds is not None and runs.seconds >= made.tier.seconds:
        spent = f"not run: the {made.tier.seconds:g} seconds of the tier {made.tier.name} are used up"
        return replace(base, finding=replace(inconclusive(spent), expected=rule.expected))
    base = replace(base, shrunk=session.shrunk)
    record: CheckRecord | Failed
    if runs.server is not None:
        record = runs.server.ask("judge", rule.name, base, is_again)
    else:
        record = _judged(rule, session, runs, base, is_again=is_again)
    if isinstance(record, Failed):
        record = replace(base, finding=replace(_error(record), expected=rule.expected))
    runs.seconds += time.monotonic() - started
    return record


def not_run(rule: Rule, made: Subject, reason: str = "") -> CheckRecord:
    """The record of a rule that could not be run on a subject."""
    return CheckRecord(
        made.name, rule.name, rule.family, rule.severity, CheckFinding(Status.ERROR, rule.expected, reason)
    )


def _judged(rule: Rule, session: SubjectSession, runs: Runs, base: CheckRecord, *, is_again: bool) -> CheckRecord:
    """The record of a rule that is run, and proven if it passes."""
    if is_again:
        runs.findings.pop(rule.name, None)
    finding = _finding(rule, session, runs.findings)
    base = replace(base, finding=finding)
    if finding.status is Status.FAIL:
        return _of_the_library(rule, session, runs, base)
    if finding.status is not Status.PASS:
        return base
    if not session.tier.plants_faults:
        return replace(base, unproven=f"the tier {session.tier.name} plants no faults")
    proofs, unproven, broken = _proofs(rule, session)
    if unproven and rule.must_be_proven:
        status = Status.ERROR if broken else Status.FAIL
        missed = unproven if broken or not proofs else f"{unproven}: {', '.join(each.fault for each in proofs)}"
        return replace(base, finding=replace(finding, status=status, seen=f"it holds, but {missed}"), proofs=proofs)
    return replace(base, proofs=proofs, unproven=unproven)


def _of_the_library(rule: Rule, session: SubjectSession, runs: Runs, failed: CheckRecord) -> CheckRecord:
    """The record of a failure, with what the library's own class has of it."""
    runs.twin = runs.twin or (twin_of(session),)
    twin = runs.twin[0]
    library = None if twin is None else library_failure(rule, failed.finding, twin, session)
    if twin is None or twin.session is None or library is None or failed.finding.causes or failed.known is not None:
        return replace(failed, library=library)
    seen = f"{failed.finding.seen}; {library.text}, and no cause was looked for that would be yours alone"
    return replace(failed, finding=replace(failed.finding, status=Status.INCONCLUSIVE, seen=seen))


def _finding(rule: Rule, session: SubjectSession, findings: dict[str, CheckFinding]) -> CheckFinding:
    """What a rule found; the rules that it rests on are run first, each once."""
    if rule.name not in findings:
        findings[rule.name] = replace(_found(rule, session, findings), expected=rule.expected)
    return findings[rule.name]


def _found(rule: Rule, session: SubjectSession, findings: dict[str, CheckFinding]) -> CheckFinding:
    for name in rule.rests_on:
        before = _finding(RULES[name], session, findings)
        if before.status not in (Status.PASS, Status.NOT_APPLICABLE):
            return inconclusive(f"{name}: {before.status.value}{f', {before.seen}' if before.seen else ''}")
    return run_rule(rule, session)


def run_rule(rule: Rule, session: SubjectSession) -> CheckFinding:
    """What a rule found, and nothing of what it rests on."""
    found = attempt(lambda: rule.function(session))
    if not isinstance(found, Crash):
        return found
    if isinstance(found.error, NotSupportedError):
        return CheckFinding(Status.NOT_APPLICABLE, seen=str(found.error))
    return _error(_failed(found))


def _error(found: Failed) -> CheckFinding:
    return CheckFinding(Status.ERROR, seen=found.reason, why=f"\n{found.trace}" if found.trace else "")


def _failed(crash: Crash) -> Failed:
    return crash.error.failed if isinstance(crash.error, SubjectError) else Failed(crash.line)


def _proofs(rule: Rule, session: SubjectSession) -> tuple[tuple[Proof, ...], str, bool]:
    """What became of each fault that was planted; why nothing is proven, if so; whether that is for a broken fault."""
    planted = attempt(lambda: list(rule.faults(session)))
    if isinstance(planted, Crash):
        return (), f"no fault could be planted: {_failed(planted).reason}", True
    finds_reasons = session.tier.finds_reasons and rule.must_be_proven  # other proofs ask whether, and not why
    tier = replace(session.tier, finds_reasons=finds_reasons)
    every = [session] if session.small is None else [session.small, session]
    sessions = [replace(each, tier=tier, volatile=session.volatile) for each in every]
    if len(sessions) > 1 and run_rule(rule, sessions[0]).status is not Status.PASS:
        del sessions[0]
    for each in sessions:  # as it is, only if smaller settings give no proof
        found = [run_rule(rule, replace(each, adapter=fault.plant(each.adapter))) for fault in planted]
        pairs = list(zip(planted, found, strict=True))
        proofs = tuple(Proof(fault.text, own.status is Status.FAIL) for fault, own in pairs)
        if any(proof.detected for proof in proofs):
            return proofs, "", False
    broken = [f"{each.text}: {own.seen}" for each, own in pairs if own.status is Status.ERROR]
    if broken:
        return proofs, f"a fault could not be planted: {broken[0]}", True
    missed = f"the check detected none of {len(proofs)} faults" if proofs else "the check has no fault to plant"
    return proofs, missed, False


def installed_modules() -> set[str]:
    """Names of the imported modules that belong to installed libraries or to Python."""
    folders = tuple(str(Path(sysconfig.get_path(name))) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    modules = ((name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items()))
    return {name for name, file in modules if file is not None and file.startswith(folders)}


def preload(names: Iterable[str]) -> None:
    """Import modules that are not imported yet; one that cannot be imported is left out."""
    with warnings.catch_warnings(), kept():
        warnings.simplefilter("ignore")
        for name in names:
            if name not in sys.modules and "__main__" not in name:
                attempt(lambda name=name: importlib.import_module(name))  # type: ignore[misc]
