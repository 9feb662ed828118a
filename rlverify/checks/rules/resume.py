"""Rules about going on after a save and a load."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from rlverify.checks.adapters import driving
from rlverify.checks.adapters.adapter import NotSupportedError
from rlverify.checks.engine import faults as faults
from rlverify.checks.engine.check_records import CheckFinding, Status
from rlverify.checks.engine.faults import GenericFault
from rlverify.checks.engine.rule import failing, passing, rule
from rlverify.checks.engine.search import Search
from rlverify.checks.engine.session import SEED, SubjectSession, Trained
from rlverify.checks.rules.gates import apart, whole
from rlverify.checks.state.leaves import Leaf, is_tensor
from rlverify.checks.state.random_state import global_state, seed_globals
from rlverify.checks.state.tree import Difference, children, differences, digests, find, leaf_of, put, unequal, walk
from rlverify.records.attempts import Crash, attempt

SHOWN: Final = 8
TIMES: Final = 3
"""How often a model is saved and loaded again."""
LATER: Final = 3
"""Steps from the first interruption to the second, or a few more."""


def forgettable(session: SubjectSession) -> Sequence[GenericFault]:
    """Faults that forget one leaf: of each part of the state one that training changes and that load() restores.

    In the tier `full`, every such leaf. Two more are those of public reports: the environment starts again, and so do
    the global random generators, if training uses them.
    """

    def action() -> tuple[list[str], bool]:
        model = session.trained_model()
        initial, state = walk(session.make()), walk(model)
        learnt = [path for path in state if path not in session.volatile and _is_learnt(model, path, state, initial)]
        generators = digests(global_state())
        session.learn(model, session.steps_after)
        uses_generators = generators != digests(global_state())
        if session.tier.is_full:
            return learnt, uses_generators
        chosen = {path.split("[")[0].split(".")[0] + " state" * (".state[" in path): path for path in reversed(learnt)}
        return list(chosen.values()), uses_generators

    session.steps  # noqa: B018  # known before the process starts
    paths, uses_generators = session.run(action)
    again = [ENVIRONMENT_AGAIN] * session.supports("environment") + [SEEDS_AGAIN] * uses_generators
    return [*map(faults.forget, sorted(paths)), *again]


ENVIRONMENT_AGAIN: Final = faults.after(
    "load", "reset the environment in load()", lambda inner, model, *_: driving.reset(inner.environment(model)) and None
)
SEEDS_AGAIN: Final = faults.after("load", "seed the global generators in load()", lambda *_: seed_globals(SEED))


def _is_learnt(model: Any, path: str, state: dict[str, Leaf], initial: dict[str, Leaf]) -> bool:
    """Whether training changed a leaf, or made one that can be zero."""
    if path in initial:
        return state[path].digest != initial[path].digest
    value = find(model, path)[0] if state[path].mutable else None
    return is_tensor(value) or isinstance(value, np.ndarray)


@rule(
    "resume",
    "high",
    rests_on=["deterministic", "observing_changes_nothing", "load_returns_a_model"],
    faults=forgettable,
)
def resume_is_exact(session: SubjectSession) -> CheckFinding:
    """Training that was saved, loaded in a new process and continued gives the same parameters as without.

    If it does not, a run cannot be reproduced after an interruption, and a comparison of runs compares their
    interruptions. The rule says which parts of the state make the difference: it copies everything that differs from
    the saved model into the loaded one, and then leaves out parts, down to single values.

    Where the parameters are the same, it interrupts a few steps later too, where no episode ends that ended before, and
    looks for what these steps are too few to show: it gives the numbers that differ after the load other values before
    the interruption, such as a count that is nearly full. Training has to go on exactly from them as well.

    It trains for `steps` and `steps_after` of the adapter, by default an update or a few. What takes effect later goes
    unseen if it is no such number, or if resuming is not exact for another reason, such as one of the library's.
    `checks.resume` of a suite trains for longer, and `checks.save_load` compares what you name.
    """
    found = _resumed_exactly(session)
    if session.spans is not None or found.status is not Status.PASS:
        return found
    small = replace(session.small, volatile=session.volatile) if session.small else session
    later = next(each for each in itertools.count(LATER) if math.gcd(small.steps, each) == 1)
    other = replace(small, later=later)  # no episodes of one length end at both
    if not isinstance(attempt(lambda: whole(other)), Crash):
        found = _resumed_exactly(other)
    return found if found.status is Status.FAIL else nothing_is_lost(small)


def _resumed_exactly(session: SubjectSession) -> CheckFinding:
    """The finding for one interruption."""
    with session.folder(has_model=True) as folder:

        def resumed() -> Trained:
            model = session.loaded(folder)
            return session.trained(model, session.learn(model, session.steps_after))

        found, expected = session.run(resumed), whole(session)
        if found.result == expected.result:
            return passing()
        half = Trained(expected.state, expected.result, expected.trace[len(expected.trace) - len(found.trace) :])
        lost = _lost(session, folder, expected)
    return apart(half, found, " after the load", why=lost.why, causes=lost.causes, owners=lost.owners)


def _lost(session: SubjectSession, folder: Path, expected: Trained) -> CheckFinding:
    """What a load loses, if the tier has the time to find it."""
    if not session.tier.finds_reasons:
        return failing("", why=f"the tier {session.tier.name} does not search for what is lost")
    if session.small is not None:
        found = resume_is_exact(replace(session.small, volatile=session.volatile))
        if found.status is Status.FAIL:
            return found
    return Search(session, folder, expected.result, is_limited=not session.tier.is_full).reason()


@rule("resume", "medium", rests_on=["deterministic", "load_returns_a_model"], faults=[faults.DRIFTING])
def save_load_save_is_a_fixed_point(session: SubjectSession) -> CheckFinding:
    """Saving and loading again gives the same state every time.

    A state that changes with every cycle drifts in long runs that are interrupted often. What differs between two loads
    of one file, such as the state of a new environment, comes from no file and is left out.
    """
    states: list[dict[str, str]] = []
    with session.folder() as top:
        folders = [top / str(number) for number in range(TIMES + 1)]
        for folder in folders:
            folder.mkdir()
        session.saved(folders[0])
        for before, after in pairwise(folders):
            states.append(session.run(partial(_cycled, session, before, after)))
        again = session.run(partial(_cycled, session, folders[0], folders[1]))
    fresh = {*unequal(states[0], again), *session.volatile}
    for number, (one, other) in enumerate(pairwise(states), start=1):
        changed = [path for path in unequal(one, other) if path not in fresh]
        if changed:
            seen = f"{len(changed)} leaves differ between load {number} and load {number + 1}"
            return failing(seen, where=changed[0])
    return passing()


def _cycled(session: SubjectSession, before: Path, after: Path) -> dict[str, str]:
    model = session.loaded(before)
    session.adapter.save(model, after)
    return digests(model)


def _lose_setting(inner: Any, folder: Path, fresh: Any) -> Any:
    before = settings_of(fresh)
    model = inner.load(folder, fresh)
    after = settings_of(model)
    put(model, next(name for name, value in before.items() if after.get(name) == value), "another")
    return model


@rule(
    "resume",
    "high",
    rests_on=["deterministic", "load_returns_a_model"],
    faults=[faults.instead("load", "change a setting in load()", _lose_setting)],
)
def settings_survive(session: SubjectSession) -> CheckFinding:
    """A loaded model has the settings that it was made with.

    Plain values that training does not change, such as gamma or n_steps, are the same after a load. A setting that
    falls back to its default changes training without an error.
    """
    with session.folder(has_model=True) as folder:

        def action() -> list[tuple[str, str, str]]:
            model, fresh = session.trained_model(), session.make()
            loaded = settings_of(session.loaded(folder))
            before, after = settings_of(fresh), settings_of(model)
            kept = {key: value for key, value in before.items() if after.get(key) == value}
            if not kept:
                raise NotSupportedError("the model has no plain public attributes that training leaves as they are")
            return [(key, value, loaded.get(key, "missing")) for key, value in kept.items() if loaded.get(key) != value]

        changed = session.run(action)
    changed = [each for each in changed if each[0] not in session.volatile]
    if not changed:
        return passing()
    seen = "; ".join(f"{key} is {now}, expected {before}" for key, before, now in changed[:SHOWN])
    return failing(seen, where=changed[0][0])


def settings_of(model: Any) -> dict[str, str]:
    """The plain public attributes of a model, as text."""
    public = {key.lstrip("."): value for key, value in children(model).items() if not key.startswith(("._", "['_"))}
    numbers = (np.number, np.bool_)  # a file keeps their value and may change their type
    leaves = {name: leaf_of(each.item() if isinstance(each, numbers) else each) for name, each in public.items()}
    plain = {name: leaf.digest for name, leaf in leaves.items() if leaf is not None and ":" in leaf.digest}
    return {name: digest.split(":", 1)[1] for name, digest in plain.items()}


SIZES: Final = (0, 1)
"""Other values that a number gets: a little, and far away."""


def nothing_is_lost(session: SubjectSession) -> CheckFinding:
    """Whether training goes on exactly after a load from other values too, of all numbers that differ after one."""
    session.steps  # noqa: B018  # known before the processes start
    with session.folder(has_model=True) as folder:
        values = session.run(lambda: _differing(session, folder))
    paths: Sequence[str] = [path for path in values if path not in session.volatile]
    if not paths or not _are_lost(session, paths):
        return passing()
    while len(paths) > 1:
        first, second = _halves(paths)
        paths = first if _are_lost(session, first) else second
    lost = values[paths[0]]
    seen = f"{lost.path} is {lost.second or 'missing'} after the load, expected {lost.first}"
    why = "these steps are too few to show it; from another value, training that is saved and loaded goes on otherwise"
    return failing(seen, where=lost.path, why=why)


def _differing(session: SubjectSession, folder: Path) -> dict[str, Difference]:
    """The numbers that differ after a load."""
    model = session.trained_model()
    found = [replace(each, restore=_nothing) for each in differences(model, session.loaded(folder))]
    return {each.path: each for each in found if _other_value(model, each.path, 0) is not None}


def _continued(session: SubjectSession, paths: Sequence[str], size: int, is_loaded: bool) -> dict[str, str]:
    """What training gives that goes on from other values of numbers, after a save and a load or without."""
    model = session.trained_model()
    for path in paths:
        put(model, path, _other_value(model, path, size))
    if is_loaded:
        with session.folder() as folder:
            session.adapter.save(model, folder)
            model = session.loaded(folder)
    session.learn(model, session.steps_after)
    return session.result(model)


def _are_lost(session: SubjectSession, paths: Sequence[str], sizes: Sequence[int] = SIZES) -> bool:
    """Whether training reads one of these numbers after a load that loses it."""
    for size in sizes:
        runs = (partial(_continued, session, paths, size, way) for way in (False, True))
        expected, found = (attempt(partial(session.run, each)) for each in runs)
        if isinstance(expected, Crash):  # training cannot have one of these values
            if len(paths) > 1 and any(_are_lost(session, each, [size]) for each in _halves(paths)):
                return True
        elif found != expected:
            return True
    return False


def _halves(paths: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    return paths[: len(paths) // 2], paths[len(paths) // 2 :]


def _nothing() -> None:
    """Restore nothing: what does it cannot be sent to another process."""


def _other_value(model: Any, path: str, size: int) -> Any:
    """Another number, array or tensor than that at a path, a little or far away; None for anything else."""
    found: Any = attempt(lambda: find(model, path)[0])
    value = found.detach().clone() if is_tensor(found) else found
    kind = str(getattr(value, "dtype", type(value).__name__))
    if "float" in kind:
        return value * (1.5, 1e3)[size] + 0.25
    return value + (1, 10**6)[size] if "int" in kind and "uint8" not in kind else None
