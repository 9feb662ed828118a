"""Rules about what goes on after a load as it was: options of optimizers, modes of modules, callbacks."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from rlverify.checks.adapters import driving
from rlverify.checks.adapters.adapter import Adapter, NotSupportedError
from rlverify.checks.engine import faults as faults
from rlverify.checks.engine.check_records import CheckFinding
from rlverify.checks.engine.rule import failing, passing, rule
from rlverify.checks.engine.session import OTHER_SEED, SubjectSession, first_difference
from rlverify.checks.state.leaves import Leaf
from rlverify.checks.state.random_state import seed_globals
from rlverify.checks.state.trained import before_each_step, flags, groups_of, named_optimizers, numbered_optimizers
from rlverify.checks.state.tree import find, names_of, put, unequal, walk
from rlverify.records.attempts import Crash, attempt


def _halve_rates(inner: Adapter, model: Any, *_: Any) -> None:
    for group in groups_of(numbered_optimizers(inner.optimizers(model))).values():
        group["lr"] *= 0.5


def _halve_at_update(inner: Adapter, model: Any, *_: Any) -> None:
    optimizers = numbered_optimizers(inner.optimizers(model))
    waiting = set(optimizers)

    def halve(name: str, own: Any) -> None:
        if name in waiting:
            waiting.remove(name)
            own.param_groups[0]["lr"] *= 0.5

    before_each_step(optimizers, halve)


@rule(
    "resume",
    "high",
    rests_on=["deterministic", "load_returns_a_model"],
    faults=[
        faults.after("load", "halve the learning rate in load()", _halve_rates),
        faults.after("load", "set another learning rate at the first update after load()", _halve_at_update),
    ],
)
def learning_rates_continue(session: SubjectSession) -> CheckFinding:
    """The optimizers of a loaded model have the learning rates that they had when it was saved, and go on with them.

    Every group of every optimizer has its learning rate again, and other options such as betas and eps, after the load
    and at each of the next updates. A schedule that starts from the beginning, or an optimizer with default options,
    changes training without an error. An option that depends on the data is compared at the first update alone.
    """

    def at_updates(model: Any) -> tuple[dict[str, str], dict[str, list[str]]]:
        options, noted = _options(session, model), _noted(session, model)
        session.learn(model, session.steps_after)
        return options, noted

    def other_data() -> dict[str, list[str]]:
        model = session.trained_model()
        _draw(model)
        with suppress(NotSupportedError):
            driving.reset(session.adapter.environment(model))
        return at_updates(model)[1]

    (before, rates), (now, resumed) = session.saved_and_loaded(at_updates)
    changed = [key for key, value in before.items() if now.get(key) != value]
    if changed:
        key = changed[0]
        return failing(f"{key} is {now.get(key, 'missing')}, expected {before[key]}", where=key)
    apart = {key: _first_apart(each, resumed.get(key, [])) for key, each in rates.items()}
    later = {key: number for key, number in apart.items() if number is not None}
    others = session.run(other_data) if later and min(later.values()) > 1 else {}
    for key, number in later.items():
        expected = rates[key][number - 1]
        if number == 1 or others.get(key, [])[number - 1 : number] == [expected]:
            seen = f"{key} is {resumed[key][number - 1]} at update {number} after the load, expected {expected}"
            return failing(seen, where=key)
    return passing()


def _first_apart(one: Sequence[str], other: Sequence[str]) -> int | None:
    """The number of the first update at which an option differs; None if it does not, as far as there are updates."""
    count = min(len(one), len(other))
    return first_difference(one[:count], other[:count])


def _draw(model: Any) -> None:
    """Let all random generators give other numbers than they would."""
    seed_globals(OTHER_SEED)
    for path, leaf in walk(model).items():
        if leaf.text.startswith("generator "):
            node = find(model, path)[0]
            names = [each for each in ("random", "random_raw", "seed") if hasattr(node, each)]
            attempt(getattr(node, names[0]))


def _noted(session: SubjectSession, model: Any) -> dict[str, list[str]]:
    """The options of all groups by place, one text for each step of the optimizer: it fills during training."""
    noted: dict[str, list[str]] = {}

    def note(name: str, own: Any) -> None:
        for place, text in _options_of({name: own}).items():
            noted.setdefault(place, []).append(text)

    before_each_step(named_optimizers(model, session.adapter.optimizers(model)), note)
    return noted


def _options(session: SubjectSession, model: Any) -> dict[str, str]:
    optimizers = session.adapter.optimizers(model)
    if not optimizers:
        raise NotSupportedError("the model has no optimizer of torch")
    return _options_of(named_optimizers(model, optimizers))


def _options_of(optimizers: Mapping[str, Any]) -> dict[str, str]:
    options = {place: {**group, "params": ()} for place, group in groups_of(optimizers).items()}
    return {f"{place}{key}": leaf.text for place, own in options.items() for key, leaf in walk(own).items()}


def _flip(inner: Adapter, model: Any, *_: Any) -> None:
    for parameter in (each for module in inner.modules(model) for each in module.parameters()):
        parameter.requires_grad_(not parameter.requires_grad)
        return


def _hook(inner: Adapter, model: Any, *_: Any) -> None:
    inner.modules(model)[0].register_forward_hook(lambda *_: None)


def _evaluate(inner: Adapter, model: Any, *_: Any) -> None:
    for module in inner.modules(model):
        module.eval()


class _Seen(BaseException):
    """Every optimizer has made a step."""


@rule(
    "resume",
    "high",
    rests_on=["deterministic", "load_returns_a_model"],
    faults=[
        faults.after("load", "freeze a parameter in load()", _flip),
        faults.after("load", "leave the modules in evaluation mode in load()", _evaluate),
        faults.after("load", "add a hook to a module in load()", _hook),
    ],
)
def modules_continue(session: SubjectSession) -> CheckFinding:
    """At the first update after a load, the same parameters are frozen, and modules have the same mode and hooks.

    What is set on a module after it was made is in no state dictionary: a frozen layer is trained after the load, and a
    hook that limits gradients is gone.
    """

    def at_update(model: Any) -> dict[str, str]:
        noted: dict[str, str] = {}
        modules, optimizers = session.adapter.modules(model), numbered_optimizers(session.adapter.optimizers(model))
        waiting = set(optimizers)

        def note(optimizer: str, _own: Any) -> None:
            if optimizer in waiting:
                waiting.remove(optimizer)
                noted.update({f"{optimizer}: {name}": text for name, text in flags(modules, model).items()})
            if not waiting:
                raise _Seen  # the rest of the training shows nothing more

        before_each_step(optimizers, note)
        with suppress(_Seen):
            session.learn(model, session.steps_after)
        return noted

    before, now = session.saved_and_loaded(at_update)
    if not before:
        raise NotSupportedError("no optimizer of torch made a step")
    steps = {name.partition(": ")[0] for name in now}
    changed = [name for name in unequal(before, now) if name.partition(": ")[0] in steps]
    if not changed:
        return passing()
    names = list(dict.fromkeys(name.partition(": ")[2] for name in changed))
    now_and_before = [state.get(changed[0], "missing") for state in (now, before)]
    seen = "{} at the first update after the load, expected {}".format(*now_and_before)
    return failing(f"{names[0]} is {seen}", where=names[0], causes=names)


DERIVED: Final = {".num_timesteps", ".locals", ".globals", ".model", ".logger", ".training_env", ".parent"}
"""What callbacks get from the library at every call."""


def _forget_callbacks(inner: Adapter, folder: Path, fresh: Any) -> Any:
    initial = copy.deepcopy(list(inner.callbacks(fresh)))
    model = inner.load(folder, fresh)
    found = list(inner.callbacks(model))
    for path in walk(found):
        before = attempt(lambda path=path: find(initial, path)[0])  # type: ignore[misc]
        if not isinstance(before, Crash):
            put(found, path, before)
    return model


@rule(
    "resume",
    "medium",
    rests_on=["deterministic", "load_returns_a_model"],
    faults=[faults.instead("load", "forget the callbacks in load()", _forget_callbacks)],
)
def callbacks_continue(session: SubjectSession) -> CheckFinding:
    """Callbacks have the state again that they had when the model was saved.

    What trains along with the model, such as a callback that keeps the best return, is saved and loaded with it.
    Otherwise a resumed run saves a worse model as its best, stops too late, or counts from the beginning. What the
    library sets at every call, such as ``num_timesteps`` and ``locals`` of Stable-Baselines3, is left out.
    """

    def kept(model: Any) -> dict[str, Leaf]:
        found = walk(list(session.adapter.callbacks(model)))
        return {path: leaf for path, leaf in found.items() if not DERIVED & set(names_of(path))}

    before, after = session.saved_and_loaded(kept)
    if not before:
        raise NotSupportedError("callbacks() of the adapter gives nothing that has a state")
    again, _ = session.alone().saved_and_loaded(kept)
    for path, leaf in before.items():
        if path in again and again[path].digest != leaf.digest:
            continue
        if path not in after or after[path].digest != leaf.digest:
            now = after[path].text if path in after else "missing"
            return failing(f"callbacks{path} is {now} after the load, expected {leaf.text}", where=f"callbacks{path}")
    return passing()
