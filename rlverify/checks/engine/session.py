"""One subject under check: makes, trains, saves and loads it, each in a process of its own, within a tier."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from rlverify.checks.adapters.adapter import Adapter, NotSupportedError
from rlverify.checks.engine.faults import trains_alike
from rlverify.checks.engine.isolation import Failed, in_process
from rlverify.checks.state.leaves import Leaf
from rlverify.checks.state.random_state import global_state, seed_globals, set_global_state
from rlverify.checks.state.trained import named_optimizers, named_parameters
from rlverify.checks.state.tree import digests, walk

TierName = Literal["smoke", "default", "full"]


@dataclass(frozen=True)
class Tier:
    """What is done within a tier.

    :param seconds: after which no further check of a subject is started; None for no limit
    :param finds_reasons: whether a failure of a resume is searched for what was lost
    :param is_full: whether all that could be forgotten is, and the search has no limit
    """

    name: TierName
    seconds: float | None
    plants_faults: bool
    finds_reasons: bool
    is_full: bool


TIERS: Final[dict[str, Tier]] = {
    "smoke": Tier("smoke", 7.0, plants_faults=False, finds_reasons=False, is_full=False),
    "default": Tier("default", None, plants_faults=True, finds_reasons=True, is_full=False),
    "full": Tier("full", None, plants_faults=True, finds_reasons=True, is_full=True),
}


def tier_named(name: str) -> Tier:
    """The tier of a name."""
    if name not in TIERS:
        raise ValueError(f"there is no tier {name!r}; choose from {', '.join(TIERS)}")
    return TIERS[name]


Result = TypeVar("Result")

SEED: Final = 0
OTHER_SEED: Final = 12_345
"""Seeds the global generators of a process that loads a model, as a new process would have other numbers."""


class SubjectError(Exception):
    """The subject crashed, hung or ended its process."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.reason)
        self.failed = failed


@dataclass(frozen=True)
class Trained:
    """A model after some training, in a form that another process can compare.

    :param result: digests of what is trained: parameters, and the state of their optimizers
    """

    state: dict[str, Leaf]
    result: dict[str, str]
    trace: tuple[str, ...] = ()


@dataclass
class Start:
    """A model that was trained for some steps, in a process of which the processes of actions are forks.

    :param trace: one digest for each step
    :param generators: the state of the global random generators after the training
    :param is_used: whether this process has gone on with it
    """

    model: Any
    adapter: Adapter
    steps: int
    trace: list[str]
    generators: dict[str, Any]
    is_used: bool = False


@dataclass
class Known:
    """What sessions of one subject know of it, whatever fault is planted into their adapters.

    :param wholes: training without an interruption, with the adapter that trained and the steps of its pieces
    :param start: a model at the interruption; None if each process trains one of its own
    :param fresh: an unused model, and the global generators after it was made; None once it is used
    """

    spans: tuple[int, int] | None = None
    wholes: list[tuple[Adapter, tuple[int, ...], Trained]] = field(default_factory=list)
    start: Start | None = None
    fresh: tuple[Any, dict[str, Any]] | None = None


