"""Gates: what has to hold before the other rules mean anything."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from rlverify.checks.adapters import driving
from rlverify.checks.adapters.adapter import NotSupportedError
from rlverify.checks.engine import faults as faults
from rlverify.checks.engine.check_records import CheckFinding
from rlverify.checks.engine.faults import GenericFault
from rlverify.checks.engine.rule import failing, in_a_process, passing, rule
from rlverify.checks.engine.search import listed
from rlverify.checks.engine.session import SubjectSession, Trained, first_difference
from rlverify.checks.state.owners import owner_of_class
from rlverify.checks.state.random_state import global_state, set_global_state
from rlverify.checks.state.trained import before_each_step, groups_of, named_optimizers
from rlverify.checks.state.tree import digests, unequal, walk
from rlverify.records.attempts import Crash, attempt, places_of


@rule("gates", "high", faults=[faults.UNREPEATABLE], blamed="caller")
def deterministic(session: SubjectSession) -> CheckFinding:
    """Two runs from one factory give the same parameters.

    Every other rule compares runs, so it means nothing without this one. Seed the model and its environment in the
    factory. The second run follows another one in its process, so that a generator of a module or of a class, which the
    factory does not make, shows. A model without a seed can still pass: the global generators are seeded before each
    call of the factory.
    """
    first, second = whole(session), trained_twice(session.alone(), after_another=not session.has_start)
    if first.result != second.result and session.gave_up_start():  # it may use what a fork does not copy
        return deterministic(session)
    session.volatile = frozenset(unequal(first.state, second.state))
    if first.result == second.result:
        return passing()
    is_unseeded = session.run(lambda: getattr(session.make(), "seed", 0) is None)
    return apart(first, second, why="the model has seed=None" if is_unseeded else "")


def observations(session: SubjectSession) -> list[GenericFault]:
    """Faults of what the adapter can do to observe a model."""
    planted = {"act": faults.ACTING_LEARNS, "save": faults.SAVING_LEARNS}
    return [fault for method, fault in planted.items() if session.supports(method)]


@rule("gates", "high", rests_on=["deterministic"], faults=observations)
def observing_changes_nothing(session: SubjectSession) -> CheckFinding:
    """Acting and saving change nothing that training uses.

    If looking at a model changes it, evaluations and checkpoints change the result of training.
    """

    def observed(folder: Path) -> Trained:
        model, trace = session.trained_with_trace()
        unsupported = []
        for observe in _observations(session, model, folder).values():
            try:
                observe()
            except NotSupportedError as error:
                unsupported.append(str(error))
        if len(unsupported) == 2:
            raise NotSupportedError("; ".join(unsupported))
        trace += session.learn(model, session.steps_after)
        return session.trained(model, trace)

    with session.folder() as folder:
        found = session.run(lambda: observed(folder))
    expected = whole(session)
    if found.result == expected.result:
        return passing()
    why = session.run(lambda: _changes(session)) if session.tier.finds_reasons else ""
    return apart(expected, found, why=why)


def _observations(session: SubjectSession, model: Any, folder: Path) -> dict[str, Callable[[], Any]]:
    adapter = session.adapter
    return {"act()": lambda: adapter.act(model), "save()": lambda: adapter.save(model, folder)}


def _changes(session: SubjectSession) -> str:
    """What acting and saving change in a trained model, in words."""
    model, found = session.make(), []
    session.learn(model, session.steps)
    with session.folder() as folder:
        for name, observe in _observations(session, model, folder).items():
            before, generators = walk(model), digests(global_state())
            with suppress(NotSupportedError):
                observe()
            after = walk(model)
            changed = [each for each in unequal(before, after) if each not in session.volatile]
            texts = [{path: leaf.text for path, leaf in state.items()} for state in (before, after)]
            found += [
                f"{name} changed {path} from {' to '.join(each.get(path, 'missing') for each in texts)}"
                for path in changed
            ]
            if digests(global_state()) != generators:
                found.append(f"{name} drew from a global random generator")
    return listed(found)


def starting_again(session: SubjectSession) -> list[GenericFault]:
    """Faults of what starts from scratch in every call: the optimizer, and the environment if the adapter has it."""
    return [faults.FORGETS_BETWEEN_PIECES, *[faults.STARTS_AGAIN] * session.supports("environment")]


@rule("gates", "medium", rests_on=["deterministic"], faults=starting_again)
def pieces_equal_whole(session: SubjectSession) -> CheckFinding:
    """Two calls of learn() give the same parameters as one, and the same rates on the way.

    If not, something starts from scratch in every call: an interrupted run then differs for this reason alone. Rates
    are learning rates, and public attributes of the model with fractional values, such as the share of random actions.
    """
    pieces = session.steps, session.steps_after

    def noted(*pieces: int) -> tuple[Trained, list[Rates]]:
        model = session.make()
        rates = _rates_noted(session, model)
        trace = [each for steps in pieces for each in session.learn(model, steps)]
        return session.trained(model, trace), rates

    (expected, rates), found = session.run(lambda: noted(sum(pieces))), whole(session)
    is_equal = found.result == expected.result
    changing = {name for own in rates for name, value in own.items() if value != rates[0].get(name)} - session.volatile
    if is_equal and not changing:
        return passing()
    in_pieces = session.run(lambda: noted(*pieces)[1]) if changing else []
    moments = list(enumerate(zip(rates, in_pieces, strict=False), start=1))
    wrong = [
        (number, name)
        for number, (one, other) in moments
        for name in sorted(changing)
        if one.get(name) != other.get(name)
    ]
    if not wrong:
        return passing() if is_equal else apart(expected, found, causes=["parameters"])
    first, name = wrong[0]
    one, other = moments[first - 1][1]
    causes = dict.fromkeys(each for number, each in wrong if number == first or each.endswith(LEARNING_RATE))
    text = f"{name} is {other.get(name)} in pieces, and {one.get(name)} at once"
    when = f"it shows at moment {first} of {len(rates)}"
    if is_equal:
        return failing(text, where=name, why=when, causes=list(causes))
    return apart(expected, found, why=f"{text}; {when}", causes=list(causes))


LEARNING_RATE: Final = "['lr']"
Rates = dict[str, str]


def _rates_noted(session: SubjectSession, model: Any) -> list[Rates]:
    """A list that fills during training: the rates of a model at each step of its environment or an optimizer."""
    noted: list[Rates] = []

    def note(*_: Any) -> None:
        public = {name: each for name, each in getattr(model, "__dict__", {}).items() if not name.startswith("_")}
        numbers = {name: each for name, each in public.items() if isinstance(each, float | np.floating)}
        for place, group in groups_of(optimizers).items():
            numbers[place + LEARNING_RATE] = float(group.get("lr", 0.0))
        noted.append({name: f"{each:.6g}" for name, each in numbers.items()})

    optimizers = named_optimizers(model, session.adapter.optimizers(model))
    with suppress(NotSupportedError):
        driving.after_each_step(session.adapter.environment(model), note)
    before_each_step(optimizers, note)
    return noted


def whole(session: SubjectSession) -> Trained:
    """A fresh model after two pieces of training, which is measured once for all adapters that train alike."""
    adapter = faults.that_trains(session.adapter)
    spans = session.steps, session.later, session.steps_after
    for own, own_spans, known in session.known.wholes:
        if own is adapter and own_spans == spans:
            return known
    found = trained_twice(session)
    session.known.wholes.append((adapter, spans, found))
    return found


def trained_twice(session: SubjectSession, *, after_another: bool = False) -> Trained:
    """A fresh model after two pieces of training.

    :param after_another: whether a first model is trained in the same process before
    """
    session.steps  # noqa: B018  # known before the process starts

    def action() -> Trained:
        if after_another:
            session.learn(session.make(), session.steps)
        model, trace = session.trained_with_trace()
        return session.trained(model, [*trace, *session.learn(model, session.steps_after)])

    return session.run(action)


def apart(first: Trained, second: Trained, when: str = "", **more: Any) -> CheckFinding:
    """The finding of what two runs differ in, and where."""
    everything, names = {**first.result, **second.result}, unequal(first.result, second.result)
    step = first_difference(first.trace, second.trace)
    seen = f"{len(names)} of {len(everything)} parameters and states of optimizers differ"
    where = f"step {step}" if step is not None else names[0]
    return failing(seen, where=where + when, **more)


def _cannot_load(*_: Any) -> None:
    raise ValueError("a fault that rlverify planted")


@rule("resume", "high", faults=[faults.after("load", "raise an error in load()", _cannot_load)])
def load_returns_a_model(session: SubjectSession) -> CheckFinding:
    """A model that was trained and saved can be loaded.

    What training adds, such as a group of an optimizer, has to be there before its state is loaded.
    """
    with session.folder(has_model=True) as folder:
        seen = session.run(lambda: _error_of(lambda: session.loaded(folder)))
    return failing(f"load() raises {seen}", where="load()") if seen else passing()


def _error_of(action: Callable[[], object]) -> str:
    """What an action raises, with the innermost line that is of no library; empty if it raises nothing."""
    found = attempt(action)
    if not isinstance(found, Crash):
        return ""
    if isinstance(found.error, NotSupportedError):
        raise found.error
    own = [each for each in places_of(found.error) if not {"site-packages", "rlverify"} & {*each[0].parts}]
    return found.line + "".join(f", called in {file.name}:{number}" for file, number in own[:1])


BEFORE: Final = 7
"""Steps before the copy, so that it is made in the middle of an episode."""
AFTER: Final = 40
"""Steps after it, with a reset in the middle."""


def _copies_as(copied: Callable[[Any, Any], Any]) -> Callable[..., None]:
    """What gives an environment another copy: what a function of the environment and its copy returns."""

    def planted(_inner: Any, env: Any, _model: Any) -> None:
        kind = type(env)

        def deepcopy(own: Any, memo: dict[int, Any]) -> Any:
            own.__class__ = kind
            return copied(own, copy.deepcopy(own, memo))

        env.__class__ = type(kind.__name__, (kind,), {"__deepcopy__": deepcopy})

    return planted


def _reset_copy(_env: Any, copied: Any) -> Any:
    driving.reset(copied)
    return copied


@rule(
    "gates",
    "medium",
    faults=[
        faults.after("environment", "reset the copy of the environment", _copies_as(_reset_copy)),
        faults.after("environment", "return the environment itself as its copy", _copies_as(lambda env, _copied: env)),
    ],
    blamed="owner",
)
@in_a_process
def environment_can_be_copied(session: SubjectSession) -> CheckFinding:
    """A copy of the environment gives the same observations, rewards and ends for the same actions.

    `copy.deepcopy` of the environment, made in the middle of an episode, steps exactly as the original does. Simulators
    that keep their state in compiled code often copy without an error and lose it. Whatever copies such an environment,
    for evaluation or to resume, then goes on from another state.
    """
    env = session.adapter.environment(session.make())
    driving.require_this_process(env)
    wrong = _wrong_copy(env, driving.started(env, BEFORE, AFTER))
    if not wrong:
        return passing()
    inside = reversed([*driving.layers(env), *driving.layers_of_one(env)])
    owner = owner_of_class(type(next((each for each in inside if _is_copied_wrongly(each)), env)))
    seen, where = wrong
    return failing(f"{seen}; inside of {owner.name}, copies are right", where=where, owners=[owner])


def _is_copied_wrongly(layer: Any) -> bool:
    driving.reset(layer)
    return _wrong_copy(layer, driving.actions(layer, AFTER)) is not None


def _wrong_copy(env: Any, actions: Sequence[Any]) -> tuple[str, str] | None:
    """What is wrong with a copy of an environment, and where; None if it goes on as the environment does."""
    copied = attempt(lambda: copy.deepcopy(env))
    if isinstance(copied, Crash):
        return f"copy.deepcopy raises {copied.line}", "copy.deepcopy"
    generators = global_state()
    expected = _steps(env, actions)
    set_global_state(generators)
    found = attempt(lambda: _steps(copied, actions))
    if isinstance(found, Crash):
        return f"the copy raises {found.line}", "step of the copy"
    number = first_difference(expected, found)
    return None if number is None else ("the copy goes on otherwise", f"step {number}")


def _steps(env: Any, actions: Sequence[Any]) -> list[dict[str, str]]:
    """Digests of what an environment returns for each action, with one reset in the middle."""
    found = []
    for number, action in enumerate(actions):
        if number == len(actions) // 2:
            found.append(digests(driving.reset(env)))
        found.append(digests(driving.step(env, action)))
    return found
