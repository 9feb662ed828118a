"""Which estimators see the noise of a gradient, on synthetic histories and in real layers."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from rlcore import DistributionalPPO
from rlverify import Observation, probe
from verification.probes.make import Make

HUGE = 1e30
"""An eps so large that the normalized variance times it is the variance."""

BETA = 0.99
BLIND = 0.1
"""Noise cancels if the mean varies less than this share of what it would with independent elements."""


@probe("noise-is-told-from-a-pattern")
def noise_is_told_from_a_pattern(make: Make, seed: int) -> Sequence[Observation]:
    """Measure histories with a known variance of the elements over time, with and without noise."""
    generator = torch.Generator().manual_seed(seed)
    pattern = torch.tensor([0.5, -0.5] * 32)[torch.randperm(64, generator=generator)]
    signs = [1.0, -1.0] * 100
    independent = [0.5 * torch.randn(64, generator=generator) for _ in range(200)]
    beside = [1.0 + 1e-4 * torch.randn(64, generator=generator) for _ in range(200)]
    return [
        _close("measured variance, noise of opposite signs", "element", make, [sign * pattern for sign in signs], 0.25),
        _close("measured variance, independent noise", "element", make, independent, 0.25),
        _close("measured variance, noise of 1e-4 around a mean of 1", "element", make, beside, 1e-8),
        _close("measured variance, constant gradient", "element", make, [pattern] * 200, 0.0),
    ]


@probe("opposite-signs-are-noise")
def opposite_signs_are_noise(make: Make, seed: int) -> Sequence[Observation]:
    """Repeat the document's two patterns of opposite signs in every step. Measure their spread and their noise."""
    order = torch.randperm(4, generator=torch.Generator().manual_seed(seed))
    observations = []
    for size, said in ((0.1, 0.01), (0.5, 0.25)):
        history = [torch.tensor([size, -size, size, -size])[order]] * 100
        elements = f"+{size} and -{size}"
        observations.append(_close(f"variance between the elements {elements}", "spatial", make, history, said))
        noisy = _measured(make, "element", history) > said / 8
        found = "noise" if noisy else "no noise"
        observations.append(Observation(f"noise measured for the constant elements {elements}", "noise", found, noisy))
    return observations


def _close(symptom: str, estimator: str, make: Make, history: Sequence[Tensor], expected: float) -> Observation:
    """The measured variance must be within an eighth of the expected one; below 0.005 where 0 is expected."""
    found = _measured(make, estimator, history)
    holds = abs(found - expected) <= (expected / 8 if expected else 0.005)
    text = f"about {expected:g}"
    if not holds:
        roughly = "about 0" if abs(found) < 0.005 < expected else "too large" if found > expected else "too small"
        return Observation(symptom, text, f"{found:.2g}", holds, roughly=roughly)
    return Observation(symptom, text, text, holds)


def _measured(make: Make, estimator: str, history: Iterable[Tensor]) -> float:
    """The variance of one tensor's gradients, as the scaler measures it."""
    gradients = list(history)
    parameter = nn.Parameter(torch.zeros_like(gradients[0]))
    scaler = make.scaler([parameter], estimator=estimator, eps=HUGE, beta=BETA)  # type: ignore[arg-type]
    for gradient in gradients:
        parameter.grad = gradient.clone()
        scaler.update_statistics()
    return scaler.get_normalized_variance() * HUGE


def _average(values: Tensor) -> Tensor:
    """The bias-corrected average over steps, with weights proportional to BETA^age."""
    weights = BETA ** torch.arange(len(values) - 1, -1, -1, dtype=torch.float64)
    averaged: Tensor = torch.tensordot(weights / weights.sum(), values, dims=1)
    return averaged


def _variance(values: Tensor) -> Tensor:
    return _average((values - _average(values)).square())


FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "Var_t[mean_s g]": lambda g: _variance(g.mean(1)),
    "mean_s Var_t[g]": lambda g: _variance(g).mean(),
    "E_t[Var_s g]": lambda g: _average(g.var(1, correction=0)),
    "M + S": lambda g: _variance(g.mean(1)) + _average(g.var(1, correction=0)),
}
"""By their text in the scaler's documentation. Histories have the shape (steps, elements)."""