@dataclass
class SubjectSession:
    """Runs what checks ask of one subject.

    :param factory: makes a fresh model; called in processes of their own only
    :param volatile: paths of leaves that differ between two equal runs, such as times; found by the first gate
    :param spans: steps before and after an interruption; None for as many as the adapter says
    :param later: how many steps later the interruption is, which a call of learn() of their own trains
    :param shrunk: which settings of the model are smaller than the factory's, in a line
    :param small: runs the same subject with smaller settings, which proves rules and finds reasons in less time
    :param known: shared by the sessions that `dataclasses.replace` makes of this one
    """

    factory: Callable[[], Any]
    adapter: Adapter
    limit: float = 60.0
    volatile: frozenset[str] = field(default=frozenset())
    spans: tuple[int, int] | None = None
    later: int = 0
    tier: Tier = TIERS["default"]
    known: Known = field(default_factory=Known)
    shrunk: str = ""
    small: SubjectSession | None = None

    def run(self, action: Callable[[], Result], *, limit: float | None = None) -> Result:
        """What an action returns, run in a process of its own, which prints no warning: every process would repeat it.

        :raises NotSupportedError: if the adapter cannot do it
        :raises SubjectError: if it does not return
        """
        found = in_process(lambda: _supported(action), self.limit if limit is None else limit)
        if isinstance(found, Failed):
            raise SubjectError(found)
        if isinstance(found, NotSupportedError):
            raise found
        return found

    def make(self) -> Any:
        """A fresh model: the shared one, if this process has not used it; to be called inside of `run`."""
        if self.known.fresh is not None:
            (model, generators), self.known.fresh = self.known.fresh, None
            set_global_state(generators)
            return model
        seed_globals(SEED)
        return self.factory()

    @property
    def steps(self) -> int:
        """Environment steps in which the model is updated at least once; those before an interruption."""
        return self._spans()[0]

    @property
    def steps_after(self) -> int:
        """Environment steps after an interruption."""
        return self._spans()[1]

    def _spans(self) -> tuple[int, int]:
        if self.spans is not None:
            return self.spans
        if self.known.spans is None:
            self.known.spans = self.run(self._asked_spans)
        return self.known.spans

    def _asked_spans(self) -> tuple[int, int]:
        model = self.make()
        return self.adapter.steps(model), self.adapter.steps_after(model)

    def learn(self, model: Any, steps: int) -> list[str]:
        """Train, and give one digest for each step that the adapter reports; to be called inside of `run`."""
        trace = self.adapter.learn(model, steps)
        return [] if trace is None else [digest_of(each) for each in trace]

    def trained_model(self) -> Any:
        """A model that was trained up to the interruption; to be called inside of `run`."""
        return self.trained_with_trace()[0]

    def trained_with_trace(self) -> tuple[Any, list[str]]:
        """Such a model, and what `learn` gave: the shared one, where the adapter trains as the one that trained it."""
        start = self._own_start()
        if start is None or start.is_used:
            model = self.make()
            trace = self.learn(model, self.steps)
        else:
            start.is_used = True
            set_global_state(start.generators)
            model, trace = start.model, list(start.trace)
        return model, trace + self.learn(model, self.later) if self.later else trace

    def _own_start(self) -> Start | None:
        start = self.known.start
        is_own = start is not None and start.steps == self.steps and trains_alike(self.adapter, start.adapter)
        return start if is_own else None

    @property
    def has_start(self) -> bool:
        """Whether a model was trained in the process of which those of actions are forks."""
        return self._own_start() is not None

    def alone(self) -> SubjectSession:
        """The same session, but each of its processes trains a model of its own."""
        return replace(self, known=replace(self.known, start=None, fresh=None))

    def gave_up_start(self) -> bool:
        """Whether there was a shared model; from now on, each process trains one of its own."""
        if self._own_start() is None:
            return False
        self.known.start = self.known.fresh = None
        self.known.wholes.clear()
        return True

    def train_start(self) -> None:
        """Make the models of which the processes of actions get copies, one trained and one fresh, in this process."""
        model = self.make()
        self.known.spans = self.adapter.steps(model), self.adapter.steps_after(model)
        trace = self.learn(model, self.steps)
        self.known.start = Start(model, self.adapter, self.steps, trace, global_state())
        self.known.fresh = self.make(), global_state()

    def supports(self, method: str) -> bool:
        """Whether the adapter overrides a method, which says that it can do what the method is for."""
        return getattr(type(self.adapter), method) is not getattr(Adapter, method)

    def trained(self, model: Any, trace: Sequence[str] = ()) -> Trained:
        """The state of a model; to be called inside of `run`."""
        return Trained(walk(model), self.result(model), tuple(trace))

    def result(self, model: Any) -> dict[str, str]:
        """Digests of what is trained, by name; to be called inside of `run`."""
        modules, optimizers = list(self.adapter.modules(model)), self.adapter.optimizers(model)
        found = {f"parameter {name}": digest_of(each) for name, each in named_parameters(modules).items()}
        for name, optimizer in named_optimizers(model, optimizers).items():
            found.update({f"{name}.{path}": digest for path, digest in digests(optimizer).items()})
        if not found:
            raise NotSupportedError("no trained parameters of torch were found; override Adapter.modules()")
        return found

    @contextmanager
    def folder(self, *, has_model: bool = False) -> Iterator[Path]:
        """A folder for what a check saves; with a model of `saved` in it, if asked for."""
        with tempfile.TemporaryDirectory(prefix="rlverify-check-") as name:
            if has_model:
                self.saved(Path(name))
            yield Path(name)

    def saved(self, folder: Path) -> None:
        """Save a model that was trained up to the interruption."""
        self.steps  # noqa: B018  # known before the process starts
        self.run(lambda: self.adapter.save(self.trained_model(), folder))

    def saved_and_loaded(self, seen: Callable[[Any], Result]) -> tuple[Result, Result]:
        """What a function sees of a model that was trained and saved, and of the one that is loaded from there."""
        with self.folder() as folder:

            def trained() -> Result:
                model = self.trained_model()
                self.adapter.save(model, folder)
                return seen(model)

            self.steps  # noqa: B018  # known before the process starts
            return self.run(trained), self.run(lambda: seen(self.loaded(folder)))

    def loaded(self, folder: Path) -> Any:
        """A model that `saved` wrote, with global generators in another state; to be called inside of `run`."""
        fresh = self.make()
        seed_globals(OTHER_SEED)
        model = self.adapter.load(folder, fresh)
        if model is None:
            raise TypeError("load() of the adapter returned None; return the model that was loaded")
        return model


def digest_of(value: Any) -> str:
    """A text that is equal for equal values of any kind."""
    found = digests(value)
    return found[""] if list(found) == [""] else repr(found)


def _supported(action: Callable[[], Result]) -> Result | NotSupportedError:
    hide_warnings()
    try:
        return action()
    except NotSupportedError as error:
        return NotSupportedError(str(error))  # of this class, so that it can be sent


def hide_warnings() -> None:
    """From now on, print no warning in this process; filters can turn them into errors."""
    warnings.showwarning = lambda *_of_the_warning, **_more: None


def first_difference(first: Sequence[Any], second: Sequence[Any]) -> int | None:
    """The number of the first step, from 1, at which two traces differ; None if they are equal."""
    for number, (one, other) in enumerate(zip(first, second, strict=False), start=1):
        if one != other:
            return number
    return None if len(first) == len(second) else min(len(first), len(second)) + 1
