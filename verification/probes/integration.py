"""All components together: extreme gradients, long training, and training continued after save and load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from stable_baselines3.common.utils import LinearSchedule

from rlcore import DistributionalPPO, apply_exploit
from rlverify import Observation, probe
from verification.probes.make import Make, equal
from verification.probes.models import saved_and_loaded, scaler_of, step_or_refusal

EXTREMES = {
    "0": (0.0, 0.0),
    "1e-30": (1e-30, 1e-30),
    "1e15": (1e15, 1e15),
    "1e30": (1e30, 1e30),
    "0 and 1e30": (0.0, 1e30),
}
"""By name: the elements of every other parameter's gradient, and of the rest."""
FIRST, MORE = 2000, 1000
LONG = 5000
FLOOR = 0.1
AVERAGES = ("grad_mean_ema", "grad_var_ema", "grad_norm_ema")


@probe("no-gradient-leaves-nan")
def no_gradient_leaves_nan(make: Make, seed: int) -> Sequence[Observation]:
    """Take three steps with gradients of each extreme size. Count the finite parameter elements."""
    observations = []
    for name, optimizer_class in make.optimizers:
        model = make.model(seed, optimizer_class=optimizer_class)
        start = model.get_parameters()
        for case, slopes in EXTREMES.items():
            model.set_parameters(start)
            for _ in range(3):
                step_or_refusal(model, _loss(model, slopes))
            finite, total = _finite(model.get_parameters()["policy"])
            symptom = f"finite parameter elements after gradients of {case}, {name}"
            observations.append(Observation(symptom, f"{total}/{total}", f"{finite}/{total}", holds=finite == total))
    return observations


@probe("five-thousand-steps-are-stable")
def five_thousand_steps_are_stable(make: Make, seed: int) -> Sequence[Observation]:
    """Train with all components for 5,000 steps. Check parameters, statistics and every scaling factor."""
    model = make.model(seed, make.envs(seed, n_envs=8), n_steps=125, batch_size=250, vgs_warmup_steps=20)
    scaler = scaler_of(model)
    factors: list[float] = []
    model.policy.optimizer.register_step_pre_hook(lambda *_: factors.append(scaler.get_scaling_factor()))
    model.learn(LONG)
    finite, total = _finite(model.get_parameters()["policy"])
    within = sum(FLOOR <= factor <= 1.0 for factor in factors)
    numbers = sum(math.isfinite(getattr(scaler, name) or 0.0) for name in AVERAGES)
    steps = len(factors)
    return [
        Observation(
            "finite parameter elements after 5,000 steps",
            f"{total}/{total}",
            f"{finite}/{total}",
            holds=finite == total,
        ),
        Observation(
            "finite averages of the scaler after 5,000 steps", "3", str(numbers), holds=numbers == len(AVERAGES)
        ),
        Observation(
            "steps with a scaling factor between 0.1 and 1", f"{steps}/{steps}", f"{within}/{steps}", within == steps
        ),
    ]


@probe("all-components-work-together")
def all_components_work_together(make: Make, seed: int) -> Sequence[Observation]:
    """Train two members with twin critics, scaling and each UPGD optimizer. Let one copy the other."""
    observations = []
    for name, optimizer_class in make.optimizers:
        source, target = (
            make.model(seed + i, n_steps=16, batch_size=24, optimizer_class=optimizer_class, vgs_alpha=1.0)
            for i in range(2)
        )
        source.learn(96)
        target.learn(48)
        apply_exploit(target, source.get_parameters(), {"learning_rate": 1e-3})
        target.learn(48, reset_num_timesteps=False)
        learnt = sum(_learns(head) for head in target.policy.value_net.heads)
        factor = scaler_of(target).get_scaling_factor()
        gated = len(target.policy.optimizer.state_dict()["state"])
        parameters = len(list(target.policy.parameters()))
        finite, total = _finite(target.get_parameters()["policy"])
        observations += [
            equal(f"critics with a gradient in every parameter, {name}", 2, learnt),
            Observation(f"scaling factor below 1, {name}", "yes", "yes" if factor < 1.0 else "no", holds=factor < 1.0),
            equal(f"parameters with a utility, {name}", parameters, gated),
            Observation(
                f"finite parameter elements, {name}", f"{total}/{total}", f"{finite}/{total}", holds=finite == total
            ),
        ]
    return observations