@probe("each-estimator-measures-what-is-said-of-it")
def each_estimator_measures_what_is_said_of_it(make: Make, seed: int) -> Sequence[Observation]:
    """Read each estimator's formula in the documentation, compute it, and compare with the measurement."""
    generator = torch.Generator().manual_seed(seed)
    history = torch.randn(16, dtype=torch.float64, generator=generator) + torch.randn(
        60, 16, dtype=torch.float64, generator=generator
    )
    said = dict(re.findall(r'``"(\w+)"``: \w = ([^,;.]+)', " ".join((make.scaler.__doc__ or "").split())))
    observations = []
    for name in ("mean", "element", "spatial", "total"):
        formula = FORMULAS.get(said.get(name, ""))
        expected = float("nan") if formula is None else float(formula(history))
        same = abs(_measured(make, name, history) - expected) <= 1e-9 * abs(expected)
        observations.append(
            Observation(
                f"variance of estimator {name!r}", "as documented", "as documented" if same else "different", same
            )
        )
    return observations


def _share(make: Make, gradients: Sequence[Tensor]) -> float:
    """The variance of the mean, divided by what it would be if the elements' noise were independent."""
    return _measured(make, "mean", gradients) * gradients[0].numel() / _measured(make, "element", gradients)


class _Pictures(nn.Module):
    """A small image classifier: a convolution, the layer under test, and an output layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.before, self.layer, self.after = nn.Conv2d(3, 8, 3, padding=1), layer, nn.Linear(8, 4)

    def forward(self, pictures: Tensor) -> Tensor:
        hidden = torch.relu(self.layer(torch.relu(self.before(pictures))))
        return self.after(hidden.mean((2, 3)))  # type: ignore[no-any-return]


def _layer_gradients(layer: nn.Module, seed: int) -> dict[str, list[Tensor]]:
    """Gradients of a layer's parameters over 200 minibatches at the same weights, so all variation is noise."""
    generator = torch.Generator().manual_seed(seed)
    pictures, labels = torch.randn(512, 3, 8, 8, generator=generator), torch.randint(4, (512,), generator=generator)
    network = _Pictures(layer)
    seen: dict[str, list[Tensor]] = {name: [] for name, _ in layer.named_parameters()}
    for _ in range(200):
        drawn = torch.randint(512, (16,), generator=generator)
        network.zero_grad()
        functional.cross_entropy(network(pictures[drawn]), labels[drawn]).backward()  # type: ignore[no-untyped-call]
        for name, parameter in layer.named_parameters():
            assert parameter.grad is not None
            seen[name].append(parameter.grad.clone())
    return seen


def _symmetric() -> nn.Module:
    layer = nn.Conv2d(8, 8, 3, padding=1, bias=False)
    with torch.no_grad():
        layer.weight.copy_((layer.weight + layer.weight.flip(-1)) / 2)
    return layer


def _antisymmetric() -> nn.Module:
    layer = nn.Conv2d(8, 8, 3, padding=1, bias=False)
    with torch.no_grad():
        layer.weight.copy_((layer.weight - layer.weight.flip(-1)) / 2)
    return layer


def _grouped() -> nn.Module:
    return nn.Conv2d(8, 8, 3, padding=1, groups=4, bias=False)


def _of_layers(make: Make, seed: int, layers: dict[str, Callable[[], nn.Module]]) -> list[Observation]:
    observations = []
    with torch.random.fork_rng(devices=[]):
        for name, build in layers.items():
            torch.manual_seed(seed)
            for parameter, gradients in _layer_gradients(build(), seed).items():
                blind = _share(make, gradients) < BLIND
                found = "cancels" if blind else "does not cancel"
                observations.append(
                    Observation(
                        f"gradient noise in the mean over elements, {parameter} of {name}", "cancels", found, blind
                    )
                )
    return observations


@probe("noise-cancels-in-batch-normalisation")
def noise_cancels_in_batch_normalisation(make: Make, seed: int) -> Sequence[Observation]:
    """Measure the gradients of BatchNorm's parameters, between a convolution and a loss."""
    return _of_layers(make, seed, {"BatchNorm": lambda: nn.BatchNorm2d(8)})


@probe("noise-cancels-in-symmetric-filters")
def noise_cancels_in_symmetric_filters(make: Make, seed: int) -> Sequence[Observation]:
    """Measure the gradients of symmetric filters, and of antisymmetric ones."""
    return _of_layers(make, seed, {"symmetric filters": _symmetric, "antisymmetric filters": _antisymmetric})


@probe("noise-cancels-in-grouped-convolutions")
def noise_cancels_in_grouped_convolutions(make: Make, seed: int) -> Sequence[Observation]:
    """Measure the gradients of a convolution in four groups."""
    return _of_layers(make, seed, {"a convolution in groups": _grouped})


