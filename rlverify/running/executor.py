"""What runs tasks: the interface of `rlverify.running.executors`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from rlverify.running.pool import Ended

Task = TypeVar("Task")
Result = TypeVar("Result")
Note: TypeAlias = Callable[[Task, Ended[Result]], None]
OnWait: TypeAlias = Callable[[], None]


class Executor(ABC):
    """Runs tasks.

    :param jobs: how many at the same time
    """

    jobs: int

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        note: Note[Task, Result] = lambda *_: None,
        on_wait: OnWait = lambda: None,
    ) -> list[Ended[Result]]:
        """Call a function with each of the tasks, which are started in their order.

        :param function: of a module that a worker can import; must not raise
        :param note: called once for each task, when it has ended
        :param on_wait: called at least every second while tasks run; inline and in threads, after each task
        :return: what became of each task, in their order
        :raises KeyboardInterrupt: after the workers have been stopped
        """
        return self._map(function, tasks, note, on_wait)

    @abstractmethod
    def _map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], note: Note[Task, Result], on_wait: OnWait
    ) -> list[Ended[Result]]:
        """As `map`."""

    def close(self) -> None:  # noqa: B027  # most executors keep nothing between maps
        """End what was started for all maps; another map starts it again."""
