"""Rules about rollouts: recurrent networks, the probabilities that are stored, and how episodes end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np

from rlverify.checks.adapters import driving
from rlverify.checks.adapters.adapter import NotSupportedError
from rlverify.checks.engine import faults as faults
from rlverify.checks.engine.check_records import CheckFinding
from rlverify.checks.engine.rule import failing, in_a_process, inconclusive, passing, rule
from rlverify.checks.engine.search import listed
from rlverify.checks.engine.session import SubjectSession, digest_of
from rlverify.checks.state.leaves import in_doubles, is_tensor
from rlverify.checks.state.trained import named_parameters
from rlverify.checks.state.tree import find, put, walk
from rlverify.records.attempts import attempt

STEPS: Final = 6
ENVS: Final = 3
START: Final = 3
"""The step at which a second episode starts."""
TOLERANCE: Final = 1e-4
"""Between two log probabilities of one sample in single precision, computed in batches of different sizes."""


MODAL: Final = {"_DropoutNd", "_BatchNorm"}
"""Modules that give other outputs in training than in evaluation."""


NEVER_FORGETS: Final = faults.instead(
    "recurrent_outputs",
    "do not reset the state at the start of an episode",
    lambda inner, model, seen, starts: inner.recurrent_outputs(model, seen, np.zeros_like(starts)),
)
MIXED: Final = faults.after(
    "recurrent_outputs",
    "add a part of the mean over environments to the outputs",
    lambda _inner, found, *_: found + 1e-3 * found.mean(axis=1, keepdims=True),
)


def _move(inner: Any, model: Any) -> None:
    for parameter in named_parameters(list(inner.modules(model))).values():
        parameter.data.add_(0.05).mul_(1.05)


@rule("recurrence", "critical", faults=[NEVER_FORGETS])
@in_a_process
def episode_start_forgets(session: SubjectSession) -> CheckFinding:
    """The outputs after the start of an episode do not depend on what came before it.

    A state that survives the end of an episode lets the policy see what it cannot see when it is evaluated.
    """
    one, other = _outputs(session, np.s_[:START], [0, START])
    if np.array_equal(one[:START], other[:START]):
        return inconclusive("the outputs do not depend on the observations")
    return _equal(one[START:], other[START:], "step")


@rule("recurrence", "critical", faults=[MIXED])
@in_a_process
def environments_do_not_leak(session: SubjectSession) -> CheckFinding:
    """The outputs for one environment do not depend on the observations of another.

    A state that is reshaped or indexed in the wrong order mixes environments without an error: shapes still fit.
    """
    one, other = _outputs(session, np.s_[:, 0], [0])
    if np.array_equal(one[:, 0], other[:, 0]):
        return inconclusive("the outputs do not depend on the observations")
    return _equal(np.swapaxes(one[:, 1:], 0, 1), np.swapaxes(other[:, 1:], 0, 1), "environment")


def _outputs(session: SubjectSession, part: Any, beginnings: list[int]) -> list[Any]:
    """The outputs for some observations, and for others that differ from them in a part, by step and environment."""
    model = session.make()
    space = driving.observation_space(session.adapter.environment(model))
    first, other = (driving.observations(space, STEPS, ENVS, seed) for seed in (0, 1))
    starts = np.zeros((STEPS, ENVS), dtype=bool)
    starts[beginnings] = True
    return [session.adapter.recurrent_outputs(model, each, starts) for each in (first, _changed(first, other, part))]


def _changed(own: Any, other: Any, part: Any) -> Any:
    """A copy of observations in which a part is that of others."""
    if isinstance(own, dict):
        return {key: _changed(own[key], other[key], part) for key in own}
    found = own.copy()
    found[part] = other[part]
    return found


def _equal(one: Any, other: Any, name: str) -> CheckFinding:
    """Whether two arrays are the same, bit by bit; else where along the first dimension they begin to differ."""
    differ = [number for number in range(len(one)) if not np.array_equal(one[number], other[number])]
    if not differ:
        return passing()
    largest = float(np.max(np.abs(one - other)))
    offset = START if name == "step" else 1
    return failing(f"the outputs differ by up to {largest:.2g}, expected 0", where=f"{name} {differ[0] + offset}")


@rule(
    "recurrence",
    "high",
    faults=[faults.before("log_probs", "change the parameters between rollout and evaluation", _move)],
)
@in_a_process
def ratio_is_one_on_a_fresh_rollout(session: SubjectSession) -> CheckFinding:
    """Before the first update, the log probabilities of stored actions are the stored ones, within 0.0001.

    The ratio of new and old probability must begin at one. It does not if states, masks, noise or normalisation differ
    between rollout and training, or if dropout is on: clipping then acts on an error rather than on a change.
    """
    model = session.make()
    before = {path: _copied(find(model, path)[0]) for path, leaf in walk(model).items() if leaf.mutable}
    session.adapter.rollout(model)
    stored, evaluated = map(in_doubles, session.adapter.log_probs(model))
    apart = np.abs(stored - evaluated)
    if np.all(apart <= TOLERANCE):  # false for NaN
        return passing()
    worst = int(np.argmax(np.nan_to_num(apart, nan=np.inf)))
    seen = f"{int(np.sum(~(apart <= TOLERANCE)))} of {len(apart)} log probabilities differ"
    why = _reason(session, model, before, evaluated)
    return failing(f"{seen}, by up to {apart[worst]:.3g}", where=f"sample {worst}", why=why)


def _copied(value: Any) -> Any:
    """A copy of a tensor or an array; None for anything else."""
    if is_tensor(value):
        return value.detach().clone()
    return value.copy() if isinstance(value, np.ndarray) else None


def _reason(session: SubjectSession, model: Any, before: dict[str, Any], evaluated: Any) -> str:
    """What the rollout changed and the evaluation reads, and modules that draw or normalise by batches."""
    changed = []
    for path, old in before.items():
        new = _copied(attempt(lambda path=path: find(model, path)[0]))  # type: ignore[misc]
        if old is None or new is None or np.prod(old.shape) >= len(evaluated):
            continue  # generators, and data of the rollout
        put(model, path, old)
        found = attempt(lambda: in_doubles(session.adapter.log_probs(model)[1]))
        put(model, path, new)
        if isinstance(found, np.ndarray) and not np.array_equal(found, evaluated, equal_nan=True):
            changed.append(path)
    parts = [each for module in session.adapter.modules(model) for each in module.modules()]
    modes = {
        type(each).__name__
        for each in parts
        if each.training and MODAL & {base.__name__ for base in type(each).__mro__}
    }
    texts = [f"the rollout changed {listed(changed)}"] * bool(changed)
    texts += [f"in training mode while evaluating: {', '.join(sorted(modes))}"] * bool(modes)
    return "; ".join(texts)


EVERY: Final = 5
"""Steps of an episode that a check ends."""
End = Literal["truncated", "terminated", "neither"]


def _terminate(inner: Any, model: Any, _steps: int) -> None:
    for env in _single(inner.environment(model)):
        driving.after_each_step(env, lambda _, seen, reward, end, cut, info: (seen, reward, end or cut, False, info))


@rule(
    "numerics",
    "high",
    rests_on=["deterministic"],
    faults=[faults.before("learn", "take truncation for termination", _terminate)],
)
def truncation_is_not_termination(session: SubjectSession) -> CheckFinding:
    """Episodes that are cut off train otherwise than episodes that end.

    A state at which time runs out is worth what would have followed, so that its value has to be bootstrapped; after
    the end of an episode nothing follows. The environment ends an episode every 5 steps, once in either way.
    """
    found = {end: session.run(lambda end=end: _trained(session, end)) for end in ("truncated", "terminated")}  # type: ignore[misc]
    if found["truncated"] != found["terminated"]:
        return passing()
    if found["terminated"] == session.run(lambda: _trained(session, "neither")):
        raise NotSupportedError("training does not depend on the ends of episodes")
    return failing("the parameters are the same whether episodes are truncated or terminated", where="truncated")


def _trained(session: SubjectSession, end: End) -> dict[str, str]:
    model = session.make()
    env = session.adapter.environment(model)
    driving.require_this_process(env)
    for each in _single(env):
        _end_episodes(driving.innermost(each), end)
    session.learn(model, session.steps)
    return session.result(model)


def _single(env: Any) -> list[Any]:
    """The environments of a vector, or the environment itself."""
    return list(getattr(driving.innermost(env), "envs", None) or [env])


def _end_episodes(env: Any, end: End) -> None:
    """Let an environment end its episodes every few steps; it resets itself where nobody is told."""

    def ended(number: int, seen: Any, reward: Any, _terminated: Any, _truncated: Any, info: Any) -> Any:
        if number % EVERY:
            return None
        seen = env.reset()[0] if end == "neither" else seen
        return seen, reward, end == "terminated", end == "truncated", info

    driving.after_each_step(env, ended)


def _keep_resets(_inner: Any, rows: Sequence[Any], _model: Any) -> list[Any]:
    """Add the row of a reset after each end, as vectors of Gymnasium 1.0 return it."""
    found = [rows[0]]
    for before, row in pairwise(rows):
        found += [(before[4], row[1], 0.0, False, row[0])] * bool(before[3]) + [row]
    return found


@rule(
    "numerics",
    "high",
    faults=[
        faults.after("transitions", "keep the rows of resets", _keep_resets),
        faults.after("transitions", "leave out a row", lambda _inner, rows, _model: [rows[0], *rows[2:]]),
    ],
)
@in_a_process
def rows_are_transitions(session: SubjectSession) -> CheckFinding:
    """Each row of a rollout begins where the row before it ended, and after the end of an episode with a new one.

    Since Gymnasium 1.0, vectors of environments reset one step after the end: the action of that step does nothing, its
    reward is 0, and its row goes from the last observation of an episode to the first of another.
    """
    rows = list(session.adapter.transitions(session.make()))
    if not any(row[3] for row in rows[:-1]):
        return inconclusive(f"no episode ends in the first {len(rows)} rows; let transitions() give more")
    for number, (before, row) in enumerate(pairwise(rows), start=1):
        goes_on = digest_of(np.asarray(row[0])) == digest_of(np.asarray(before[4]))
        if before[3] and goes_on:
            seen = f"row {number} is a reset: it begins with the last observation of the episode before"
            return failing(seen, where=f"row {number}")
        if not before[3] and not goes_on:
            return failing(f"row {number} does not begin where row {number - 1} ended", where=f"row {number}")
    return passing()