def kept_by_layers(make: Make, seed: int) -> dict[str, float]:
    """Of three layers, the share of the elements' noise that the mean of the gradient keeps."""
    found = {}
    with torch.random.fork_rng(devices=[]):
        for name, build in {"symmetric": _symmetric, "antisymmetric": _antisymmetric, "grouped": _grouped}.items():
            torch.manual_seed(seed)
            (gradients,) = _layer_gradients(build(), seed).values()
            found[name] = _share(make, gradients) / gradients[0].numel()
    return found


def _policy_gradients(model: DistributionalPPO) -> dict[str, list[Tensor]]:
    """The gradients of every parameter over the minibatches of five epochs, at the same weights."""
    seen: dict[str, list[Tensor]] = {name: [] for name, _ in model.policy.named_parameters()}
    for _ in range(5):
        for samples in model.rollout_buffer.get(12):
            model.policy.optimizer.zero_grad()
            model._minibatch_losses(samples).total.backward()  # type: ignore[no-untyped-call]
            for name, parameter in model.policy.named_parameters():
                assert parameter.grad is not None
                seen[name].append(parameter.grad.clone())
    return seen


@probe("mean-sees-the-noise-of-most-tensors")
def mean_sees_the_noise_of_most_tensors(make: Make, seed: int) -> Sequence[Observation]:
    """Count a trained policy's tensors whose mean keeps at least a tenth of the elements' variance."""
    model = make.model(seed)
    model.learn(96)
    gradients = _policy_gradients(model).values()
    seen = [_measured(make, "mean", each) >= 0.1 * _measured(make, "element", each) for each in gradients]
    most = 2 * sum(seen) > len(seen)
    found = f"{sum(seen)} of {len(seen)}"
    symptom = "tensors whose mean keeps at least a tenth of the noise"
    return [Observation(symptom, "most", found, most, roughly="most" if most else "fewer than half")]


@probe("the-noise-of-the-actors-decision-is-seen")
def the_noise_of_the_actors_decision_is_seen(make: Make, seed: int) -> Sequence[Observation]:
    """Measure the gradients of the layer before the softmax over actions, over minibatches at the same weights."""
    model = make.model(seed)
    model.learn(96)
    gradients = _policy_gradients(model)
    observations = []
    for name in ("action_net.weight", "action_net.bias"):
        history = torch.stack(gradients[name]).double()
        seen = _measured(make, "element", gradients[name]) > 0.5 * float(_variance(history).mean())
        after = "measured" if seen else "missed"
        observations.append(Observation(f"gradient noise of {name}", "measured", after, seen))
    return observations


def _bytes(make: Make, estimator: str, elements: int) -> int:
    """The size of the pickled scaler of one tensor. The pickle does not contain the tensor."""
    scaler = make.scaler([nn.Parameter(torch.zeros(elements))], estimator=estimator)  # type: ignore[arg-type]
    return len(pickle.dumps(scaler))


def _constant(make: Make, symptom: str, estimator: str, grows: bool) -> Observation:
    """Check whether a tensor of 100,000 elements needs more than twice the memory of one of 1,000."""
    found = _bytes(make, estimator, 100_000) > 2 * _bytes(make, estimator, 1_000)
    text = {True: "grows", False: "constant"}
    return Observation(symptom, text[grows], text[found], holds=found == grows)


@probe("variance-of-the-mean-takes-the-same-memory-for-any-tensor")
def variance_of_the_mean_takes_the_same_memory(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Compare tensors of 1,000 and of 100,000 elements."""
    return [_constant(make, "memory of the statistics for 100 times the elements", "mean", grows=False)]


@probe("tracking-every-element-takes-memory-for-each")
def tracking_every_element_takes_memory_for_each(make: Make, seed: int) -> Sequence[Observation]:
    """Run the estimator that tracks every element on noise of opposite signs and on a larger tensor."""
    return _seen_and_kept(make, seed, "element", grows=True)


def _seen_and_kept(make: Make, seed: int, estimator: str, *, grows: bool) -> list[Observation]:
    """Check that noise of opposite signs is measured within a quarter, and whether the memory grows."""
    generator = torch.Generator().manual_seed(seed)
    pattern = 0.5 - torch.randint(2, (4096,), generator=generator).float()
    size = 1.0 + torch.rand(4096, generator=generator)
    history = [(1.0 if step % 2 else -1.0) * size * pattern for step in range(200)]
    truth = float((size * pattern).square().mean())
    seen = abs(_measured(make, estimator, history) - truth) < truth / 4
    return [
        Observation(
            f"noise of opposite signs, estimator {estimator!r}", "measured", "measured" if seen else "missed", seen
        ),
        _constant(make, f"memory of estimator {estimator!r} for 100 times the elements", estimator, grows=grows),
    ]
