"""Rules about episodes: how they end, and which rows of a rollout belong to them."""

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
from rlverify.checks.engine.session import SubjectSession, digest_of

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
