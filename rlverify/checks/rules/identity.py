"""Rules about which tensors are trained, by which optimizer, and which models share them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rlverify.checks.adapters.adapter import NotSupportedError
from rlverify.checks.engine import faults as faults
from rlverify.checks.engine.check_records import CheckFinding
from rlverify.checks.engine.rule import failing, in_a_process, passing, rule
from rlverify.checks.engine.session import SubjectSession, digest_of
from rlverify.checks.state.trained import named_parameters, reachable_tensors
from rlverify.checks.state.tree import digests, unequal


@rule("identity", "high", faults=[faults.UNTRAINED_PARAMETER, faults.STRANGE_PARAMETER])
def optimizers_hold_the_parameters(session: SubjectSession) -> CheckFinding:
    """Every trained parameter is in an optimizer, and every parameter of an optimizer is the model's.

    The optimizers hold the model's own parameters: in a fresh model, after a load, and after set_parameters(). A
    parameter outside of every optimizer never learns. An optimizer that holds a copy trains the copy.
    """
    moments: dict[str, Callable[[], str]] = {
        "in a fresh model": lambda: _mismatch(session, session.make()),
        "after load()": lambda: _after_load(session),
        "after set_parameters()": lambda: _after_set_parameters(session),
    }
    unsupported: list[NotSupportedError] = []
    for moment, action in moments.items():
        try:
            seen = session.run(action)
        except NotSupportedError as error:
            unsupported.append(error)
            continue
        if seen:
            return failing(f"{moment}: {seen}", where=moment)
    if len(unsupported) == len(moments):
        raise unsupported[0]
    return passing()


def _after_load(session: SubjectSession) -> str:
    with session.folder() as folder:
        model = session.trained_model()
        session.adapter.save(model, folder)
        return _mismatch(session, session.loaded(folder))


def _after_set_parameters(session: SubjectSession) -> str:
    source, model = session.make(), session.make()
    session.adapter.set_parameters(model, session.adapter.get_parameters(source))
    return _mismatch(session, model)


def _mismatch(session: SubjectSession, model: Any) -> str:
    """What is wrong between the parameters of a model and those of its optimizers; empty if nothing is."""
    adapter = session.adapter
    targets = {id(each) for module in adapter.target_modules(model) for each in module.parameters()}
    parameters = named_parameters(list(adapter.modules(model)))
    optimizers = adapter.optimizers(model)
    if not parameters or not optimizers:
        raise NotSupportedError("the model has no parameters of torch, or no optimizer")
    held = {id(each) for optimizer in optimizers for group in optimizer.param_groups for each in group["params"]}
    outside = [name for name, each in parameters.items() if id(each) not in held and id(each) not in targets]
    if outside:
        hint = "" if targets else " (name target networks in Adapter.target_modules())"
        return f"{len(outside)} of {len(parameters)} parameters are in no optimizer: {', '.join(outside[:3])}{hint}"
    strange = held - reachable_tensors(model)
    if strange:
        return f"{len(strange)} of {len(held)} parameters of the optimizers are not the model's"
    return ""


@rule("identity", "high", rests_on=["deterministic"], faults=[faults.KEEPS_LEARNING_RATE])
@in_a_process
def learning_rate_zero_freezes(session: SubjectSession) -> CheckFinding:
    """With a learning rate of 0, training changes no parameter outside of target networks.

    If one moves, something else than the learning rate that was set decides how large steps are.
    """
    model = session.make()
    session.adapter.set_learning_rate(model, 0.0)
    targets = {id(each) for module in session.adapter.target_modules(model) for each in module.parameters()}
    parameters = named_parameters(list(session.adapter.modules(model)))
    before = {name: digest_of(each) for name, each in parameters.items() if id(each) not in targets}
    session.learn(model, session.steps)
    after = named_parameters(list(session.adapter.modules(model)))
    moved = [name for name, digest in before.items() if name not in after or digest_of(after[name]) != digest]
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
    different = [type(each).__name__ for each in targets if not _has_twin(session, model, each)]
    return failing(f"no network equals the target {different[0]}", where=different[0]) if different else passing()


def _has_twin(session: SubjectSession, model: Any, target: Any) -> bool:
    state = digests(dict(target.state_dict()))
    own = {id(module) for each in session.adapter.target_modules(model) for module in each.modules()}
    others = (module for each in session.adapter.modules(model) for module in each.modules() if id(module) not in own)
    return any(type(other) is type(target) and digests(dict(other.state_dict())) == state for other in others)


@rule("isolation", "critical", faults=[faults.SHARING])
def set_parameters_copies(session: SubjectSession) -> CheckFinding:
    """After set_parameters(get_parameters()), training one model changes nothing in the other.

    If tensors are shared, a member of a population changes while another trains, without an error.
    """
    for trained in ("source", "receiver"):
        changed = session.run(partial(_changed_elsewhere, session, trained))
        if changed:
            other = "receiver" if trained == "source" else "source"
            seen = f"training the {trained} changes {len(changed)} parameters and states of optimizers of the {other}"
            return failing(seen, where=changed[0], causes=changed)
    return passing()


def _changed_elsewhere(session: SubjectSession, trained: str) -> list[str]:
    source, receiver = session.trained_model(), session.make()
    session.adapter.set_parameters(receiver, session.adapter.get_parameters(source))
    model, other = (source, receiver) if trained == "source" else (receiver, source)
    before = session.result(other)
    session.learn(model, session.steps)
    return unequal(before, session.result(other))
