"""Checks for a suite of one's own: resuming with other sizes, parts of the state, and functions of a trained model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlverify.checks.engine import faults as faults
from rlverify.checks.engine.check_records import CheckFinding
from rlverify.checks.engine.faults import GenericFault
from rlverify.checks.engine.rule import RULES, Rule, failing, passing
from rlverify.checks.engine.session import SubjectSession, digest_of
from rlverify.checks.rules.resume import forgettable, resume_is_exact
from rlverify.checks.state.tree import find, leaves_below
from rlverify.records.claims import Severity

SUITE: str = "suite"
"""The family of what a suite adds."""


def resume(*, steps: int, interrupt_at: int, name: str = "resume") -> Rule:
    """Training that is saved, loaded in a new process and continued gives the same parameters as without.

    Both learn in two calls, so that a schedule over the steps of one call makes no difference. An algorithm may round
    the steps up, as those of Stable-Baselines3 do to whole rollouts.

    :param steps: of the whole training
    :param interrupt_at: the step after which the model is saved, from 1 to one less than ``steps``
    :param name: of the check in its suite
    :raises ValueError: if ``interrupt_at`` is outside
    """
    if not 0 < interrupt_at < steps:
        raise ValueError(
            f"interrupt_at={interrupt_at} is not inside of a training of {steps} steps; choose a step in it"
        )
    spans = (interrupt_at, steps - interrupt_at)
    return replace(
        RULES["resume_is_exact"],
        name=name,
        family=SUITE,
        expected=f"Training of {steps} steps that is saved and resumed after {interrupt_at} gives the same parameters.",
        function=lambda session: resume_is_exact(replace(session, spans=spans)),
        faults=lambda session: forgettable(replace(session, spans=spans)),
    )


def save_load(*, state: Sequence[str], name: str = "save_load") -> Rule:
    """Parts of the state are the same after a save and a load.

    :param state: paths of attributes of the model, such as ``ret_ema`` or ``policy.optimizer.state``
    :param name: of the check in its suite
    :raises ValueError: if no path is given
    """
    paths = [state] if isinstance(state, str) else list(state)
    if not paths:
        raise ValueError("state is empty, so nothing would be compared; name the attributes that have to survive")

    def survives(session: SubjectSession) -> CheckFinding:
        with session.folder(has_model=True) as folder:
            before, after = session.run(lambda: _before_and_after(session, folder, paths))
        lost = [path for path in paths if before[path] != after[path]]
        if not lost:
            return passing()
        return failing(f"{', '.join(lost)} differ{'s' * (len(lost) == 1)} after the load", where=lost[0], causes=lost)

    return Rule(
        name,
        SUITE,
        "high",
        f"{', '.join(paths)} {'is' if len(paths) == 1 else 'are'} the same after a save and a load.",
        survives,
        rests_on=("deterministic",),
        faults=lambda _session: [faults.forget(path) for path in paths],
        blamed="caller",
    )


def _before_and_after(
    session: SubjectSession, folder: Path, paths: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    model = session.trained_model()
    loaded = session.loaded(folder)
    for path in paths:
        if not leaves_below(model, path):
            raise AttributeError(f"{type(model).__name__} has no {path!r} after training; correct the path")
    return _digests(model, paths), _digests(loaded, paths)


def _digests(model: Any, paths: Sequence[str]) -> dict[str, str]:
    """One digest for each path: of all leaves that belong to it, also where another path is the shorter to them."""
    return {path: repr({each: digest_of(find(model, each)[0]) for each in leaves_below(model, path)}) for path in paths}


def holds(
    function: Callable[[Any], str | None],
    *,
    name: str = "",
    expected: str = "",
    severity: Severity = "high",
    faults: Sequence[GenericFault] = (),
    after_load: bool = False,
) -> Rule:
    """A rule of one's own about a trained model.

    :param function: gets a model after training, and returns what is wrong with it; None or an empty text for nothing.
        Another value, such as True, is an error of the check
    :param name: of the check in its suite; by default that of the function
    :param expected: what holds, in a sentence; by default the first line of the function's documentation
    :param faults: those that prove it, such as ``faults.overwrite("ret_ema", 0.0)``; with ``after_load`` also those in
        load(), such as ``faults.forget("ret_ema")``
    :param after_load: whether the function gets the model after a load too, and once more after some training then
    :raises ValueError: if the function has no name and none is given
    """
    shown = name or getattr(function, "__name__", "<lambda>")
    if shown == "<lambda>":
        raise ValueError("the function has no name that a report could show; give one: holds(function, name=...)")

    def checked(session: SubjectSession) -> CheckFinding:
        def wrong_in(model: Any) -> str | None:
            found = function(model)
            if found is not None and not isinstance(found, str):
                raise TypeError(f"{shown} returned {found!r:.80}; return None, or what is wrong as a text")
            return found

        def loaded(folder: Path) -> str | None:
            model = session.loaded(folder)
            wrong = wrong_in(model)
            session.learn(model, session.steps_after)
            return wrong or wrong_in(model)

        wrong = session.run(lambda: wrong_in(session.trained_model()))
        if wrong or not after_load:
            return failing(wrong) if wrong else passing()
        with session.folder(has_model=True) as folder:
            wrong = session.run(lambda: loaded(folder))
        return failing(wrong, where="after load()") if wrong else passing()

    first = inspect.cleandoc(function.__doc__ or "").partition("\n")[0]
    says = expected or first or f"{shown} finds nothing."
    return Rule(shown, SUITE, severity, says, checked, faults=lambda _: faults, blamed="caller")
