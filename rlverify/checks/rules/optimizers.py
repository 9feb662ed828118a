"""Rules for optimizers with the interface of `torch.optim`, and the function that runs them."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable
from typing import Any, Final, Unpack

import torch

from rlverify.checks.adapters.adapter import NotSupportedError
from rlverify.checks.engine.check_records import CheckFinding, CheckRecord
from rlverify.checks.engine.kinds import CheckOptions, Kind
from rlverify.checks.engine.rule import compared, failing, passing
from rlverify.checks.rules import optimizer_faults as planted
from rlverify.checks.rules.optimizer_faults import (
    OptimizerRun,
    OptimizerSubject,
    broken_leaves,
    pulled,
    pulled_with,
    set_options,
)
from rlverify.checks.state.tree import walk
from rlverify.records.attempts import Crash, attempt


def _nearest(subject: OptimizerSubject) -> tuple[type, OptimizerSubject | None]:
    """The class of `torch.optim` that an optimizer is or derives from; Adam if it is of another kind."""
    own = type(subject.start().optimizer)
    classes = (each for each in own.__mro__ if each.__module__.startswith("torch.optim."))
    kind = next(classes, torch.optim.Optimizer)
    kind = torch.optim.Adam if kind is torch.optim.Optimizer else kind
    return kind, None if own is kind else OptimizerSubject(kind)


OPTIMIZERS: Final = Kind[OptimizerSubject]("optimizers", "check_optimizer", nearest=_nearest)
STEPS: Final = 5
HUGE: Final = 1e25
"""A gradient whose square is infinite in single precision, while it is finite itself."""
TOLERANCE: Final = 1e-5
"""Between two implementations of one formula in single precision, relative and absolute."""
DECAYS: Final = ("weight_decay", "lambd", "decay")
"""Options that pull parameters towards 0 whatever the gradient."""
HALVES: Final = (torch.bfloat16, torch.float16)


def check_optimizer(
    factory: Callable[[list[Any]], torch.optim.Optimizer], **options: Unpack[CheckOptions]
) -> list[CheckRecord]:
    """Run the rules for optimizers; nothing is raised for what the optimizer does.

    :param factory: makes an optimizer of a list of parameters, such as ``torch.optim.Adam``
    :param options: as `CheckOptions` says
    :raises UnknownRuleError: if there is no rule of a name
    """
    subject = OptimizerSubject(factory)
    return OPTIMIZERS.check(subject, factory, lambda: subject.steps(subject.start(), 1), **options)


def _apart(expected: dict[str, str], found: dict[str, str], what: str) -> CheckFinding:
    return compared(expected, found, f"{{}} tensors and options differ {what}")


@OPTIMIZERS.rule("high", faults=[planted.FORGETS_STATE])
def state_dict_continues(subject: OptimizerSubject) -> CheckFinding:
    """A saved and loaded state continues exactly.

    What is not in the state dictionary is lost at every restart. The file is read by `torch.load(weights_only=True)`.
    """
    running = subject.started(STEPS)
    resumed = subject.start()
    for own, parameter in zip(resumed.parameters, running.parameters, strict=True):
        own.data.copy_(parameter.data)
    read = attempt(lambda: torch.load(io.BytesIO(subject.saved(running)), weights_only=True))
    if isinstance(read, Crash):
        return failing(f"the saved state cannot be read: {read.line}", where="torch.load(weights_only=True)")
    subject.load(resumed, read)
    resumed.count = running.count
    for each in (running, resumed):
        subject.steps(each, STEPS)
    return _apart(running.digests(), resumed.digests(), f"{STEPS} steps after the load")


@OPTIMIZERS.rule("medium", faults=[planted.FORGETS_STATE_IN_COPIES])
def deepcopy_continues(subject: OptimizerSubject) -> CheckFinding:
    """A deep copy continues exactly.

    Populations and evaluations copy models with their optimizers. State in closures or hooks is not copied.
    """
    running = subject.started(STEPS)
    copied = attempt(lambda: subject.copied(running))
    if isinstance(copied, Crash):
        return failing(f"copy.deepcopy raises {copied.line}", where="copy.deepcopy")
    before = running.digests()
    ended = attempt(lambda: subject.steps(copied, STEPS))
    if isinstance(ended, Crash):
        return failing(f"step() of the copy raises {ended.line}", where="step() of the copy")
    if running.digests() != before:
        return _apart(before, running.digests(), "in the original after the copy made steps")
    subject.steps(running, STEPS)
    return _apart(running.digests(), copied.digests(), f"{STEPS} steps after the copy")


@OPTIMIZERS.rule("high", faults=[planted.SHARES])
def load_state_dict_copies(subject: OptimizerSubject) -> CheckFinding:
    """After load_state_dict(), two optimizers share no tensor.

    If tensors are shared, the members of a population change each other's momentum (pytorch/pytorch #196083).
    """
    source, receiver = subject.started(STEPS), subject.start()
    if not walk(planted.state_of(source.optimizer.state_dict())):
        raise NotSupportedError("the optimizer has no state")
    subject.load(receiver, source.optimizer.state_dict())
    before = source.digests()
    subject.steps(receiver, STEPS)
    return _apart(before, source.digests(), "in the source after the receiver made steps")


@OPTIMIZERS.rule("medium", faults=[planted.MOVES])
def zero_gradients_move_nothing(subject: OptimizerSubject) -> CheckFinding:
    """Gradients of zero move no parameter without weight decay.

    From a fresh state and without weight decay, gradients of zero leave every parameter as it is, and finite. A step
    along a gradient of zero is a step along rounding errors, or a decay that was not asked for.
    """
    running = subject.start()
    for group in running.optimizer.param_groups:
        group.update({name: 0.0 for name in DECAYS if name in group})
    before = copy.deepcopy(running.values)
    subject.steps(running, STEPS, lambda parameter, _step: torch.zeros_like(parameter))
    return _moved(before, running.values, f" with {' and '.join(DECAYS)} of 0")


@OPTIMIZERS.rule("high", faults=[planted.OWN_RATE])
def learning_rate_zero_freezes(subject: OptimizerSubject) -> CheckFinding:
    """With a learning rate of 0, no parameter moves.

    Schedules end at 0, and warm-ups begin there; a parameter that moves then is moved by something else.
    """
    running = subject.started(2)
    rate = running.optimizer.param_groups[0].get("lr")
    set_options(running, lr=torch.zeros_like(rate) if isinstance(rate, torch.Tensor) else 0.0)
    before = copy.deepcopy(running.values)
    subject.steps(running, STEPS)
    return _moved(before, running.values)


def _moved(before: list[torch.Tensor], after: list[torch.Tensor], under: str = "", first: int = 0) -> CheckFinding:
    """Whether parameters, of which ``first`` is the number of the first, are as before."""
    pairs = list(zip(before, after, strict=True))
    moved = {
        n: float((one - now).abs().max()) for n, (one, now) in enumerate(pairs, first) if not torch.equal(one, now)
    }
    if not moved:
        return passing()
    seen = f"{len(moved)} of {len(before)} parameters moved{under}, by up to {max(moved.values()):.3g}"
    return failing(seen, where=f"parameters[{min(moved)}]")


@OPTIMIZERS.rule("medium", faults=[planted.MOVES])
def missing_gradients_are_skipped(subject: OptimizerSubject) -> CheckFinding:
    """A parameter without a gradient is skipped.

    Heads that a batch does not use have no gradient.
    """
    running = subject.start()
    before = copy.deepcopy(running.values)
    last = running.parameters[-1]
    ended = attempt(lambda: subject.steps(running, 3, lambda each, step: None if each is last else pulled(each, step)))
    if isinstance(ended, Crash):
        return failing(f"step() raises {ended.line}")
    if torch.equal(before[0], running.values[0]):
        return failing("the parameter with a gradient did not move", where="parameters[0]")
    return _moved(before[-1:], running.values[-1:], first=len(before) - 1)


@OPTIMIZERS.rule("low", faults=[planted.SWALLOWS_NAN])
def non_finite_gradients_do_not_stay(subject: OptimizerSubject) -> CheckFinding:
    """Gradients of NaN or infinity are reported or skipped; they do not stay.

    Otherwise one overflow destroys parameters or moments for good. Most optimizers leave this to gradient clipping or
    to `GradScaler`, so the severity is low; the record says what this one does.
    """
    outcomes = {value: _outcome(subject, value) for value in (math.nan, math.inf)}
    text = "; ".join(f"{value}: {reaction}" for value, (reaction, _) in outcomes.items())
    broken = [where for _, where in outcomes.values() if where]
    return failing(text, where=broken[0]) if broken else passing(seen=text)


def _outcome(subject: OptimizerSubject, value: float) -> tuple[str, str]:
    """What one gradient with a value leads to, and what is broken afterwards; empty if nothing is."""
    running = subject.started(2)
    ended = attempt(lambda: subject.steps(running, 1, pulled_with(value)))
    if isinstance(ended, Crash) and not broken_leaves(running):
        return "reported", ""
    attempt(lambda: subject.steps(running, STEPS))
    broken = broken_leaves(running)
    if not broken:
        return "skipped", ""
    parameters = sum(name.startswith("parameters") for name in broken)
    return f"silent, {parameters} parameters and {len(broken) - parameters} tensors of the state stay broken", broken[0]


@OPTIMIZERS.rule("low", faults=[planted.OVERFLOWS])
def huge_gradients_stay_finite(subject: OptimizerSubject) -> CheckFinding:
    """Gradients of 1e+25 leave parameters and state finite.

    A second moment of infinity never comes back: from then on, the parameter makes steps of size 0 without an error.
    """
    running = subject.started(2)
    ended = attempt(lambda: subject.steps(running, 1, lambda each, step: pulled(each, step).sign() * HUGE))
    if isinstance(ended, Crash):
        return passing(seen=f"reported: {ended.line}")
    broken = broken_leaves(running)
    if not broken:
        return passing()
    before = walk(running.values)
    attempt(lambda: subject.steps(running, STEPS))
    still = before == walk(running.values)
    after = "; no parameter moves in the steps after it" if still else ""
    return failing(f"{len(broken)} parameters and tensors of the state are not finite{after}", where=broken[0])


@OPTIMIZERS.rule("low", faults=[planted.DIVIDES_BY_GRADIENT])
def half_precision_stays_finite(subject: OptimizerSubject) -> CheckFinding:
    """In half precision, parameters and state stay finite.

    Parameters of bfloat16 and float16 keep their type and stay finite, with gradients some of which are 0. A small
    constant that guards a division is 0 in float16 if it is below 6e-8, and 0 / 0 is NaN.
    """
    with_zeros = pulled_with(0, slice(None, None, 2))
    for dtype in HALVES:
        running = subject.start(dtype)
        ended = attempt(lambda running=running: subject.steps(running, STEPS, with_zeros))  # type: ignore[misc]
        if isinstance(ended, Crash):
            return failing(f"step() raises {ended.line}", where=str(dtype))
        broken = broken_leaves(running)
        if broken:
            return failing(
                f"{len(broken)} parameters and tensors of the state are not finite", where=f"{dtype}: {broken[0]}"
            )
        if any(each.dtype != dtype for each in running.parameters):
            return failing("the type of the parameters changed", where=str(dtype))
    return passing()


@OPTIMIZERS.rule("medium", faults=[planted.STAYS_IN_EVALUATION])
def evaluation_changes_nothing(subject: OptimizerSubject) -> CheckFinding:
    """An optimizer that was switched to evaluation and back steps as without, within 1e-05.

    Optimizers with ``train()`` and ``eval()`` move the parameters when they are switched. If they do not move them
    back, every evaluation changes training.
    """
    ends = [subject.started(STEPS), subject.started(STEPS)]
    subject.evaluated(ends[1])
    for running in ends:
        subject.steps(running, STEPS)
    return _close(*ends)


@OPTIMIZERS.rule("medium", faults=[planted.OTHER_KERNEL])
def foreach_equals_loop(subject: OptimizerSubject) -> CheckFinding:
    """The implementations for many tensors and for one give the same parameters, within 1e-05.

    With ``foreach=True`` and ``foreach=False``, the parameters are the same up to rounding. The default depends on the
    device. If the two differ, a test on a CPU says nothing about training on a GPU.
    """
    ends: list[OptimizerRun] = []
    for chosen in (True, False):
        running = subject.start()
        set_options(running, foreach=chosen)
        subject.steps(running, 4 * STEPS)
        ends.append(running)
    return _close(*ends)


def _close(first: OptimizerRun, second: OptimizerRun) -> CheckFinding:
    """Whether two runs have the same parameters up to rounding."""
    pairs = zip(first.parameters, second.parameters, strict=True)
    for number, (one, other) in enumerate(pairs):
        if not torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE):
            largest = float((one - other).abs().max().detach())
            return failing(f"the parameters differ by up to {largest:.3g}", where=f"parameters[{number}]")
    return passing()