@probe("the-manual-verification-passes")
def the_manual_verification_passes(make: Make, seed: int) -> Sequence[Observation]:
    """Run document 002's plan: train 2,000 steps, save, load, train 1,000 more. Compare counts and averages."""
    model = make.model(seed, make.envs(seed, n_envs=8), n_steps=125, batch_size=250)
    model.learn(FIRST)
    before = scaler_of(model).step_count
    averages = [getattr(scaler_of(model), name) for name in AVERAGES]
    loaded = saved_and_loaded(make, model, seed)
    kept = scaler_of(loaded).step_count
    same = [getattr(scaler_of(loaded), name) for name in AVERAGES] == averages
    loaded.learn(MORE, reset_num_timesteps=False)
    after, expected = scaler_of(loaded).step_count, before * (FIRST + MORE) // FIRST
    there = before > 0 and None not in averages
    return [
        Observation("statistics after 2,000 steps", "present", "present" if there else "none", holds=there),
        equal("step_count after load()", before, kept),
        Observation("scaler's averages after load()", "unchanged", "unchanged" if same else "different", holds=same),
        equal("step_count after 1,000 more training steps", expected, after),
    ]


@probe("a-continued-run-raises-its-falling-rate")
def a_continued_run_raises_its_falling_rate(make: Make, seed: int) -> Sequence[Observation]:
    """Run the plan with a constant learning rate and with one that falls to 0."""
    whole, parted = (_continued(make, seed, parts=parts, learning_rate=1e-3)[0] for parts in ((4,), (2, 2)))
    pairs = list(zip(whole.policy.parameters(), parted.policy.parameters(), strict=True))
    equal = sum(torch.equal(one, other) for one, other in pairs)
    _, rates = _continued(make, seed, parts=(2, 2), learning_rate=LinearSchedule(1e-3, 0.0, 1.0))
    rises = rates[2] > rates[1]
    return [
        Observation(
            "parameters equal to an uninterrupted run's, constant learning rate",
            f"{len(pairs)}/{len(pairs)}",
            f"{equal}/{len(pairs)}",
            equal == len(pairs),
        ),
        Observation(
            "falling learning rate when training continues",
            "rises again",
            "rises again" if rises else "keeps falling",
            rises,
        ),
    ]


def _continued(
    make: Make, seed: int, *, parts: Sequence[int], **settings: Any
) -> tuple[DistributionalPPO, list[float]]:
    """A model saved and loaded between parts of some updates each, and the rate after every update."""
    model = make.model(seed, n_steps=8, batch_size=24, n_epochs=1, **settings)
    rates: list[float] = []
    for number, updates in enumerate(parts):
        model = model if number == 0 else saved_and_loaded(make, model, seed)
        model.policy.optimizer.register_step_pre_hook(lambda opt, *_: rates.append(opt.param_groups[0]["lr"]))
        model.learn(updates * 24, reset_num_timesteps=False)
    return model, rates


def _loss(model: DistributionalPPO, slopes: tuple[float, float]) -> torch.Tensor:
    """A loss whose gradient is one slope in every other parameter and the other slope in the rest."""
    sums = [each.sum() * slopes[number % 2] for number, each in enumerate(model.policy.parameters())]
    return torch.stack(sums).sum()


def _finite(state: Mapping[str, torch.Tensor]) -> tuple[int, int]:
    """The number of finite elements, and of all elements."""
    return sum(int(each.isfinite().sum()) for each in state.values()), sum(each.numel() for each in state.values())


def _learns(head: torch.nn.Module) -> bool:
    """Whether the last minibatch gave each of its parameters a nonzero gradient."""
    return all(each.grad is not None and bool(each.grad.any()) for each in head.parameters())
