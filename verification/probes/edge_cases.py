"""The edge cases of gradient scaling that document 002 counts as passed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from stable_baselines3.common.utils import LinearSchedule
from torch import Tensor, nn

from rlcore import DistributionalPPO, NonFiniteGradientError
from rlverify import Observation, probe
from verification.probes.make import Make, equal
from verification.probes.models import scaler_of

FLOOR = 0.1
"""The default smallest factor."""
STRONG = 1e9
"""An alpha so large that every factor after the warm-up is the smallest one."""
UPDATES = 4
LIMIT = 0.05
"""A clipping limit that the norm of raw gradients exceeds."""


@probe("the-schedule-rules-the-rate-under-scaling")
def the_schedule_rules_the_rate_under_scaling(make: Make, seed: int) -> Sequence[Observation]:
    """Train with a linear schedule and strong scaling. Check the learning rate of every optimizer step."""
    model = _tiny(make, seed, learning_rate=LinearSchedule(1e-3, 1e-4, 1.0))
    rates: list[float] = []
    model.policy.optimizer.register_step_pre_hook(lambda opt, *_: rates.append(opt.param_groups[0]["lr"]))
    model.learn(UPDATES * 24)
    expected = [1e-3 - 9e-4 * done / UPDATES for done in range(1, UPDATES + 1)]
    alike = sum(math.isclose(rate, wanted, rel_tol=1e-9) for rate, wanted in zip(rates, expected, strict=True))
    return [equal("optimizer steps with the schedule's learning rate", UPDATES, alike)]


@probe("the-factor-stays-away-from-zero")
def the_factor_stays_away_from_zero(make: Make, seed: int) -> Sequence[Observation]:
    """Measure noise of a constant size over a constant mean, and over one that shrinks as in convergence."""
    noise = torch.randn(8, generator=torch.Generator().manual_seed(seed)).abs()
    observations = []
    for name, shrinking in (("stays constant", False), ("shrinks to a thousandth", True)):
        scaler = make.scaler([nn.Parameter(torch.zeros(8))], warmup_steps=10)
        means = [1.0 if not shrinking else 0.001 ** min(1.0, step / 100) for step in range(300)]
        factors = list(_factors(scaler, ([mean + (-1) ** step * noise] for step, mean in enumerate(means))))
        smallest = min(factors)
        found = f"at least {FLOOR}" if smallest >= FLOOR else "below 0.01" if smallest < 0.01 else f"{smallest:.2f}"
        observations.append(
            Observation(
                f"smallest scaling factor while the mean gradient {name}",
                f"at least {FLOOR}",
                found,
                holds=smallest >= FLOOR,
            )
        )
    return observations


@probe("scaled-then-clipped-then-stepped")
def scaled_then_clipped_then_stepped(make: Make, seed: int) -> Sequence[Observation]:
    """Compare the gradient that the optimizer gets with the raw one, where both scaling and clipping act."""
    model = _tiny(make, seed, max_grad_norm=LIMIT)
    scaler = scaler_of(model)
    raw: dict[int, float] = {}
    right: list[bool] = []
    for parameter in model.policy.parameters():
        parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda each: raw.update({id(each): _square(each.grad)})
        )

    def compare(*_: Any) -> None:
        used = math.sqrt(sum(_square(each.grad) for each in model.policy.parameters()))
        expected = min(scaler.get_scaling_factor() * math.sqrt(sum(raw.values())), LIMIT)
        right.append(math.isclose(used, expected, rel_tol=1e-3))
        raw.clear()

    model.policy.optimizer.register_step_pre_hook(compare)
    model.learn(UPDATES * 24)
    symptom = "steps whose gradient is scaled first, then clipped"
    return [Observation(symptom, f"{UPDATES} of {UPDATES}", f"{sum(right)} of {UPDATES}", holds=sum(right) == UPDATES)]


@probe("statistics-are-committed-after-the-optimizers-step")
def statistics_are_committed_after_the_optimizers_step(make: Make, seed: int) -> Sequence[Observation]:
    """Count the scaler's committed steps at each optimizer step, and after an optimizer step that fails."""
    model = _tiny(make, seed)
    scaler, optimizer = scaler_of(model), model.policy.optimizer
    counts: list[int] = []
    optimizer.register_step_post_hook(lambda *_: counts.append(scaler.step_count))
    model.learn(UPDATES * 24)
    expected = list(range(UPDATES))
    optimizer.register_step_pre_hook(_fail)
    try:
        model._optimize(_loss(model, 1.0))
    except NonFiniteGradientError:
        after = scaler.step_count
    return [
        equal("scaler steps committed at each optimizer step", expected, counts),
        equal("scaler steps committed after a failed optimizer step", UPDATES, after),
    ]


