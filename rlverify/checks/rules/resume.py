"""Rules about going on after a save and a load."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from rlverify.checks.adapters.adapter import Adapter, NotSupportedError
from rlverify.checks.engine import faults as faults
from rlverify.checks.engine.check_records import CheckFinding, Status
from rlverify.checks.engine.faults import GenericFault
from rlverify.checks.engine.rule import failing, passing, rule
from rlverify.checks.engine.search import Reason, Search
from rlverify.checks.engine.session import SubjectSession, Trained
from rlverify.checks.rules.gates import apart, whole
from rlverify.checks.state.trained import optimizer_names
from rlverify.checks.state.tree import Leaf, children, digests, find, is_tensor, leaf_of, put, unequal, walk
from rlverify.records.attempts import Crash, attempt

SHOWN: Final = 8
TIMES: Final = 3
"""How often a model is saved and loaded again."""


def forgettable(session: SubjectSession) -> Sequence[GenericFault]:
    """Faults that forget one leaf: of each part of the state one that training changes and that load() restores.

    In the tier `full`, every such leaf.
    """

    def action() -> list[str]:
        model = session.trained_model()
        initial, state = walk(session.make()), walk(model)
        learnt = [path for path in state if path not in session.volatile and _is_learnt(model, path, state, initial)]
        if session.tier.is_full:
            return learnt
        chosen = {path.split("[")[0].split(".")[0] + " state" * (".state[" in path): path for path in reversed(learnt)}
        return list(chosen.values())

    session.steps  # noqa: B018  # known before the process starts
    return [faults.forget(path) for path in sorted(session.run(action))]


def _is_learnt(model: Any, path: str, state: dict[str, Leaf], initial: dict[str, Leaf]) -> bool:
    """Whether training changed a leaf, or made one that can be zero."""
    if path in initial:
        return state[path].digest != initial[path].digest
    value = find(model, path)[0] if state[path].mutable else None
    return is_tensor(value) or isinstance(value, np.ndarray)


@rule("resume", "high", rests_on=["deterministic", "observing_changes_nothing"], faults=forgettable)
def resume_is_exact(session: SubjectSession) -> CheckFinding:
    """Training that was saved, loaded in a new process and continued gives the same parameters as without.

    If it does not, a run cannot be reproduced after an interruption, and a comparison of runs compares their
    interruptions. The rule says which parts of the state make the difference: it copies everything that differs from
    the saved model into the loaded one, and then leaves out parts, down to single values.
    """
    with session.folder(has_model=True) as folder:

        def resumed() -> Trained:
            model = session.loaded(folder)
            return session.trained(model, session.learn(model, session.steps_after))

        found, expected = session.run(resumed), whole(session)
        if found.result == expected.result:
            return passing()
        half = Trained(expected.state, expected.result, expected.trace[len(expected.trace) - len(found.trace) :])
        reason = _reason(session, folder, expected)
    text = apart(half, found)
    where = f"{text['where']} after the load"
    return failing(text["seen"], where=where, why=reason.text, causes=reason.causes, owners=reason.owners)


def _reason(session: SubjectSession, folder: Path, expected: Trained) -> Reason:
    """What a load loses, if the tier has the time to find it."""
    if not session.tier.finds_reasons:
        return Reason(f"the tier {session.tier.name} does not search for what is lost", ())
    if session.small is not None:
        found = resume_is_exact(replace(session.small, volatile=session.volatile))
        if found.status is Status.FAIL:
            return Reason(found.why, found.causes, found.owners)
    return Search(session, folder, expected.result, is_limited=not session.tier.is_full).reason()


@rule("resume", "medium", rests_on=["deterministic"], faults=[faults.DRIFTING])
def save_load_save_is_a_fixed_point(session: SubjectSession) -> CheckFinding:
    """Saving and loading again gives the same state every time.

    A state that changes with every cycle drifts in long runs that are interrupted often.
    """
    states: list[dict[str, str]] = []
    with session.folder() as top:
        folders = [top / str(number) for number in range(TIMES + 1)]
        for folder in folders:
            folder.mkdir()
        session.saved(folders[0])
        for before, after in pairwise(folders):
            states.append(session.run(partial(_cycled, session, before, after)))
    for number, (one, other) in enumerate(pairwise(states), start=1):
        changed = [path for path in unequal(one, other) if path not in session.volatile]
        if changed:
            seen = f"{len(changed)} leaves differ between load {number} and load {number + 1}"
            return failing(seen, where=changed[0])
    return passing()


def _cycled(session: SubjectSession, before: Path, after: Path) -> dict[str, str]:
    model = session.loaded(before)
    session.adapter.save(model, after)
    return digests(model)


class _LosesArgument(faults.Wrapped):
    def load(self, folder: Path, fresh: Any) -> Any:
        before = settings_of(fresh)
        model = self.inner.load(folder, fresh)
        name = next(name for name, value in before.items() if settings_of(model).get(name) == value)
        put(model, name, "another")
        return model


@rule("resume", "high", rests_on=["deterministic"], faults=[GenericFault("change a setting in load()", _LosesArgument)])
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


def _halve_rates(inner: Adapter, model: Any, *_: Any) -> None:
    for group in (group for optimizer in inner.optimizers(model) for group in optimizer.param_groups):
        group["lr"] *= 0.5


@rule(
    "resume",
    "high",
    rests_on=["deterministic"],
    faults=[faults.after("load", "halve the learning rate in load()", _halve_rates)],
)
def learning_rates_continue(session: SubjectSession) -> CheckFinding:
    """The optimizers of a loaded model have the learning rates that they had when it was saved.

    Every group of every optimizer has its learning rate again, and other options such as betas and eps. A schedule that
    starts from the beginning, or an optimizer with default options, changes training without an error.
    """
    with session.folder(has_model=True) as folder:

        def action() -> tuple[dict[str, Leaf], dict[str, Leaf]]:
            model = session.trained_model()
            return _options(session, model), _options(session, session.loaded(folder))

        before, after = session.run(action)
    changed = [key for key, leaf in before.items() if key not in after or after[key].digest != leaf.digest]
    if not changed:
        return passing()
    key = changed[0]
    now = after[key].text if key in after else "missing"
    return failing(f"{key} is {now}, expected {before[key].text}", where=key)


def _options(session: SubjectSession, model: Any) -> dict[str, Leaf]:
    optimizers = session.adapter.optimizers(model)
    if not optimizers:
        raise NotSupportedError("the model has no optimizer of torch")
    groups = [[{**group, "params": ()} for group in each.param_groups] for each in optimizers]
    return {
        f"{name}.param_groups{place}": leaf
        for name, own in zip(optimizer_names(model, optimizers), groups, strict=True)
        for place, leaf in walk(own).items()
    }


class _ForgetsCallbacks(faults.Wrapped):
    def load(self, folder: Path, fresh: Any) -> Any:
        initial = copy.deepcopy(list(self.inner.callbacks(fresh)))
        model = self.inner.load(folder, fresh)
        found = list(self.inner.callbacks(model))
        for path in walk(found):
            before = attempt(lambda path=path: find(initial, path)[0])  # type: ignore[misc]
            if not isinstance(before, Crash):
                put(found, path, before)
        return model


@rule(
    "resume",
    "medium",
    rests_on=["deterministic"],
    faults=[GenericFault("forget the callbacks in load()", _ForgetsCallbacks)],
)
def callbacks_continue(session: SubjectSession) -> CheckFinding:
    """Callbacks have the state again that they had when the model was saved.

    What trains along with the model, such as a callback that keeps the best return, is saved and loaded with it.
    Otherwise a resumed run saves a worse model as its best, stops too late, or counts from the beginning.
    """
    with session.folder() as folder:

        def trained(session: SubjectSession) -> dict[str, Leaf]:
            model = session.trained_model()
            session.adapter.save(model, folder)
            return walk(list(session.adapter.callbacks(model)))

        session.steps  # noqa: B018  # known before the process starts
        before = session.run(lambda: trained(session))
        if not before:
            raise NotSupportedError("callbacks() of the adapter gives nothing that has a state")
        again = session.run(lambda: trained(session.alone()))
        after = session.run(lambda: walk(list(session.adapter.callbacks(session.loaded(folder)))))
    for path, leaf in before.items():
        if path in again and again[path].digest != leaf.digest:
            continue
        if path not in after or after[path].digest != leaf.digest:
            now = after[path].text if path in after else "missing"
            return failing(f"callbacks{path} is {now} after the load, expected {leaf.text}", where=f"callbacks{path}")
    return passing()
