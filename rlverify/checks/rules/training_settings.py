"""Rules about settings: what is declared is what trains, and what does not exist is refused."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from rlverify.checks.adapters.adapter import UNKNOWN, NotSupportedError
from rlverify.checks.engine import faults as faults
from rlverify.checks.engine.check_records import CheckFinding
from rlverify.checks.engine.rule import failing, in_a_process, inconclusive, passing, rule
from rlverify.checks.engine.session import SubjectSession
from rlverify.checks.state.trained import before_each_step, groups_of, numbered_optimizers
from rlverify.checks.state.tree import unequal, walk
from rlverify.records.attempts import Crash, attempt

DECLARED: Final = 1.25e-4
"""A learning rate that is nowhere a default."""
TOLERANCE: Final = 1e-6
"""Between two learning rates, as a part of them."""


def _restore_last_group(inner: Any, model: Any, _value: float) -> None:
    """Before each step, the last group of each optimizer has the learning rate of a fresh model again."""
    for optimizer in inner.optimizers(model):
        old = optimizer.param_groups[-1]["lr"]
        optimizer.register_step_pre_hook(lambda own, _args, _kwargs, old=old: own.param_groups[-1].update(lr=old))


RESTORES_LAST_GROUP: Final = faults.before(
    "set_learning_rate", "give one group its old learning rate before each step", _restore_last_group
)


@rule("settings", "high", faults=[faults.KEEPS_LEARNING_RATE, RESTORES_LAST_GROUP])
@in_a_process
def learning_rate_takes_effect(session: SubjectSession) -> CheckFinding:
    """The learning rate that was set is that of every optimizer at the next update.

    A value that is stored and not used is the most common silent bug of settings: the log shows the new value while
    training continues with the old one. A schedule, a callback or a factor may change the rate of a group, as long as
    half the value gives half of every rate, and one update has the value itself or all have less. An optimizer may have
    a rate of its own, which no setting of the model reaches.
    """

    def used(value: float) -> dict[str, list[float]]:
        model = session.make()
        session.adapter.set_learning_rate(model, value)
        found = rates_used(session.adapter.optimizers(model))
        session.adapter.learn(model, session.steps)
        return found

    return judged(session, used)


def judged(session: SubjectSession, used: Callable[[float], dict[str, list[float]]]) -> CheckFinding:
    """The finding for the learning rates that are used after a value was set."""
    found = used(DECLARED)
    if not found:
        return inconclusive("no optimizer of torch made a step")
    others = {place: [rate for rate in rates if not _is_close(rate, DECLARED)] for place, rates in found.items()}
    wrong = {place: rates[0] for place, rates in others.items() if rates}
    half = used(DECLARED / 2) if wrong else {}
    most = math.inf if others != found else DECLARED * (1 + TOLERANCE)
    kept = {place for place in wrong if not _follows(found[place], half.get(place, []), most)}
    own = with_own_rate(session, kept, found.keys() - kept)
    for place, rate in wrong.items():
        if place in kept - own:
            return failing(f"the learning rate is {rate:g} at the update, expected {DECLARED:g}", where=place)
    return passing()


def with_own_rate(session: SubjectSession, kept: AbstractSet[str], followers: AbstractSet[str]) -> set[str]:
    """Those groups that keep their learning rate since it is their own.

    A model that is made with another learning rate leaves it to them; of a model that cannot be made so, it differs
    from the rates of those that follow. A group whose optimizer has one that follows has none of its own.
    """
    following = {each.partition(".")[0] for each in followers}
    kept = {each for each in kept if each.partition(".")[0] not in following}
    if not kept or not followers:
        return set()
    model = session.make()
    fresh = _rates(session, model)
    made = attempt(lambda: _rates(session, session.adapter.with_settings(model, learning_rate=DECLARED)))
    if isinstance(made, Crash) or all(made.get(each) == fresh.get(each) for each in followers):
        return {each for each in kept if fresh.get(each) not in {fresh.get(other) for other in followers}}
    return {each for each in kept if made.get(each) == fresh.get(each)}


def _rates(session: SubjectSession, model: Any) -> dict[str, float]:
    """The learning rates of all groups, by place."""
    groups = groups_of(numbered_optimizers(session.adapter.optimizers(model)))
    return {place: float(group["lr"]) for place, group in groups.items()}


def _drop_unknown(inner: Any, model: Any, **settings: Any) -> Any:
    return inner.with_settings(model, **{key: each for key, each in settings.items() if key != UNKNOWN})


DROPS_UNKNOWN: Final = faults.instead("with_settings", "drop unknown arguments of the constructor", _drop_unknown)


@rule("settings", "medium", faults=[DROPS_UNKNOWN])
@in_a_process
def unknown_settings_are_refused(session: SubjectSession) -> CheckFinding:
    """A setting with an unknown name is refused.

    An argument that does not exist raises an error: of the class, and inside of arguments that are dictionaries. If a
    misspelt name is accepted, the default is used, and the experiment measures something else.
    """
    model = session.make()
    unchanged = attempt(lambda: _made(session, model, {}))
    if isinstance(unchanged, Crash):
        if isinstance(unchanged.error, NotSupportedError):
            raise unchanged.error
        return inconclusive(f"the model cannot be made again: {unchanged.line}")
    places = session.adapter.unknown_settings(model)
    accepted = [
        place
        for place, settings in places.items()
        if not isinstance(attempt(lambda settings=settings: _made(session, model, settings)), Crash)  # type: ignore[misc]
    ]
    if not accepted:
        return passing()
    return failing(f"accepted without an error: {', '.join(accepted)}", where=accepted[0])


def _add_entries(_inner: Any, _made: Any, _model: Any, **settings: Any) -> None:
    for value in settings.values():
        if isinstance(value, dict):
            value[UNKNOWN] = 1


ADDS_ENTRIES: Final = faults.after("with_settings", "add an entry to a dictionary of the caller", _add_entries)


@rule("settings", "medium", faults=[ADDS_ENTRIES])
@in_a_process
def arguments_are_left_alone(session: SubjectSession) -> CheckFinding:
    """The constructor leaves the arguments that it gets as they are.

    Callers pass one dictionary to several models. If the first model writes its own defaults into it, the second is
    made with settings that the caller did not choose.
    """
    model = session.make()
    given = session.adapter.mutable_settings(model)
    before = walk(given)
    _made(session, model, given)
    after = walk(given)
    changed = unequal(before, after)
    if not changed:
        return passing()
    path = changed[0]
    seen = f"{path} is {after[path].text if path in after else 'missing'} after the call, expected "
    return failing(seen + (before[path].text if path in before else "no such entry"), where=path)


def _made(session: SubjectSession, model: Any, settings: Any) -> None:
    """Make a model; a warning does not refuse a setting."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session.adapter.with_settings(model, **settings)


def rates_used(optimizers: Sequence[Any]) -> dict[str, list[float]]:
    """A dictionary that fills while the optimizers step: their learning rates by group, one for each step."""
    used: dict[str, list[float]] = {}

    def note(name: str, own: Any) -> None:
        for place, group in groups_of({name: own}).items():
            used.setdefault(place, []).append(float(group["lr"]))

    before_each_step(numbered_optimizers(optimizers), note)
    return used


def _follows(rates: Sequence[float], half: Sequence[float], most: float) -> bool:
    """Whether each rate for a value is at most a bound and twice the one for half of the value, and not all are 0."""
    pairs = zip(rates, half, strict=False)
    return (
        len(rates) == len(half) and any(rates) and all(each <= most and _is_close(2 * own, each) for each, own in pairs)
    )


def _is_close(rate: float, expected: float) -> bool:
    return abs(rate - expected) <= 1e-12 + TOLERANCE * abs(expected)