@probe("zero-gradients-are-no-noise")
def zero_gradients_are_no_noise(make: Make, seed: int) -> Sequence[Observation]:
    """Scale gradients that are all zero. The factor must be 1, not NaN."""
    scaler = make.scaler([nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2, 2))], warmup_steps=0)
    factors = list(_factors(scaler, ([torch.zeros(3), torch.zeros(2, 2)] for _ in range(20 + seed))))
    return [_only("scaling factors for zero gradients", factors[1:], 1.0)]


@probe("zeros-beside-noise-change-nothing")
def zeros_beside_noise_change_nothing(make: Make, seed: int) -> Sequence[Observation]:
    """Compare the factors for noisy tensors with and without a zero and a missing gradient among them."""
    generator = torch.Generator().manual_seed(seed)
    draws = [1.0 + torch.randn(5, generator=generator) for _ in range(30)]
    mixed = make.scaler([nn.Parameter(torch.ones(n)) for n in (5, 5, 5, 4, 3)], warmup_steps=0)
    alone = make.scaler([nn.Parameter(torch.ones(5)) for _ in range(3)], warmup_steps=0)
    both = zip(
        _factors(mixed, ([*(draw.clone() for _ in range(3)), torch.zeros(4), None] for draw in draws)),
        _factors(alone, ([draw.clone() for _ in range(3)] for draw in draws)),
        strict=True,
    )
    equal = sum(math.isclose(one, other, rel_tol=1e-9) for one, other in both)
    return [
        Observation(
            "scaling factors unchanged by zero and missing gradients", "30 of 30", f"{equal} of 30", holds=equal == 30
        )
    ]


@probe("gradients-of-any-size-are-scaled-alike")
def gradients_of_any_size_are_scaled_alike(make: Make, seed: int) -> Sequence[Observation]:
    """Scale gradients of three sizes whose sign alternates, which gives the largest normalized variance."""
    observations = []
    for size in (1.0, 1e15, 1e30):
        scaler = make.scaler([nn.Parameter(torch.zeros(3))], warmup_steps=2)
        signs = (1.0 - 2.0 * ((step + seed) % 2) for step in range(60))
        factors = list(_factors(scaler, ([torch.full((3,), size * sign)] for sign in signs)))
        variance = scaler.get_normalized_variance()
        name = f"gradients of alternating sign, size {size:g}"
        observations.append(_only(f"scaling factors for {name}", factors[20:], FLOOR))
        symptom = f"normalized variance of {name}"
        observations.append(Observation(symptom, "100", f"{variance:g}", holds=variance == 100.0))
    return observations


def _tiny(make: Make, seed: int, **settings: Any) -> DistributionalPPO:
    """A model with one optimizer step per update, strongly scaled from the second step on."""
    once = {"n_steps": 8, "batch_size": 24, "n_epochs": 1, "vgs_warmup_steps": 1, "vgs_alpha": STRONG}
    return make.model(seed, **{**once, **settings})


def _factors(scaler: Any, history: Iterator[list[Tensor | None]]) -> Iterator[float]:
    for gradients in history:
        for parameter, gradient in zip(scaler.parameters, gradients, strict=True):
            parameter.grad = gradient
        yield scaler.scale_gradients()
        scaler.step()


def _square(gradient: Tensor | None) -> float:
    return 0.0 if gradient is None else float(gradient.double().square().sum())


def _loss(model: DistributionalPPO, slope: float) -> Tensor:
    """A loss whose gradient is ``slope`` in every element."""
    return torch.stack([each.sum() for each in model.policy.parameters()]).sum() * slope


def _fail(*_: Any) -> None:
    raise NonFiniteGradientError("weight", "as if one gradient had overflowed")


def _only(symptom: str, factors: Sequence[float], expected: float) -> Observation:
    holds = all(factor == expected for factor in factors)
    found = expected if holds else next(factor for factor in factors if factor != expected)
    return Observation(symptom, f"{expected:g}", "NaN" if math.isnan(found) else f"{found:g}", holds)
