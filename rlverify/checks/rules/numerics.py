"""Rules about numbers: one-sample minibatches, NaN, and advantages."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np

from rlverify.checks.adapters import driving
from rlverify.checks.adapters.adapter import NotSupportedError
from rlverify.checks.engine import faults as faults
from rlverify.checks.engine.check_records import CheckFinding
from rlverify.checks.engine.rule import failing, in_a_process, passing, rule
from rlverify.checks.engine.session import SubjectSession
from rlverify.checks.state.leaves import in_doubles
from rlverify.checks.state.trained import named_parameters
from rlverify.records.attempts import Crash, attempt

FIRST: Final = 5
EVERY: Final = 4
"""Steps before the first observation of NaN, and from one to the next."""
TOLERANCE: Final = 1e-5
"""Of a sum in single precision, as a part of the largest value in it."""


def _with_nan(inner: Any, model: Any, _steps: int) -> None:
    """One element of the gradient is NaN at every update."""
    for optimizer in inner.optimizers(model):
        optimizer.register_step_pre_hook(_spoil)


def _spoil(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    for parameter in optimizer.param_groups[0]["params"]:
        if parameter.grad is not None:
            parameter.grad.reshape(-1)[:1] = float("nan")


@rule(
    "numerics",
    "high",
    rests_on=["deterministic"],
    faults=[faults.before("learn", "divide by zero in every update", _with_nan)],
)
@in_a_process
def one_sample_minibatch(session: SubjectSession) -> CheckFinding:
    """A minibatch of one sample leaves every parameter finite.

    The standard deviation of one sample is NaN, and so is every parameter after an update with advantages that are
    divided by it. Rollouts whose length is one more than a multiple of the batch size have such a remainder. An error,
    such as that of batch normalisation, leaves the parameters finite too.
    """
    model = session.make()
    settings = session.adapter.one_sample_settings(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # libraries warn of the remainder
        changed = session.adapter.with_settings(model, **settings)
        ended = attempt(lambda: session.adapter.learn(changed, session.adapter.steps(changed)))
    broken = not_finite(session, changed)
    text = ", ".join(f"{key}={value}" for key, value in settings.items())
    if broken:
        return failing(f"with {text}, {len(broken)} parameters are not finite", where=broken[0], causes=[text])
    return passing(f"with {text}, learn() raises {ended.line}" if isinstance(ended, Crash) else "")


def not_finite(session: SubjectSession, model: Any) -> list[str]:
    """The names of parameters that hold NaN or infinity."""
    torch = sys.modules.get("torch")
    parameters = named_parameters(list(session.adapter.modules(model)))
    if torch is None or not parameters:
        raise NotSupportedError("the model has no parameters of torch")
    return [name for name, each in parameters.items() if not torch.isfinite(each).all()]


def _scaled(_inner: Any, found: tuple[Any, Any, Any], _model: Any) -> tuple[Any, Any, Any]:
    return found[0] / 2 + 1, *found[1:]


def _normalised(_inner: Any, found: tuple[Any, Any, Any], _model: Any) -> tuple[Any, Any, Any]:
    return *found[:2], (found[2] - np.mean(found[2])) / (2 * np.std(found[2]) + 1)


@rule(
    "numerics",
    "high",
    faults=[
        faults.after("advantages", "scale the returns and not the values", _scaled),
        faults.after("advantages", "normalise the advantages in place", _normalised),
    ],
)
@in_a_process
def returns_minus_values_are_advantages(session: SubjectSession) -> CheckFinding:
    """After training, returns minus values are the advantages in the rollout buffer, or proportional to them.

    One factor for all samples is that of an algorithm which normalises its values. If returns are scaled and values are
    not, the value function learns another target than the advantages use. If an update normalises the buffer in place,
    every later epoch normalises again.
    """
    model = session.trained_model()
    returns, values, advantages = map(in_doubles, session.adapter.advantages(model))
    scale = max(1.0, float(np.max(np.abs(returns))), float(np.max(np.abs(values))))
    differences = returns - values
    wrong = ~(np.abs(differences - advantages) <= TOLERANCE * scale)
    factor = float(np.sum(differences * advantages) / max(float(np.sum(advantages**2)), 1e-300))
    if not wrong.any() or (factor > 0 and np.all(np.abs(differences - factor * advantages) <= TOLERANCE * scale)):
        return passing()
    first = int(np.flatnonzero(wrong)[0])
    difference, advantage = float(differences.flat[first]), float(advantages.flat[first])
    seen = f"{int(wrong.sum())} of {wrong.size} differ: returns - values is {difference:.4g}, the advantage is"
    return failing(f"{seen} {advantage:.4g}", where=f"sample {first}")


def generalised_advantages(found: Mapping[str, Any]) -> Any:
    """What generalised advantage estimation gives for what `Adapter.advantage_inputs` returned."""
    found = {name: in_doubles(value) for name, value in found.items()}
    rewards, values, starts = (found[name] for name in ("rewards", "values", "episode_starts"))
    following = np.concatenate([values[1:], np.reshape(found["last_values"], (1, *values.shape[1:]))])
    alive = 1 - np.concatenate([starts[1:], np.reshape(found["last_episode_starts"], (1, *values.shape[1:]))])
    advantages, later = np.zeros_like(values), np.zeros_like(values[0])
    for step in reversed(range(len(values))):
        delta = rewards[step] + found["gamma"] * alive[step] * following[step] - values[step]
        later = delta + found["gamma"] * found["gae_lambda"] * alive[step] * later
        advantages[step] = later
    return advantages


def _never_ends(_inner: Any, found: Mapping[str, Any], _model: Any) -> Mapping[str, Any]:
    starts = {name: np.zeros_like(found[name]) for name in ("episode_starts", "last_episode_starts")}
    return {**found, "advantages": generalised_advantages({**found, **starts})}


@rule(
    "numerics",
    "high",
    faults=[
        faults.after("advantage_inputs", "go on over the end of an episode", _never_ends),
        faults.after(
            "advantage_inputs",
            "leave out the value after the last step",
            lambda _inner, found, _model: {
                **found,
                "advantages": generalised_advantages({**found, "last_values": np.zeros_like(found["last_values"])}),
            },
        ),
    ],
)
@in_a_process
def advantages_are_generalised(session: SubjectSession) -> CheckFinding:
    """The advantages of a rollout are those of generalised advantage estimation, within 1e-05.

    They are computed again, in ten lines, from rewards, values and starts of episodes. The last step is the hard one:
    an episode that ends there, and the value of what follows where it does not. Episodes of a vector of
    Stable-Baselines3 end every few steps in a first rollout.
    """
    model, ends = session.make(), [True]
    with suppress(NotSupportedError):
        _end_often(session.adapter.environment(model), ends)
    for is_often in (True, False):
        ends[0] = is_often
        found = session.adapter.advantage_inputs(model)
        expected, seen = generalised_advantages(found), in_doubles(found["advantages"])
        wrong = np.argwhere(~(np.abs(expected - seen) <= 10 * TOLERANCE * max(1.0, float(np.max(np.abs(expected))))))
        if len(wrong):
            last = tuple(wrong[-1])
            text = f"the advantage is {seen[last]:.4g}, expected {expected[last]:.4g}"
            return failing(f"{len(wrong)} of {seen.size} differ: {text}", where=f"step {last[0] + 1}")
    return passing()


def _end_often(env: Any, is_often: list[bool]) -> None:
    """Let a vector of Stable-Baselines3 report the end of an episode every few steps, while a switch is on."""

    def ended(number: int, seen: Any, rewards: Any, ends: Any, infos: Any) -> Any:
        return seen, rewards, ends | (is_often[0] and number % EVERY == 0), infos

    if driving.is_sb3_vector(driving.innermost(env)):
        driving.after_each_step(env, ended)


def _go_on_after_an_error(inner: Any, model: Any, steps: int) -> Any:
    """Catch what learn() raises, and have NaN in a parameter in its place."""
    found = attempt(lambda: inner.learn(model, steps))
    if not isinstance(found, Crash):
        return found
    _set_to_nan(inner, model)
    return ()


def _set_to_nan(adapter: Any, model: Any) -> None:
    for parameter in named_parameters(list(adapter.modules(model))).values():
        parameter.data.fill_(float("nan"))


@rule(
    "numerics",
    "medium",
    rests_on=["deterministic"],
    faults=[
        faults.instead("learn", "catch the error and go on with NaN in the parameters", _go_on_after_an_error),
        faults.after("learn", "write NaN into the parameters", lambda inner, _, model, _n: _set_to_nan(inner, model)),
    ],
)
@in_a_process
def nan_observation_is_reported(session: SubjectSession) -> CheckFinding:
    """Observations of NaN raise an error, or leave every parameter finite.

    Otherwise one observation of a broken simulator destroys the model, and the run continues to its end.
    """
    steps = session.steps
    model = session.make()
    _break(session.adapter.environment(model))
    ended = attempt(lambda: session.adapter.learn(model, steps))
    broken = not_finite(session, model)
    if isinstance(ended, Crash) or not broken:
        return passing(f"learn() raises {ended.line}" if isinstance(ended, Crash) else "every parameter stays finite")
    return failing(f"learn() returns, and {len(broken)} parameters are not finite", where=broken[0], causes=["learn()"])


def _break(env: Any) -> None:
    """Make an environment return NaN every few steps."""
    driving.require_this_process(env)
    space = driving.observation_space(driving.innermost(env))
    if not np.issubdtype(getattr(space, "dtype", None) or np.int64, np.floating):
        raise NotSupportedError("the observations are no floating-point numbers")

    def broken(number: int, observation: Any, *others: Any) -> Any:
        is_due = number >= FIRST and number % EVERY == 0
        return (np.full_like(observation, np.nan), *others) if is_due else None

    driving.after_each_step(env, broken)
