"""Where the members of a population train: what every executor does, and the one of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, Self, TypeVar

from rlcore.errors import SettingError
from rlcore.ppo.arguments import whole_number

Task = TypeVar("Task")
Result = TypeVar("Result")


class Executor(Protocol):
    """Calls a function with tasks, somewhere. Enter it as a context manager first; the workers end with the context.

    :param in_process: whether the function runs in this process, so that it can use what lives here
    """

    in_process: bool

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """Call ``function`` with every task, and yield the tasks with their results in the order in which they end.

        A task is taken from ``tasks`` when there is a worker for it. A task whose worker died is given to a new worker,
        at most :data:`rlcore.pbt.workers.RETRIES` times. Warnings of the function are raised again in this process.

        :param function: with the tasks and results it must be something that cloudpickle can pickle, unless
            ``in_process``
        :raises WorkerError: if a task's workers died too often, or none can be reached any more
        :raises Exception: what the function raised, with a note that has the traceback of the worker
        """
        ...


class InlineExecutor:
    """Calls the function in this process, one task after the other.

    It leaves the number of threads as it is. The executors with workers give every worker one thread. Sums over several
    threads can have other bits, so call ``torch.set_num_threads(1)`` to get the same bits from all executors.
    """

    in_process = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing has to end."""

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """See :meth:`Executor.map`."""
        for task in tasks:
            yield task, function(task)


def checked_jobs(jobs: object) -> int:
    """
    :raises SettingError: if it is no whole number of at least 1
    """
    number = whole_number("jobs", jobs)
    if number < 1:
        raise SettingError("jobs", f"jobs={jobs!r} leaves no worker; give at least 1")
    return number
