"""What executors with workers share: jobs, answers, and another try for a job whose worker died."""

from __future__ import annotations

import traceback
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import cloudpickle
import torch

from rlcore.errors import CallOrderError, WorkerError
from rlcore.pbt.executors import Result, Task

RETRIES: Final = 3
"""How often a task whose worker died is given to a new worker."""
POLL: Final = 1.0
"""Seconds between two looks at the workers; a process that a dead worker started can keep its pipes open."""


@dataclass(frozen=True)
class _Report:
    """What a worker answers: the value of the function, or its error with the traceback."""

    value: Any = None
    error: BaseException | None = None
    trace: str = ""
    warned: tuple[tuple[str, type[Warning], str, int], ...] = ()


def answered(payload: bytes) -> bytes:
    """Call a pickled function with its pickled task, on one thread, and pickle the report."""
    torch.set_num_threads(1)
    value, error, trace = None, None, ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            function, task = cloudpickle.loads(payload)
            value = function(task)
        except (Exception, KeyboardInterrupt) as raised:  # noqa: BLE001 - the parent raises whatever it is
            error, trace = raised, traceback.format_exc()
    warned = tuple((str(each.message), each.category, each.filename, each.lineno) for each in caught)
    return _pickled(_Report(value, error, trace, warned))


def _pickled(report: _Report) -> bytes:
    try:
        content: bytes = cloudpickle.dumps(report)
        if report.error is not None:
            cloudpickle.loads(content)
    except Exception as error:  # noqa: BLE001 - classes define how they are pickled
        why = f"{type(error).__name__}: {error}"
        said = report.error if report.error is not None else report.value
        text = f"a worker cannot send back a {type(said).__name__} ({why}): {str(said)[:300]}"
        return cloudpickle.dumps(_Report(error=WorkerError(text), trace=report.trace))  # type: ignore[no-any-return]
    return content


class Answers:
    """Unpacks reports; remembers which warnings were shown."""

    def __init__(self) -> None:
        self._shown: dict[Any, Any] = {}

    def value_of(self, answer: bytes) -> Any:
        """
        :raises Exception: what the function raised
        """
        report: _Report = cloudpickle.loads(answer)
        for message, category, filename, line in report.warned:
            warnings.warn_explicit(message, category, filename, line, registry=self._shown)
        if report.error is not None:
            if report.trace:
                report.error.add_note(f"in a worker:\n{report.trace}")
            raise report.error
        return report.value


@dataclass(frozen=True)
class Death:
    """How a worker died that had a job, and what can be done about it; for an error."""

    how: str
    advice: str


@dataclass
class Job:
    """A task, and how the workers that had it died."""

    task: Any
    payload: bytes
    deaths: list[Death] = field(default_factory=list)

    def require_another_try(self) -> None:
        """
        :raises WorkerError: if its workers died too often
        """
        if len(self.deaths) > RETRIES:
            how = ", ".join(each.how for each in self.deaths)
            raise WorkerError(
                f"{self.task}: {len(self.deaths)} worker processes died ({how}), so it is not tried again; "
                f"{self.deaths[-1].advice}"
            )


class _FirstError:
    """Keeps the first error that is raised inside, so that what has ended can be yielded before it is raised."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> None:
        """Nothing has to begin."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self.error = self.error or error
        return True


class OnWorkers(ABC):
    """Gives jobs to workers, and a job whose worker died to another one; a subclass knows the workers."""

    in_process = False

    def __init__(self) -> None:
        self._answers = Answers()
        self._again: deque[Job] = deque()
        self._mapping: object = None
        """Which call of :meth:`map` has the workers."""

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """See :meth:`Executor.map`. It takes the workers from an earlier call that has not come to its end.

        :raises CallOrderError: outside the context, or if a later call has taken the workers
        """
        jobs = (Job(task, cloudpickle.dumps((function, task))) for task in tasks)
        self._mapping = own = object()
        first = _FirstError()
        try:
            self._drop_jobs()
            self._fill(jobs)
            while first.error is None and self._has_running():
                answers = self._answers_in(first)
                if first.error is None:
                    with first:
                        self._fill(jobs)
                for task, answer in answers:
                    value = None
                    with first:
                        value = (self._answers.value_of(answer),)
                    if value is not None:
                        yield task, value[0]
                        if self._mapping is not own:
                            raise CallOrderError("the executor has begun another map, which ended this one")
            if first.error is not None:
                raise first.error
        finally:
            if self._mapping is own:
                self._drop_jobs()

    def _drop_jobs(self) -> None:
        """Nothing of what was given to the workers may reach a later call."""
        self._again.clear()
        self._stop_running()

    def _answers_in(self, first: _FirstError) -> list[tuple[Any, bytes]]:
        """The tasks that have ended, with their answers; the job of a worker that died is tried again."""
        answers = []
        for job, end in self._ended():
            with first:
                if isinstance(end, WorkerError):
                    raise end
                if isinstance(end, Death):
                    job.deaths.append(end)
                    job.require_another_try()
                    self._again.append(job)
                else:
                    answers.append((job.task, end))
        return answers

    def _fill(self, jobs: Iterator[Job]) -> None:
        """Give the workers jobs, while there are jobs and room."""
        while self._has_room():
            job = self._again.popleft() if self._again else next(jobs, None)
            if job is None:
                return
            self._give(job)

    @abstractmethod
    def _has_room(self) -> bool:
        """Whether another job can be given.

        :raises CallOrderError: outside the context
        """

    @abstractmethod
    def _give(self, job: Job) -> None:
        """Start a job.

        :raises WorkerError: if it cannot be started
        """

    @abstractmethod
    def _has_running(self) -> bool:
        """Whether a worker has a job."""

    @abstractmethod
    def _ended(self) -> list[tuple[Job, bytes | Death | WorkerError]]:
        """The jobs that have ended, after a wait of at most :data:`POLL`, each with its answer or why there is none."""

    @abstractmethod
    def _stop_running(self) -> None:
        """Stop the workers that have a job, and forget the jobs."""
