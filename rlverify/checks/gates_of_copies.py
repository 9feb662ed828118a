"""A gate of its own: whether environments can be copied."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Final

from rlverify.checks import driving
from rlverify.checks import generic_faults as faults
from rlverify.checks.check_records import CheckFinding
from rlverify.checks.generic_faults import GenericFault
from rlverify.checks.random_state import global_state, set_global_state
from rlverify.checks.rule import failing, passing, rule
from rlverify.checks.session import SubjectSession, first_difference
from rlverify.checks.state_tree import walk
from rlverify.records.attempts import Crash, attempt

BEFORE: Final = 7
"""Steps before the copy, so that it is made in the middle of an episode."""
AFTER: Final = 40
"""Steps after it, with a reset in the middle."""


class _CopyOf(faults.Wrapped):
    """Copies an environment in its own way."""

    def environment(self, model: Any) -> Any:
        env = self.inner.environment(model)
        kind = type(env)
        env.__class__ = type(kind.__name__, (kind,), {"__deepcopy__": lambda own, memo: self.copied(own, kind, memo)})
        return env

    def copied(self, env: Any, kind: type, memo: dict[int, Any]) -> Any:
        env.__class__ = kind
        return copy.deepcopy(env, memo)


class _CopyIsReset(_CopyOf):
    def copied(self, env: Any, kind: type, memo: dict[int, Any]) -> Any:
        found = super().copied(env, kind, memo)
        driving.reset(found)
        return found


class _CopyIsTheSame(_CopyOf):
    def copied(self, env: Any, kind: type, memo: dict[int, Any]) -> Any:
        super().copied(env, kind, memo)
        return env


@rule(
    "gates",
    "medium",
    "A copy of the environment gives the same observations, rewards and ends for the same actions.",
    faults=[
        GenericFault("reset the copy of the environment", _CopyIsReset),
        GenericFault("return the environment itself as its copy", _CopyIsTheSame),
    ],
)
def environment_can_be_copied(session: SubjectSession) -> CheckFinding:
    """`copy.deepcopy` of the environment, made in the middle of an episode, steps exactly as the original does.

    Simulators that keep their state in compiled code often copy without an error and lose it. Whatever copies such an
    environment, for evaluation or to resume, then goes on from another state.
    """

    def action() -> CheckFinding:
        env = session.adapter.environment(session.make())
        driving.require_this_process(env)
        driving.reset(env)
        chosen = driving.actions(env, BEFORE + AFTER)
        for each in chosen[:BEFORE]:
            driving.step(env, each)
        copied = attempt(lambda: copy.deepcopy(env))
        if isinstance(copied, Crash):
            return failing(f"copy.deepcopy raises {copied.line}", where="copy.deepcopy")
        generators = global_state()
        expected = _steps(env, chosen[BEFORE:])
        set_global_state(generators)
        found = attempt(lambda: _steps(copied, chosen[BEFORE:]))
        if isinstance(found, Crash):
            return failing(f"the copy raises {found.line}", where="step of the copy")
        number = first_difference(expected, found)
        return passing() if number is None else failing("the copy goes on otherwise", where=f"step {number}")

    return session.run(action)


def _steps(env: Any, actions: Sequence[Any]) -> list[dict[str, str]]:
    """Digests of what an environment returns for each action, with one reset in the middle."""
    found = []
    for number, action in enumerate(actions):
        if number == len(actions) // 2:
            found.append(_digests(driving.reset(env)))
        found.append(_digests(driving.step(env, action)))
    return found


def _digests(returned: Any) -> dict[str, str]:
    return {path: leaf.digest for path, leaf in walk(returned).items()}
