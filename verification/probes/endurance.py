"""All components together over several updates: memory use, finite numbers, forgetting, and the role of each."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlcore import DistributionalPPO, PBTConfig, Population
from rlverify import Observation, probe
from verification.probes.make import Make
from verification.probes.models import step_or_refusal

ROLLOUT = 24
SHORT: dict[str, Any] = {"n_steps": 8, "batch_size": 12}
UPDATES, STEPS = 3, 12
"""Updates of a population member, and the optimizer steps in them."""
LAYERS, HIDDEN = 1, 32


@probe("training-keeps-no-tensor")
def training_keeps_no_tensor(make: Make, seed: int) -> Sequence[Observation]:
    """Count live tensors after 3 updates and after 6 more."""
    model = make.model(seed, **SHORT)
    model.learn(3 * ROLLOUT)
    before, size = _alive(), _bytes(model)
    model.learn(6 * ROLLOUT, reset_num_timesteps=False)
    kept, grown = _alive() - before, _bytes(model) - size
    return [
        Observation("live tensors after 6 more updates", "not more", "more" if kept > 0 else "not more", kept <= 0),
        Observation(
            "bytes in get_parameters() after 6 more updates",
            "not more",
            "more" if grown > 0 else "not more",
            grown <= 0,
        ),
    ]


@probe("numbers-stay-finite")
def numbers_stay_finite(make: Make, seed: int) -> Sequence[Observation]:
    """Take steps with zero and with huge gradients, which may be refused. Also train for 6 updates."""
    observations = []
    for name, size in (("zero", 0.0), ("1e18", 1e18)):
        model = make.model(seed, **SHORT)
        for _ in range(6):
            total = torch.stack([parameter.sum() for parameter in model.policy.parameters()]).sum()
            step_or_refusal(model, size * total)
        observations.append(_finite(f"finite tensors after gradients of {name}", model))
    model = make.model(seed, **SHORT)
    model.learn(6 * ROLLOUT)
    return [*observations, _finite("finite tensors after training", model)]


@probe("critics-forget-when-taught-the-opposite-elsewhere")
def critics_forget_when_taught_the_opposite_elsewhere(make: Make, seed: int) -> Sequence[Observation]:
    """Train critics on one task, then on the opposite task at other observations. Measure what they remember."""
    model = make.model(seed, policy_kwargs={"lstm_hidden_size": HIDDEN, "net_arch": [32]}, return_scale=None)
    generator = torch.Generator().manual_seed(seed)
    slope = torch.randn(4, generator=generator)
    first, second = _task(generator, -0.5, slope), _task(generator, 0.5, -slope)
    _teach(model, *first, steps=200)
    knew = _explained(model, *first)
    _teach(model, *second, steps=500)
    knows, logged = _explained(model, *first), _explained(model, *second)
    return [
        _share("variance of the first task explained after training on it", "more than half", knew),
        _share("variance of the second task explained after training on it", "more than half", logged),
        _share("variance of the first task explained after training on the second", "less than half", knows),
    ]


@probe("all-four-play-their-part")
def all_four_play_their_part(make: Make, seed: int) -> Sequence[Observation]:
    """Train a population with AdaptiveUPGD, twin critics and gradient scaling, where one member copies the other."""
    with tempfile.TemporaryDirectory() as folder:
        population = _population(make, seed, folder)
        before = [_copies(critic) for critic in population.models[0].policy.value_net.heads]
        result = population.train(UPDATES)
        model = population.models[0]
        copies = sum(status.exploits for status in result.table)
    scaler: Any = model.variance_gradient_scaler
    after = [_copies(critic) for critic in model.policy.value_net.heads]
    moved = sum(not any(map(torch.equal, one, other)) for one, other in zip(before, after, strict=True))
    gates = sum("utility" in state for state in model.policy.optimizer.state.values())
    parameters = len(list(model.policy.parameters()))
    return [
        Observation("exploits in the population", "some", "some" if copies else "none", copies > 0),
        _same("critics whose parameters all changed", "2", moved),
        _same("steps counted by the scaler", str(STEPS), scaler.step_count),
        _same("parameters with a utility in the optimizer's state", str(parameters), gates),
        _finite("finite tensors after training", model),
    ]


def _alive() -> int:
    gc.collect()
    return sum(type(each) in (Tensor, nn.Parameter) for each in gc.get_objects())


def _bytes(model: DistributionalPPO) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(model.get_parameters()))


def _tensors(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for part in state.values() if isinstance(state, dict) else state:
            yield from _tensors(part)


def _finite(symptom: str, model: DistributionalPPO) -> Observation:
    tensors = [parameter.detach() for parameter in model.policy.parameters()]
    finite = sum(bool(tensor.isfinite().all()) for tensor in tensors)
    return Observation(symptom, f"{len(tensors)}/{len(tensors)}", f"{finite}/{len(tensors)}", finite == len(tensors))


def _task(generator: torch.Generator, centre: float, slope: Tensor) -> tuple[Tensor, Tensor]:
    """Observations around a point, and returns that are linear in them."""
    observations = centre + 0.3 * torch.randn(128, 4, generator=generator)
    returns = (observations - centre) @ slope
    return observations, (returns - returns.mean()) / returns.std()


def _teach(model: DistributionalPPO, observations: Tensor, returns: Tensor, *, steps: int) -> None:
    policy = model.policy
    for _ in range(steps):
        outputs = policy.predict_outputs(observations, _no_memory(), torch.ones(128))
        model._optimize(policy.values.loss(outputs, returns, torch.zeros(128, 2), None))


def _explained(model: DistributionalPPO, observations: Tensor, returns: Tensor) -> float:
    with torch.no_grad():
        values = model.policy.predict_values(observations, _no_memory(), torch.ones(128))
    return float(1 - (returns - values).square().mean() / returns.var(correction=0))


def _no_memory() -> tuple[Tensor, Tensor]:
    return torch.zeros(LAYERS, 128, HIDDEN), torch.zeros(LAYERS, 128, HIDDEN)


def _share(symptom: str, expected: str, explained: float) -> Observation:
    found = "more than half" if explained > 0.5 else "less than half"
    return Observation(symptom, expected, found, found == expected, repeats=False)


def _population(make: Make, seed: int, folder: str) -> Population:
    """Two members. The first scores worse until it has copied the second."""
    ranges: Any = [{"name": "learning_rate", "min_value": 1e-5, "max_value": 1e-2}]
    config = PBTConfig(population_size=2, perturbation_interval=1, hyperparams=ranges, truncation_ratio=0.5)
    return Population(
        lambda _, own: make.model(own % 1000, **SHORT, vgs_warmup_steps=3),
        config,
        folder=folder,
        seed=seed,
        performance=lambda model: -float(model.lr_schedule(1.0)),
        initial_hyperparams=[{"learning_rate": 1e-2}, {"learning_rate": 1e-5}],
    )


def _copies(module: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def _same(symptom: str, expected: str, found: int) -> Observation:
    return Observation(symptom, expected, str(found), str(found) == expected)
