"""Rules about which tensors are trained, by which optimizer, and which models share them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from rlverify.checks.adapters.adapter import NotSupportedError
from rlverify.checks.engine import faults as faults
from rlverify.checks.engine.check_records import CheckFinding
from rlverify.checks.engine.rule import failing, in_a_process, inconclusive, passing, rule
from rlverify.checks.engine.search import listed
from rlverify.checks.engine.session import SubjectSession, digest_of
from rlverify.checks.rules.training_settings import rates_used, with_own_rate
from rlverify.checks.state.trained import groups_of, named_parameters, numbered_optimizers, place_of, reachable_tensors
from rlverify.checks.state.tree import digests, unequal
from rlverify.records.attempts import attempt


@rule(
    "identity",
    "high",
    rests_on=["load_returns_a_model"],
    faults=[faults.UNTRAINED_PARAMETER, faults.STRANGE_PARAMETER, faults.REPLACED_PARAMETER],
)
@in_a_process
def optimizers_hold_the_parameters(session: SubjectSession) -> CheckFinding:
    """Every trained parameter is in an optimizer, and every parameter of an optimizer is the model's.

    The optimizers hold the model's own parameters: in a fresh model, after training, after set_parameters(), after a
    load, and after more training. A parameter is trained if training gives it a gradient; outside of every optimizer it
    never learns. An optimizer that holds a copy trains the copy.
    """
    fresh = session.make()
    untrained = _outside(session, fresh)
    graded: set[str] = set()
    for moment, model in _moments(session, fresh, untrained, graded):
        outside, held = _outside(session, model), _held(session, model)
        wrong = [name for name in outside if name in graded or name not in untrained]
        if wrong:
            seen = f"{len(wrong)} parameters that are trained are in no optimizer: {', '.join(wrong[:3])}"
            hint = "" if session.adapter.target_modules(model) else " (name targets in Adapter.target_modules())"
            return failing(f"{moment}: {seen}{hint}", where=moment)
        strange = held - reachable_tensors(model)
        if strange:
            seen = f"{len(strange)} of {len(held)} parameters of the optimizers are not the model's"
            return failing(f"{moment}: {seen}", where=moment)
    return passing()


def _moments(
    session: SubjectSession, model: Any, untrained: dict[str, Any], graded: set[str]
) -> Iterator[tuple[str, Any]]:
    """A model from moment to moment; training adds the names of the untrained parameters that get a gradient."""
    yield "in a fresh model", model
    hooks = [each.register_hook(partial(_note, graded, name)) for name, each in untrained.items()]
    session.learn(model, session.steps)
    for hook in hooks:
        hook.remove()
    yield "after training", model
    with suppress(NotSupportedError):
        receiver = session.make()
        session.adapter.set_parameters(receiver, session.adapter.get_parameters(model))
        yield "after set_parameters()", receiver
    with suppress(NotSupportedError), session.folder() as folder:
        session.adapter.save(model, folder)
        loaded = session.loaded(folder)
        yield "after load()", loaded
        session.learn(loaded, session.steps_after)
        yield "after load() and training", loaded


def _note(graded: set[str], name: str, gradient: Any) -> None:
    if bool(gradient.any()):
        graded.add(name)


def _held(session: SubjectSession, model: Any) -> set[int]:
    """The identities of the parameters that the optimizers hold."""
    groups = groups_of(numbered_optimizers(session.adapter.optimizers(model)))
    return {id(each) for group in groups.values() for each in group["params"]}


def _targeted(session: SubjectSession, model: Any) -> set[int]:
    """The identities of the parameters of target networks."""
    return {id(each) for module in session.adapter.target_modules(model) for each in module.parameters()}


def _outside(session: SubjectSession, model: Any) -> dict[str, Any]:
    """The parameters that are in no optimizer and in no target network, by name."""
    parameters = named_parameters(session.adapter.modules(model), model)
    held, targets = _held(session, model), _targeted(session, model)
    if not parameters or not held:
        raise NotSupportedError("the model has no parameters of torch, or no optimizer")
    return {name: each for name, each in parameters.items() if id(each) not in held | targets}


@rule("identity", "high", rests_on=["deterministic"], faults=[faults.KEEPS_LEARNING_RATE])
@in_a_process
def learning_rate_zero_freezes(session: SubjectSession) -> CheckFinding:
    """With a learning rate of 0, training changes no parameter outside of target networks.

    If one moves, something else than the learning rate that was set decides how large steps are. Parameters of an
    optimizer with a learning rate of its own, which no setting of the model reaches, may move.
    """
    model = session.make()
    session.adapter.set_learning_rate(model, 0.0)
    targets, used = _targeted(session, model), rates_used(session.adapter.optimizers(model))
    parameters = named_parameters(session.adapter.modules(model), model)
    before = {name: digest_of(each) for name, each in parameters.items() if id(each) not in targets}
    groups = groups_of(numbered_optimizers(session.adapter.optimizers(model)))
    session.learn(model, session.steps)
    after = named_parameters(session.adapter.modules(model), model)
    moved = [name for name, digest in before.items() if name not in after or digest_of(after[name]) != digest]
    if moved:
        others = {place for place, rates in used.items() if any(rates)}
        own = with_own_rate(session, others, used.keys() - others)
        free = {id(each) for place in own for each in groups[place]["params"]}
        moved = [name for name in moved if id(parameters[name]) not in free]
    return failing(f"{len(moved)} parameters moved", where=moved[0]) if moved else passing()


@rule("identity", "high", faults=[faults.OLD_TARGET])
@in_a_process
def targets_start_equal(session: SubjectSession) -> CheckFinding:
    """In a fresh model, target networks equal the networks that they follow, buffers included.

    A target that starts elsewhere, or whose batch statistics are not copied, gives wrong values until it has caught up.
    """
    model = session.make()
    targets = session.adapter.target_modules(model)
    if not targets:
        raise NotSupportedError("the model has no target networks")
    if found := _trained_target(session, model):
        return found
    different = [type(each).__name__ for each in targets if _twin(session, model, each) is None]
    return failing(f"no network equals the target {different[0]}", where=different[0]) if different else passing()


def _trained_target(session: SubjectSession, model: Any) -> CheckFinding | None:
    """The failure of a target network of which an optimizer has a parameter."""
    held = _held(session, model)
    for each in session.adapter.target_modules(model):
        if held & {*map(id, each.parameters())}:
            place = place_of(model, each)
            why = "an optimizer has its parameters, which may be those of the network that it follows"
            return failing(f"the target {place} is trained: {why}", where=place)
    return None


def _twin(session: SubjectSession, model: Any, target: Any) -> Any:
    """The network that equals a target in a fresh model; None if there is none."""
    state = digests(dict(target.state_dict()))
    own = {id(module) for each in session.adapter.target_modules(model) for module in each.modules()}
    others = (module for each in session.adapter.modules(model) for module in each.modules() if id(module) not in own)
    same = (each for each in others if type(each) is type(target))
    return next((each for each in same if digests(dict(each.state_dict())) == state), None)


@rule("identity", "high", rests_on=["targets_start_equal"], faults=[faults.PART_OF_A_TARGET, faults.TRAINED_TARGET])
@in_a_process
def targets_follow(session: SubjectSession) -> CheckFinding:
    """Training that moves a target network moves all of each that moves in the network it follows, buffers included.

    A target with the parameters of one network and the batch statistics of another gives values of neither. One that
    became the network itself, as the same object or as one that an optimizer trains, no longer lags.
    """
    model = session.make()
    targets = session.adapter.target_modules(model)
    pairs = [(each, _twin(session, model, each)) for each in targets]
    if not pairs:
        raise NotSupportedError("the model has no target networks; if it has, name them in Adapter.target_modules()")
    before = [[_floats(each) for each in pair] for pair in pairs]
    _train(session, model)
    if found := _trained_target(session, model):
        return found
    changed = [
        [set(unequal(was, _floats(each))) for was, each in zip(old, pair, strict=True)]
        for old, pair in zip(before, pairs, strict=True)
    ]
    if any(follows for follows, _ in changed):
        left: list[str] = []
        for target, (follows, leads) in zip(targets, changed, strict=True):
            if names := sorted(leads - follows):
                place = place_of(model, target)
                left += [f"{place}.{name}" for name in names]
        count = sum(len(leads) for _, leads in changed)
        seen = f"{len(left)} of {count} tensors of target networks stay as they were: {listed(left)}"
        return failing(seen, where=left[0], causes=left) if left else passing()
    seen = f"{sum((session.steps, session.steps_after))} steps of training move no target network"
    kind = attempt(lambda: _library_that_moves_its_targets(session, type(model)))  # an adapter may know yours alone
    if isinstance(kind, str):
        return failing(f"{seen}, and they do of a {kind}", where="target_modules()")
    return inconclusive(f"{seen}; your code never moves one, or later: then return more from steps() of the adapter")


def _train(session: SubjectSession, model: Any) -> None:
    for steps in (session.steps, session.steps_after):
        session.learn(model, steps)


def _library_that_moves_its_targets(session: SubjectSession, own: type) -> str | None:
    """Return the name of the library's class if training moves its targets; None if not, or if it is the model's."""
    twin = session.adapter.library_twin(session.make())
    if type(twin) is own:
        return None
    old = [_floats(each) for each in session.adapter.target_modules(twin)]
    _train(session, twin)
    return type(twin).__name__ if old != [_floats(each) for each in session.adapter.target_modules(twin)] else None


def _floats(module: Any) -> dict[str, str]:
    """Digests of parameters and buffers that are no counters."""
    return {name: digest_of(each) for name, each in module.state_dict().items() if each.is_floating_point()}


@rule("isolation", "critical", faults=[faults.SHARING, faults.SHARING_MOMENTS])
def set_parameters_copies(session: SubjectSession) -> CheckFinding:
    """After set_parameters(get_parameters()), training one model changes nothing in the other.

    If tensors are shared, a member of a population changes while another trains, without an error.
    """
    for trained in ("source", "receiver"):
        changed = session.run(partial(_changed_elsewhere, session, trained))
        if changed:
            other = "receiver" if trained == "source" else "source"
            seen = f"training the {trained} changes {len(changed)} parameters and states of optimizers of the {other}"
            return failing(seen, where=changed[0], causes=list(dict.fromkeys(map(_owner_of_tensors, changed))))
    return passing()


def _owner_of_tensors(name: str) -> str:
    """What a parameter, or a tensor of an optimizer's state, is one of many of."""
    return "parameters" if name.startswith("parameter ") else name.partition("[")[0]


def _changed_elsewhere(session: SubjectSession, trained: str) -> list[str]:
    source, receiver = session.trained_model(), session.make()
    session.adapter.set_parameters(receiver, session.adapter.get_parameters(source))
    model, other = (source, receiver) if trained == "source" else (receiver, source)
    before = session.result(other)
    session.learn(model, session.steps)
    return unequal(before, session.result(other))
