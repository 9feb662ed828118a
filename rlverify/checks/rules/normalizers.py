"""Rules about running statistics: finite, saved, and copied with the policy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlverify.checks.adapters import driving
from rlverify.checks.engine import faults as faults
from rlverify.checks.engine.check_records import CheckFinding
from rlverify.checks.engine.rule import failing, in_a_process, passing, rule
from rlverify.checks.engine.session import SubjectSession
from rlverify.checks.rules.training_settings import RESTORES_LAST_GROUP, judged, rates_used


def _copied(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.array(value, dtype=np.float64) for name, value in state.items()}


def _put(state: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Write values into the arrays of statistics; numbers without an array are left as they are."""
    for name, array in state.items():
        if isinstance(array, np.ndarray) and array.ndim:
            array[...] = values[name]


def _forget_normalizer(inner: Any, folder: Path, fresh: Any) -> Any:
    initial = _copied(inner.normalizer_state(fresh))
    model = inner.load(folder, fresh)
    _put(inner.normalizer_state(model), initial)
    return model


def _make_infinite(inner: Any, _trace: Any, model: Any, _steps: int) -> None:
    state = inner.normalizer_state(model)
    _put(state, dict.fromkeys(state, np.inf))


def _leave_normalizer_behind(inner: Any, model: Any, parameters: Any) -> None:
    own = _copied(inner.normalizer_state(model))
    inner.set_parameters(model, parameters)
    _put(inner.normalizer_state(model), own)


@rule(
    "numerics",
    "high",
    rests_on=["deterministic", "load_returns_a_model"],
    faults=[
        faults.instead("load", "leave the normaliser as it was in load()", _forget_normalizer),
        faults.after("learn", "write infinity into the statistics", _make_infinite),
    ],
)
def normalizer_is_finite_and_saved(session: SubjectSession) -> CheckFinding:
    """The statistics of the normaliser are finite after training, and the same after a load.

    A policy acts on normalised observations. With other statistics, the same policy is another policy.
    """
    with session.folder() as folder:

        def trained() -> dict[str, Any]:
            model = session.trained_model()
            session.adapter.save(model, folder)
            return _copied(session.adapter.normalizer_state(model))

        before = session.run(trained)
        broken = [key for key, value in before.items() if not np.all(np.isfinite(value))]
        if broken:  # before a load, which may refuse them
            return failing(f"{len(broken)} of {len(before)} statistics are not finite", where=broken[0])
        after = session.run(lambda: _copied(session.adapter.normalizer_state(session.loaded(folder))))
    changed = [key for key in before if key not in after or not np.array_equal(before[key], after[key])]
    if not changed:
        return passing()
    key = changed[0]
    return failing(f"{key} is {_shown(after.get(key))} after the load, expected {_shown(before[key])}", where=key)


def _shown(value: Any) -> str:
    return "missing" if value is None else ", ".join(f"{each:.4g}" for each in np.ravel(value)[:3])


@rule(
    "populations",
    "high",
    faults=[
        faults.instead("set_parameters", "leave the normaliser behind in set_parameters()", _leave_normalizer_behind)
    ],
)
@in_a_process
def statistics_follow_the_policy(session: SubjectSession) -> CheckFinding:
    """After set_parameters(get_parameters()), the receiver normalises an observation as the source does.

    Otherwise the policy gets observations in another scale after an exploit, and the copy acts differently from the
    member that was selected for its return.
    """
    source, receiver = session.make(), session.make()
    inner = driving.innermost(session.adapter.environment(source))
    drawn = driving.observations(driving.observation_space(inner), 1, 1, seed=0)
    raw = {key: each[0, 0] for key, each in drawn.items()} if isinstance(drawn, dict) else drawn[0, 0]
    session.adapter.normalized(source, raw)  # raises where there is no normaliser, before the training
    session.adapter.learn(source, session.adapter.steps(source))
    session.adapter.set_parameters(receiver, session.adapter.get_parameters(source))
    expected, found = (_flat(session.adapter.normalized(each, raw)) for each in (source, receiver))
    if np.array_equal(expected, found):
        return passing()
    return failing(f"the observation is {_shown(found)}, expected {_shown(expected)}", where="normalised observation")


def _flat(observation: Any) -> Any:
    if isinstance(observation, dict):
        return np.concatenate([np.ravel(observation[key]) for key in sorted(observation)])
    return np.ravel(observation)


@rule("populations", "high", faults=[faults.KEEPS_LEARNING_RATE, RESTORES_LAST_GROUP])
@in_a_process
def explored_values_train(session: SubjectSession) -> CheckFinding:
    """A learning rate that was set after set_parameters() is that of the next updates.

    Optimizers restore the learning rate of the source with their state. If that happens after the new value was set, or
    again at one of the next updates, such as in a callback, the search over learning rates has no effect
    (ray-project/ray #62173).
    """

    def used(value: float) -> dict[str, list[float]]:
        source, receiver = session.trained_model(), session.make()
        session.adapter.set_parameters(receiver, session.adapter.get_parameters(source))
        session.adapter.set_learning_rate(receiver, value)
        found = rates_used(session.adapter.optimizers(receiver))
        for steps in (session.steps, session.steps_after):
            session.adapter.learn(receiver, steps)
        return found

    return judged(session, used)
