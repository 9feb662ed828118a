"""Rules about going on after a save and a load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from rlverify.checks import generic_faults as faults
from rlverify.checks.check_records import CheckFinding
from rlverify.checks.gates import apart, whole
from rlverify.checks.generic_faults import GenericFault
from rlverify.checks.random_state import global_state, set_global_state
from rlverify.checks.rule import failing, passing, rule
from rlverify.checks.session import SubjectError, SubjectSession, Trained
from rlverify.checks.state_tree import Difference, children, differences, leaf_of, walk

GLOBALS: Final = "global random generators"
MOST_LEAVES: Final = 24
"""Leaves that are left out one by one, of each part of the state."""
SHOWN: Final = 8
TIMES: Final = 3
"""How often a model is saved and loaded again."""


def forgettable(session: SubjectSession) -> Sequence[GenericFault]:
    """Faults that forget one leaf: of each part of the state one that training changes and that load() restores."""

    def action() -> list[str]:
        model = session.make()
        session.adapter.learn(model, session.steps)
        initial, state = walk(session.make()), walk(model)
        learnt = [path for path in state if path in initial and state[path].digest != initial[path].digest]
        chosen = {path.split("[")[0].split(".")[0] + _kind(path): path for path in reversed(learnt)}
        return [path for path in chosen.values() if path not in session.volatile]

    session.steps  # noqa: B018  # known before the process starts
    return [faults.forget(path) for path in sorted(session.run(action))]


def _kind(path: str) -> str:
    return " state" if ".state[" in path else ""


@rule(
    "resume",
    "high",
    "Training that was saved, loaded in a new process and continued gives the same parameters as without.",
    rests_on=["deterministic", "observing_changes_nothing"],
    faults=forgettable,
)
def resume_is_exact(session: SubjectSession) -> CheckFinding:
    """Stopping and resuming gives the same training as not stopping.

    If it does not, a run cannot be reproduced after an interruption, and a comparison of runs compares their
    interruptions. The rule says which parts of the state make the difference: it copies everything that differs from
    the saved model into the loaded one, and then leaves out one part at a time.
    """
    steps = session.steps
    with session.folder() as name:
        folder = Path(name)
        session.saved(steps, folder)

        def resumed() -> Trained:
            model = session.loaded(folder)
            return session.trained(model, session.adapter.learn(model, steps))

        found, expected = session.run(resumed), whole(session)
        if found.result == expected.result:
            return passing()
        half = Trained(expected.state, expected.result, expected.trace[len(expected.trace) - len(found.trace) :])
        needed = _Search(session, folder, expected.result).needed()
    text = apart(half, found)
    lost = f"; lost: {', '.join(needed.paths[:SHOWN])}" if needed.paths else ""
    more = f" and {len(needed.paths) - SHOWN} more" if len(needed.paths) > SHOWN else ""
    return failing(text["seen"] + lost + more, where=f"{text['where']} after the load", why=needed.reason)


@dataclass(frozen=True)
class Needed:
    """The leaves without which training does not go on exactly.

    :param reason: in words, with what was tried
    """

    paths: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class _Search:
    """Finds the parts of the state that a load loses, by copying them back and leaving some out.

    :param expected: what training gives that was not interrupted
    """

    session: SubjectSession
    folder: Path
    expected: dict[str, str]

    def needed(self) -> Needed:
        """The leaves that have to be restored, or why that is not known."""
        lost = [path for path in self.session.run(self._lost) if path not in self.session.volatile]
        if not self._is_exact_without(()):
            opaque = "; ".join(self.session.run(self._opaque)[:SHOWN])
            tried = f"copying all {len(lost)} leaves that differ does not make it exact"
            return Needed((), f"{tried}; not seen: {opaque or 'nothing'}")
        needed: list[str] = []
        for part in dict.fromkeys(map(part_of, [*lost, GLOBALS])):
            own = [path for path in lost if part_of(path) == part] or [part]
            if not self._is_exact_without(own):
                single = own[:MOST_LEAVES] if 1 < len(own) <= MOST_LEAVES else []
                needed += [path for path in single if not self._is_exact_without([path])] or [part]
        return Needed(tuple(needed), f"restoring {', '.join(needed[:SHOWN])} makes it exact" if needed else "")

    def _pair(self) -> tuple[Any, dict[str, Any], Any]:
        session = self.session
        model = session.make()
        session.adapter.learn(model, session.steps)
        return model, global_state(), session.loaded(self.folder)

    def _lost(self) -> list[str]:
        model, _, loaded = self._pair()
        return [each.path for each in differences(model, loaded)]

    def _opaque(self) -> list[str]:
        model, _, _ = self._pair()
        return [f"{path} ({leaf.text})" for path, leaf in walk(model).items() if leaf.opaque]

    def _is_exact_without(self, left_out: Sequence[str]) -> bool:
        """Whether training goes on exactly; a state in which it crashes is not exact."""
        try:
            return self.session.run(partial(self._continued, frozenset(left_out))) == self.expected
        except SubjectError:
            return False

    def _continued(self, left_out: frozenset[str]) -> dict[str, str]:
        """What training gives if everything that was lost is restored but some paths."""
        session = self.session
        model, generators, loaded = self._pair()
        for each in differences(model, loaded):
            if each.path not in left_out and each.path not in session.volatile:
                _restored(each)
        if GLOBALS not in left_out:
            set_global_state(generators)
        session.adapter.learn(loaded, session.steps)
        return session.result(loaded)


def part_of(path: str) -> str:
    """The part of the state that a leaf belongs to: the first name of its path."""
    return path if path == GLOBALS else path.split(".")[0].split("[")[0]


def _restored(difference: Difference) -> None:
    """Restore what can be copied; loggers and other objects with files cannot."""
    try:
        difference.restore()
    except (TypeError, ValueError, AttributeError, RuntimeError, KeyError):
        return


@rule(
    "resume",
    "medium",
    "Saving and loading again gives the same state every time.",
    rests_on=["deterministic"],
    faults=[faults.DRIFTING],
)
def save_load_save_is_a_fixed_point(session: SubjectSession) -> CheckFinding:
    """What was loaded and saved again loads to the same state, three times in a row.

    A state that changes with every cycle drifts in long runs that are interrupted often.
    """
    states: list[dict[str, str]] = []
    with session.folder() as name:
        folders = [Path(name) / str(number) for number in range(TIMES + 1)]
        for folder in folders:
            folder.mkdir()
        session.saved(session.steps, folders[0])
        for before, after in pairwise(folders):
            states.append(session.run(partial(_cycled, session, before, after)))
    for number, (one, other) in enumerate(pairwise(states), start=1):
        changed = [path for path in {**one, **other} if one.get(path) != other.get(path)]
        changed = [path for path in changed if path not in session.volatile]
        if changed:
            seen = f"{len(changed)} leaves differ between load {number} and load {number + 1}"
            return failing(seen, where=changed[0])
    return passing()


def _cycled(session: SubjectSession, before: Path, after: Path) -> dict[str, str]:
    model = session.loaded(before)
    session.adapter.save(model, after)
    return {path: leaf.digest for path, leaf in walk(model).items()}


class _LosesArgument(faults.Wrapped):
    def load(self, folder: Path, fresh: Any) -> Any:
        model = self.inner.load(folder, fresh)
        name = next(iter(settings_of(model)))
        setattr(model, name, "another")
        return model


@rule(
    "resume",
    "high",
    "A loaded model has the settings that it was made with.",
    rests_on=["deterministic"],
    faults=[GenericFault("change a setting in load()", _LosesArgument)],
)
def settings_survive(session: SubjectSession) -> CheckFinding:
    """Plain values that training does not change, such as gamma or n_steps, are the same after a load.

    A setting that falls back to its default changes training without an error.
    """
    with session.folder() as name:
        folder = Path(name)
        session.saved(session.steps, folder)

        def action() -> list[tuple[str, str, str]]:
            fresh, model = session.make(), session.make()
            session.adapter.learn(model, session.steps)
            loaded = settings_of(session.loaded(folder))
            before, after = settings_of(fresh), settings_of(model)
            kept = {key: value for key, value in before.items() if after.get(key) == value}
            return [(key, value, loaded.get(key, "missing")) for key, value in kept.items() if loaded.get(key) != value]

        changed = session.run(action)
    changed = [each for each in changed if each[0] not in session.volatile]
    if not changed:
        return passing()
    seen = "; ".join(f"{key} is {now}, expected {before}" for key, before, now in changed[:SHOWN])
    return failing(seen, where=changed[0][0])


def settings_of(model: Any) -> dict[str, str]:
    """The plain public attributes of a model, as text."""
    values = {key[1:]: value for key, value in children(model).items() if not key.startswith("._")}
    numbers = (np.number, np.bool_)  # a file keeps their value and may change their type
    leaves = {name: leaf_of(each.item() if isinstance(each, numbers) else each) for name, each in values.items()}
    plain = {name: leaf.digest for name, leaf in leaves.items() if leaf is not None and ":" in leaf.digest}
    return {name: digest.split(":", 1)[1] for name, digest in plain.items()}


class _OldLearningRate(faults.Wrapped):
    def load(self, folder: Path, fresh: Any) -> Any:
        model = self.inner.load(folder, fresh)
        for optimizer in self.inner.optimizers(model):
            for group in optimizer.param_groups:
                group["lr"] *= 0.5
        return model


@rule(
    "resume",
    "high",
    "The optimizers of a loaded model have the learning rates that they had when it was saved.",
    rests_on=["deterministic"],
    faults=[GenericFault("halve the learning rate in load()", _OldLearningRate)],
)
def learning_rates_continue(session: SubjectSession) -> CheckFinding:
    """Every group of every optimizer has its learning rate again, and other options such as betas and eps.

    A schedule that starts from the beginning, or an optimizer with default options, changes training without an error.
    """
    with session.folder() as name:
        folder = Path(name)
        session.saved(session.steps, folder)

        def action() -> tuple[dict[str, str], dict[str, str]]:
            model = session.make()
            session.adapter.learn(model, session.steps)
            return _options(session, model), _options(session, session.loaded(folder))

        before, after = session.run(action)
    changed = [key for key in before if before[key] != after.get(key)]
    if not changed:
        return passing()
    key = changed[0]
    return failing(f"{key} is {after.get(key, 'missing')}, expected {before[key]}", where=key)


def _options(session: SubjectSession, model: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, optimizer in enumerate(session.adapter.optimizers(model)):
        for place, leaf in walk(optimizer.param_groups).items():
            if "['params']" not in place:
                found[f"optimizers[{number}].param_groups{place}"] = leaf.text
    return found
