"""Runs probes: one process a task, every crash turned into a record."""

from __future__ import annotations

import faulthandler
import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

from rlverify.project.content import Project
from rlverify.project.planting import plant, unreached_hint
from rlverify.project.registry import FAULTS, PROBES, Probe
from rlverify.records.attempts import Crash, attempt
from rlverify.records.claims import Claim
from rlverify.records.errors import FaultError, ProbeError, StaleFaultError, TimeLimitError
from rlverify.records.measured import Observation, Run, Variant
from rlverify.records.process import pin_threads
from rlverify.running.executors import Ended, Executor, Job, Progress

Result = TypeVar("Result")

TIME_LIMIT = 120.0
PATIENCE = 10.0
"""Seconds that code has for ending after its limit, or as many as the limit has where that is shorter."""
AGAIN = 1.0
"""Seconds after which code that swallowed the first error gets the next one."""


class _TimeIsUp(BaseException):
    """Raised inside the code that takes too long; ``except Exception`` does not catch it."""


def hard_limit(seconds: float) -> float:
    """Seconds after which a worker process ends itself, whatever it runs."""
    return seconds + min(seconds, PATIENCE)


def run_within(seconds: float, action: Callable[[], Result]) -> Result:
    """Whatever the action returns; TimeLimitError if the time was up before it ended, whatever it swallowed.

    The alarm reaches Python code, in the main thread, of systems that have SIGALRM (not Windows); elsewhere there is no
    limit. It is repeated until the action ends. A worker process that does not end, because it waits in compiled code
    or swallows every error, ends itself at its `hard_limit` with a traceback on stderr.

    This is a function because an alarm between the end of a ``with`` block and its ``__exit__`` would leave the alarm
    on.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        return action()
    places: list[str] = []

    def give_up(_signal: int, frame: FrameType | None) -> None:
        places.append(f"{'/'.join(Path(frame.f_code.co_filename).parts[-2:])}:{frame.f_lineno}" if frame else "")
        raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, give_up)
    in_worker = multiprocessing.parent_process() is not None
    if in_worker:
        faulthandler.dump_traceback_later(hard_limit(seconds), exit=True)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
            return action()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # again: the alarm may have come right before the first
        signal.signal(signal.SIGALRM, before)
        if in_worker:
            faulthandler.cancel_dump_traceback_later()
        if places and not isinstance(sys.exception(), KeyboardInterrupt):
            raise TimeLimitError(f"did not end within {seconds:g} seconds and stood at {places[0] or 'no Python code'}")


UNWRITTEN: Final = ("what you look at", "what it should be")
"""What the probe of `rlverify new` observes until somebody writes it."""


class _EnoughError(Exception):
    """Stops the runs that have not started."""


@dataclass(frozen=True)
class ProbeTask:
    """One run to be made; small enough to be sent to a worker process."""

    project: Project
    probe: str
    planted: str | None
    seed: int
    limit: float
    variant: Variant = field(compare=False)


def run_task(task: ProbeTask) -> Run:
    """One run; a crash becomes a run with an error, so that it never counts as an outcome."""
    started = time.perf_counter()
    outcome = attempt(lambda: _measure(task), lambda error: _about(task, error))
    seconds = time.perf_counter() - started
    if isinstance(outcome, Crash):
        stale = isinstance(outcome.error, StaleFaultError)
        error = str(outcome.error) if stale else outcome.line
        return Run(task.variant, task.seed, error=error, stale=stale, traceback=outcome.traceback, seconds=seconds)
    return replace(outcome, seconds=seconds)


def _about(task: ProbeTask, error: BaseException) -> Callable[..., object] | None:
    fault = FAULTS.entries.get(task.planted or "")
    return fault.replacement if fault and isinstance(error, FaultError) else PROBES.entries.get(task.probe)


def _measure(task: ProbeTask) -> Run:
    project, name = task.project, task.planted
    pin_threads()  # before the first import of what reads the environment
    measure = project.probe(task.probe)
    pin_threads()
    with redirect_stdout(sys.stderr):  # what a probe prints must not mix with what the program prints
        if name is None:
            return Run(task.variant, task.seed, _observe(task, measure))
        with plant(project.fault(name), project.is_under_test) as planted:
            observations = _observe(task, measure)
            hint = unreached_hint(planted, project.is_under_test)
        if planted.mistakes:  # which the probe mistook for the symptom
            raise FaultError(f"a mistake in fault {name}: {planted.mistakes[0]}")
        return Run(task.variant, task.seed, observations, 0 if hint else planted.executions, hint=hint)


def _observe(task: ProbeTask, measure: Probe) -> tuple[Observation, ...]:
    observations = run_within(task.limit, lambda: measure(*task.project.make(), task.seed))
    if not isinstance(observations, Sequence) or not all(isinstance(each, Observation) for each in observations):
        raise ProbeError(f"probe {task.probe!r} returned {observations!r}; return a list of Observation")
    if any((each.symptom, each.before) == UNWRITTEN for each in observations):
        raise ProbeError(f"probe {task.probe!r} is still the skeleton of `rlverify new`; write what it observes")
    symptoms = [observation.symptom for observation in observations]
    if not symptoms:
        raise ProbeError(f"probe {task.probe!r} observed nothing, which would hold whatever happens")
    if len(set(symptoms)) != len(symptoms):
        raise ProbeError(f"probe {task.probe!r} names one symptom twice: {', '.join(symptoms)}")
    return tuple(observations)


def run_claims(
    project: Project,
    claims: Sequence[Claim],
    *,
    executor: Executor,
    on_progress: Progress,
    limit: float = TIME_LIMIT,
    stop: Callable[[Claim, Sequence[Run]], bool] | None = None,
    beside: Sequence[Job[Any, Any]] = (),
) -> dict[str, tuple[Run, ...]]:
    """All runs of all claims, by claim id; those of one claim in the order of its variants and seeds.

    :param on_progress: called with the number of runs done and the number of all that differ, at least every second
    :param stop: called with a claim and its runs when they have ended; whether to make no other runs. Claims of which
        a run has not ended then are left out of the result
    :param beside: other jobs, which are long: they start first, or last where `stop` may make them needless
    """
    own_tasks = {claim.id: tasks_of(project, claim, claim.seeds, limit) for claim in claims}
    tasks = list(dict.fromkeys(task for own in own_tasks.values() for task in own))
    ended: dict[ProbeTask, Run] = {}

    def runs_of(claim_id: str) -> tuple[Run, ...]:
        return tuple(replace(ended[task], variant=task.variant) for task in own_tasks[claim_id])

    def has_ended(claim_id: str) -> bool:
        return all(task in ended for task in own_tasks[claim_id])

    def note(task: ProbeTask, outcome: Ended[Run]) -> None:
        ended[task] = outcome.result or Run(
            task.variant, task.seed, error=how_it_died(outcome, task.limit), seconds=outcome.seconds
        )
        if stop is not None:
            last = [each for each in claims if task in own_tasks[each.id] and has_ended(each.id)]
            if any(stop(each, runs_of(each.id)) for each in last):
                raise _EnoughError

    own = [Job(run_task, task, note) for task in tasks]
    with suppress(_EnoughError):
        executor.run([*own, *beside] if stop else [*beside, *own], on_progress)
    return {claim_id: runs_of(claim_id) for claim_id in own_tasks if has_ended(claim_id)}


def tasks_of(project: Project, claim: Claim, seeds: Sequence[int], limit: float = TIME_LIMIT) -> list[ProbeTask]:
    """The runs of one claim, in the order of its variants and seeds."""
    planted = {"healthy": None, "faulty": claim.fault, "documented_fix": claim.documented_fix}
    return [
        ProbeTask(project, claim.probe, planted[variant], seed, limit, variant)
        for variant in claim.variants
        for seed in seeds
    ]


def how_it_died(ended: Ended[Result], limit: float) -> str:
    """Error message for a run whose process ended before it."""
    if ended.reason:
        return ended.reason
    code, longest = ended.exit_code or 0, hard_limit(limit)
    if code < 0:
        return f"the process of this run was killed by signal {-code} ({signal.strsignal(-code)})"
    if code == 1 and ended.seconds >= longest:  # as `run_within` ends it
        return f"the process of this run did not end within {longest:g} seconds"
    return f"the process of this run exited with code {code} before the run ended"
