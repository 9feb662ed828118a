"""Rules for environments whose state can be taken and set, and the function that runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Unpack

import numpy as np

from rlverify.checks.adapters import driving
from rlverify.checks.engine.check_records import CheckFinding, CheckRecord
from rlverify.checks.engine.faults import GenericFault, instead
from rlverify.checks.engine.kinds import CheckOptions, Kind
from rlverify.checks.engine.rule import compared, failing, passing
from rlverify.checks.engine.session import OTHER_SEED, first_difference
from rlverify.checks.state.leaves import is_tensor
from rlverify.checks.state.random_state import seed_globals
from rlverify.checks.state.tree import children, digests

BEFORE: Final = 7
AFTER: Final = 31
"""Steps before the state is taken, and after it."""
PLAIN: Final = (type(None), bool, int, float, str, bytes, np.bool_, np.number)


@dataclass(frozen=True)
class EnvStateSubject:
    """An environment, and how its state is taken and set."""

    make: Callable[[], Any]
    get_state: Callable[[Any], Any]
    set_state: Callable[[Any, Any], object]

    def started(self) -> tuple[Any, Any, list[Any]]:
        """An environment in the middle of an episode, its state there, and the actions that follow."""
        env = self.make()
        actions = driving.started(env, BEFORE, AFTER)
        return env, self.get_state(env), actions

    def moved(self, state: Any) -> Any:
        """Another environment, which is given a state."""
        env = self.make()
        driving.reset(env)
        self.set_state(env, state)
        return env


ENV_STATES: Final = Kind[EnvStateSubject]("states of environments", "check_env_state")


def check_env_state(
    factory: Callable[[], Any],
    *,
    get_state: Callable[[Any], Any] = lambda env: env.get_state(),
    set_state: Callable[[Any, Any], object] = lambda env, state: env.set_state(state),
    **options: Unpack[CheckOptions],
) -> list[CheckRecord]:
    """Run the rules for states of environments; nothing is raised for what the environment does.

    :param factory: makes an environment of Gymnasium, or a vector of Stable-Baselines3
    :param get_state: returns the state of an environment
    :param set_state: gives an environment a state
    :param options: as `CheckOptions` says
    :raises UnknownRuleError: if there is no rule of a name
    """
    subject = EnvStateSubject(factory, get_state, set_state)
    return ENV_STATES.check(subject, factory, subject.started, **options)


def _steps(env: Any, actions: Sequence[Any]) -> list[dict[str, str]]:
    return [digests(driving.step(env, action)) for action in actions]


def _judged(expected: Sequence[Any], found: Sequence[Any]) -> CheckFinding:
    number = first_difference(expected, found)
    return passing() if number is None else failing("the environment goes on otherwise", where=f"step {number}")


def _aliasing(subject: EnvStateSubject) -> EnvStateSubject:
    """The state holds the environment itself."""
    return replace(
        subject,
        get_state=lambda env: (subject.get_state(env), env),
        set_state=lambda env, state: subject.set_state(env, state[0]),
    )


def _keeping(subject: EnvStateSubject) -> EnvStateSubject:
    """The environment notes its steps in the state that it was given."""

    def set_state(env: Any, state: list[Any]) -> None:
        subject.set_state(env, state[0])
        state[1] += 1

    return replace(subject, get_state=lambda env: [subject.get_state(env), 0], set_state=set_state)


IGNORES: Final = instead("set_state", "ignore set_state()", lambda *_: None)
ALIASES: Final = GenericFault("return the environment with the state", _aliasing)


@ENV_STATES.rule("high", faults=[IGNORES])
def env_state_continues(subject: EnvStateSubject) -> CheckFinding:
    """An environment whose state is set goes on as it did.

    What is missing in the state, most often the random generator or a counter of steps, shows at some later step.
    """
    env, state, actions = subject.started()
    expected = _steps(env, actions)
    subject.set_state(env, state)
    return _judged(expected, _steps(env, actions))


@ENV_STATES.rule("high", faults=[IGNORES])
def env_state_moves(subject: EnvStateSubject) -> CheckFinding:
    """Another environment goes on with the state of the first.

    A new environment that is given the state goes on as the first one, also if global generators differ. This is what
    resuming needs: the process that reads a state is not the one that took it.
    """
    env, state, actions = subject.started()
    expected = _steps(env, actions)
    seed_globals(OTHER_SEED)
    return _judged(expected, _steps(subject.moved(state), actions))


@ENV_STATES.rule("high", faults=[ALIASES])
def env_state_is_a_copy(subject: EnvStateSubject) -> CheckFinding:
    """A state that was taken does not change while the environment goes on.

    A state that holds the environment's own arrays is the state of a later step when it is used.
    """
    env, state, actions = subject.started()
    before = digests(state)
    _steps(env, actions)
    return compared(before, digests(state), "{} values of the state changed")


@ENV_STATES.rule("medium", faults=[GenericFault("note the use in the state", _keeping)])
def set_state_copies(subject: EnvStateSubject) -> CheckFinding:
    """An environment leaves the state that it was given as it is.

    Otherwise one state can be used once: the second environment that gets it starts elsewhere.
    """
    _, state, actions = subject.started()
    before = digests(state)
    _steps(subject.moved(state), actions)
    return compared(before, digests(state), "{} values of the state changed")


@ENV_STATES.rule("medium", faults=[ALIASES])
def env_state_needs_no_pickle(subject: EnvStateSubject) -> CheckFinding:
    """A state holds plain values and arrays of numbers only.

    A state is made of numbers, texts, arrays of numbers, lists, tuples and dictionaries. Such a state can be written
    and read without pickle, which would run whatever a file names.
    """
    strange = _strange("state", subject.started()[1])
    return failing(f"it holds a {strange[1]}", where=strange[0]) if strange else passing()


def _strange(path: str, node: Any) -> tuple[str, str] | None:
    """The place and the class of the first value that is not plain."""
    if isinstance(node, PLAIN) or is_tensor(node):
        return None
    if isinstance(node, np.ndarray) and not node.dtype.hasobject:
        return None
    if not isinstance(node, list | tuple | Mapping):
        return path, f"{type(node).__module__}.{type(node).__qualname__}"
    found = (_strange(path + key, each) for key, each in children(node).items())
    return next((each for each in found if each is not None), None)
