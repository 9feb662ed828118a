"""Gates: what has to hold before the other rules mean anything."""

from __future__ import annotations

from pathlib import Path

from rlverify.checks import generic_faults as faults
from rlverify.checks.adapter import NotSupportedError
from rlverify.checks.check_records import CheckFinding
from rlverify.checks.generic_faults import GenericFault
from rlverify.checks.rule import failing, passing, rule
from rlverify.checks.session import SubjectSession, Trained, first_difference


@rule(
    "gates",
    "high",
    "Two runs from one factory give the same parameters.",
    faults=[faults.UNREPEATABLE],
)
def deterministic(session: SubjectSession) -> CheckFinding:
    """Two runs from the same factory train to the same bits.

    Every other rule compares runs, so it means nothing without this one. Seed the model and its environment in the
    factory. A model without a seed can still pass: the global generators are seeded before each call of the factory.
    """
    first, second = whole(session), trained_twice(session)
    paths = {**first.state, **second.state}
    session.volatile = frozenset(path for path in paths if first.state.get(path) != second.state.get(path))
    if first.result == second.result:
        return passing()
    return failing(**apart(first, second))


def observations(session: SubjectSession) -> list[GenericFault]:
    """Faults of what the adapter can do to observe a model."""
    planted = {"act": faults.ACTING_LEARNS, "save": faults.SAVING_LEARNS}
    return [fault for method, fault in planted.items() if session.supports(method)]


@rule(
    "gates",
    "high",
    "Acting and saving change nothing that training uses.",
    rests_on=["deterministic"],
    faults=observations,
)
def observing_changes_nothing(session: SubjectSession) -> CheckFinding:
    """Training is the same with a saved file and an action in the middle as without.

    If looking at a model changes it, evaluations and checkpoints change the result of training.
    """
    steps, adapter = session.steps, session.adapter

    def observed(folder: Path) -> Trained:
        model = session.make()
        trace = session.learn(model, steps)
        unsupported = []
        for observe in (lambda: adapter.act(model), lambda: adapter.save(model, folder)):
            try:
                observe()
            except NotSupportedError as error:
                unsupported.append(str(error))
        if len(unsupported) == 2:
            raise NotSupportedError("; ".join(unsupported))
        trace += session.learn(model, session.steps_after)
        return session.trained(model, trace)

    with session.folder() as folder:
        found = session.run(lambda: observed(Path(folder)))
    expected = whole(session)
    return passing() if found.result == expected.result else failing(**apart(expected, found))


@rule(
    "gates",
    "medium",
    "Two calls of learn() give the same parameters as one.",
    rests_on=["deterministic"],
    faults=[faults.FORGETS_BETWEEN_PIECES],
)
def pieces_equal_whole(session: SubjectSession) -> CheckFinding:
    """Learning in two pieces equals learning at once.

    If it does not, something starts from scratch in every call: an interrupted run then differs for this reason alone.
    """
    steps = session.steps

    def at_once() -> Trained:
        model = session.make()
        return session.trained(model, session.learn(model, steps + session.steps_after))

    expected, found = session.run(at_once), whole(session)
    return passing() if found.result == expected.result else failing(**apart(expected, found))


def whole(session: SubjectSession) -> Trained:
    """A fresh model after two pieces of training, which is measured once for all adapters that train alike."""
    adapter, spans = faults.that_trains(session.adapter), (session.steps, session.steps_after)
    for own, own_spans, known in session.known.wholes:
        if own is adapter and own_spans == spans:
            return known
    found = trained_twice(session)
    session.known.wholes.append((adapter, spans, found))
    return found


def trained_twice(session: SubjectSession) -> Trained:
    """A fresh model after two pieces of training."""
    steps = session.steps

    def action() -> Trained:
        model = session.make()
        trace = [*session.learn(model, steps), *session.learn(model, session.steps_after)]
        return session.trained(model, trace)

    return session.run(action)


def apart(first: Trained, second: Trained) -> dict[str, str]:
    """What two runs differ in, and where, as arguments of `failing`."""
    everything = {**first.result, **second.result}
    names = [name for name in everything if first.result.get(name) != second.result.get(name)]
    step = first_difference(first.trace, second.trace)
    seen = f"{len(names)} of {len(everything)} parameters and states of optimizers differ"
    return {"seen": seen, "where": f"step {step}" if step is not None else names[0]}
