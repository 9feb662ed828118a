"""UPGD and AdaptiveUPGD: the rule itself, its noise, and the starts at which it once broke."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from rlcore.optim import noise as drawing
from rlcore.optim import upgd_kernel
from rlcore.optim.upgd import UPGD, AdaptiveUPGD
from tests.reference import noise_reference
from tests.reference.noise_reference import noise
from tests.reference.upgd_reference import ReferenceUPGD

SEED = 2**63 + 12345
SHAPES = ((4, 3), (3,), (), (2, 2, 2))
BOTH = pytest.mark.parametrize("optimizer_class", [UPGD, AdaptiveUPGD])


def make_parameters(seed: int, dtype: torch.dtype = torch.float64, shapes: Any = SHAPES) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)) for shape in shapes]


def make_gradients(step: int, shapes: Any = SHAPES) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1000 + step)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def set_gradients(parameters: list[nn.Parameter], gradients: list[Tensor]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.to(parameter.dtype)


def noise_of(parameters: list[nn.Parameter], step: int) -> list[np.ndarray]:
    return [
        noise(parameter.numel(), index, step, SEED).reshape(parameter.shape)
        for index, parameter in enumerate(parameters)
    ]


def values(parameters: list[nn.Parameter]) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in parameters]


class TestFormula:
    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
    @pytest.mark.parametrize("settings", [{"sigma": 0.0}, {"sigma": 0.1}, {"sigma": 0.1, "adaptive_noise": True}])
    @BOTH
    def test_equals_the_reference_over_100_steps(
        self, optimizer_class: Any, settings: dict[str, Any], dtype: torch.dtype, tolerance: float
    ) -> None:
        common = {"lr": 0.01, "weight_decay": 0.05, "beta_utility": 0.97, "noise_beta": 0.9, **settings}
        parameters = make_parameters(0, dtype)
        optimizer = optimizer_class(parameters, seed=SEED, **common)
        start = [parameter.detach().double().numpy().copy() for parameter in parameters]
        reference = ReferenceUPGD(start, adaptive_direction=optimizer_class is AdaptiveUPGD, **common)
        before = torch.get_rng_state()
        for step in range(100):
            gradients = [gradient.to(dtype) for gradient in make_gradients(step)]
            set_gradients(parameters, gradients)
            draws = noise_of(parameters, step + 1) if settings["sigma"] else None
            optimizer.step()
            reference.step([gradient.double().numpy() for gradient in gradients], draws)
        for parameter, expected in zip(parameters, reference.parameters, strict=True):
            np.testing.assert_allclose(parameter.detach().double().numpy(), expected, rtol=0, atol=tolerance)
        moved = [np.abs(end - first).max() for end, first in zip(reference.parameters, start, strict=True)]
        assert torch.equal(torch.get_rng_state(), before)
        assert max(moved) > 0.05, "the parameters hardly moved, so the comparison is empty"

    @BOTH
    def test_maximum_and_utility_are_bias_corrected_alike(self, optimizer_class: Any) -> None:
        """At step 1 the utilities u, u/2 and -u must meet the gate as 1, 0.5 and -1, not as 1000 times that."""
        parameters = [
            nn.Parameter(torch.ones(3, dtype=torch.float64)),
            nn.Parameter(torch.ones(2, dtype=torch.float64)),
        ]
        parameters[0].grad = torch.tensor([-2.0, -1.0, 2.0], dtype=torch.float64)
        parameters[1].grad = torch.tensor([-0.5, 0.0], dtype=torch.float64)
        optimizer = optimizer_class(parameters, lr=0.1, sigma=0.0, weight_decay=0.0, beta_utility=0.999)
        optimizer.step()
        directions = [parameters[0].grad, parameters[1].grad]
        if optimizer_class is AdaptiveUPGD:
            directions = [direction / (direction.abs() + 1e-8) for direction in directions]
        change = 1 - parameters[0].detach()
        protection = 1 - change / (0.1 * directions[0])
        assert protection.tolist() == pytest.approx([1 / (1 + math.exp(-x)) for x in (1.0, 0.5, -1.0)], abs=1e-12)

    @BOTH
    def test_each_utility_is_corrected_by_the_parameters_own_steps(self, optimizer_class: Any) -> None:
        """A parameter that joins late and has the same utility is protected alike."""
        early, late = (nn.Parameter(torch.ones(2, dtype=torch.float64)) for _ in range(2))
        optimizer = optimizer_class([early], lr=0.1, sigma=0.0, weight_decay=0.0)
        for step in range(10):
            early.data.fill_(1.0)
            early.grad = -torch.ones_like(early)
            if step == 9:
                late.grad = -torch.ones_like(late)
                optimizer.add_param_group({"params": [late]})
            optimizer.step()
        expected = 1 + 0.1 * (1 - 1 / (1 + math.exp(-1.0)))
        assert early.tolist() == pytest.approx([expected] * 2, abs=1e-8)
        assert late.tolist() == pytest.approx([expected] * 2, abs=1e-8)

    @BOTH
    def test_parameters_without_gradient_do_not_set_the_maximum_or_move(self, optimizer_class: Any) -> None:
        both, alone = make_parameters(4), make_parameters(4)[:2]
        optimizers = [optimizer_class(both, lr=0.1, sigma=0.0), optimizer_class(alone, lr=0.1, sigma=0.0)]
        set_gradients(both, [1000 * gradient for gradient in make_gradients(0)])
        set_gradients(alone, [1000 * gradient for gradient in make_gradients(0)[:2]])
        both[2].grad = both[3].grad = None
        frozen = values(both[2:])
        for optimizer in optimizers:
            optimizer.step()
        torch.testing.assert_close(values(both[:2]), values(alone), rtol=0, atol=0)
        torch.testing.assert_close(values(both[2:]), frozen, rtol=0, atol=0)
        assert both[2] not in optimizers[0].state


class TestStartsThatOnceBroke:
    @pytest.mark.parametrize("adaptive_noise", [False, True])
    @pytest.mark.parametrize(("gradient", "parameter"), [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0)])
    @BOTH
    def test_bug_05_zero_utilities_leave_all_parameters_finite(
        self, optimizer_class: Any, gradient: float, parameter: float, adaptive_noise: bool
    ) -> None:
        parameters = [nn.Parameter(torch.full((3, 2), parameter)), nn.Parameter(torch.full((2,), parameter))]
        set_gradients(parameters, [torch.full((3, 2), gradient), torch.full((2,), gradient)])
        optimizer = optimizer_class(parameters, lr=0.1, adaptive_noise=adaptive_noise)
        optimizer.step()
        assert all(torch.isfinite(tensor).all() for tensor in parameters)
        assert all(torch.isfinite(entry).all() for tensor in parameters for entry in tensors_of(optimizer, tensor))

    @BOTH
    def test_negative_maximum_keeps_the_order_of_protection(self, optimizer_class: Any) -> None:
        """u = -0.5 ... -0.1: dividing by max u = -0.1 gives the least useful weight the largest protection."""
        parameter = nn.Parameter(torch.ones(5, dtype=torch.float64))
        gradient = torch.tensor([0.5, 0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
        parameter.grad = gradient
        optimizer_class([parameter], lr=0.1, sigma=0.0, weight_decay=0.0).step()
        direction = gradient if optimizer_class is UPGD else gradient / (gradient + 1e-8)
        protection = 1 - (1 - parameter.detach()) / (0.1 * direction)
        assert protection.tolist() == pytest.approx([1 / (1 + math.exp(x)) for x in (1, 0.8, 0.6, 0.4, 0.2)], abs=1e-9)


def tensors_of(optimizer: torch.optim.Optimizer, parameter: Tensor) -> list[Tensor]:
    tensors = [entry for entry in optimizer.state[parameter].values() if isinstance(entry, Tensor)]
    assert tensors
    return tensors


class TestNoise:
    @BOTH
    def test_adaptive_noise_switched_on_late_has_its_full_size_at_once(self, optimizer_class: Any) -> None:
        parameter = nn.Parameter(torch.zeros(6, dtype=torch.float64))
        optimizer = optimizer_class([parameter], lr=1.0, weight_decay=0.0, sigma=0.1, seed=SEED)
        for step in range(50):
            parameter.data.zero_()
            parameter.grad = torch.full_like(parameter, 3.0)
            optimizer.param_groups[0]["adaptive_noise"] = step == 49
            optimizer.step()
        draws = torch.from_numpy(noise(6, 0, 50, SEED))
        size = 3.0 if optimizer_class is UPGD else 1.0
        torch.testing.assert_close(parameter.detach(), -0.5 * (size + 0.1 * size * draws), rtol=1e-7, atol=0)

    @pytest.mark.parametrize("adaptive_noise", [False, True])
    def test_sigma_zero_draws_and_keeps_nothing_in_either_mode(self, adaptive_noise: bool) -> None:
        parameter = nn.Parameter(torch.zeros(3))
        parameter.grad = torch.zeros(3)
        before = torch.get_rng_state()
        optimizer = UPGD([parameter], lr=1.0, sigma=0.0, adaptive_noise=adaptive_noise, seed=SEED)
        optimizer.step()
        assert torch.equal(torch.get_rng_state(), before)
        assert parameter.tolist() == [0.0, 0.0, 0.0]
        assert optimizer.state[parameter].keys() == {"step", "utility"}

    def test_noise_of_a_parameter_does_not_depend_on_what_the_others_do(self) -> None:
        parameters = [nn.Parameter(torch.zeros(size)) for size in (3, 2, 4, 1)]
        set_gradients(parameters, [torch.zeros_like(parameter) for parameter in parameters])
        parameters[1].grad = None
        groups: list[dict[str, Any]] = [
            {"params": parameters[:2]},
            {"params": parameters[2:3], "sigma": 0.0},
            {"params": parameters[3:]},
        ]
        UPGD(groups, lr=1.0, sigma=1.0, weight_decay=0.0, seed=SEED).step()
        for index, size in ((0, 3), (3, 1)):
            expected = -0.5 * torch.from_numpy(noise(size, index, 1, SEED)).float()
            torch.testing.assert_close(parameters[index].detach(), expected, rtol=1e-6, atol=1e-7)
        assert not parameters[1].any()
        assert not parameters[2].any()

    def test_a_group_may_have_a_seed_of_its_own(self) -> None:
        parameters = [nn.Parameter(torch.zeros(2, dtype=torch.float64)) for _ in range(2)]
        set_gradients(parameters, [torch.zeros(2)] * 2)
        groups: list[dict[str, Any]] = [{"params": parameters[:1]}, {"params": parameters[1:], "seed": 3}]
        UPGD(groups, lr=1.0, sigma=1.0, seed=SEED).step()
        expected = [-0.5 * torch.from_numpy(noise(2, 0, 1, SEED)), -0.5 * torch.from_numpy(noise(2, 1, 1, 3))]
        torch.testing.assert_close(values(parameters), expected, rtol=1e-12, atol=0)


class TestPrecision:
    def test_low_precision_step_is_the_rounded_float32_step(self) -> None:
        start, gradient = torch.linspace(0.5, 1.5, 100).bfloat16(), torch.linspace(-1, 1, 100).bfloat16()
        ends = []
        for dtype in (torch.bfloat16, torch.float32):
            parameter = nn.Parameter(start.to(dtype, copy=True))
            parameter.grad = gradient.to(dtype)
            UPGD([parameter], lr=0.1, sigma=0.1, weight_decay=0.1, seed=SEED).step()
            ends.append(parameter.detach())
        torch.testing.assert_close(ends[0], ends[1].bfloat16(), rtol=0, atol=0)

    def test_mixed_precisions_share_one_maximum(self) -> None:
        dtypes = (torch.float32, torch.float64, torch.bfloat16)
        parameters = [
            nn.Parameter(torch.full((2,), size, dtype=dtype)) for size, dtype in zip((1, 2, 4), dtypes, strict=True)
        ]
        set_gradients(parameters, [-torch.ones(2)] * 3)
        UPGD(parameters, lr=1.0, sigma=0.0, weight_decay=0.0).step()
        expected = [size + 1 - 1 / (1 + math.exp(-size / 4)) for size in (1, 2, 4)]
        assert [float(parameter[0].detach()) for parameter in parameters] == pytest.approx(expected, rel=4e-3)
        assert float(parameters[1][0].detach()) == pytest.approx(expected[1], rel=1e-12)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@BOTH
def test_cuda_equals_cpu_without_noise(optimizer_class: Any) -> None:
    ends = []
    for devices in (("cpu",) * 4, ("cuda",) * 4, ("cpu", "cuda", "cuda", "cpu")):
        starts = make_parameters(0, torch.float32)
        parameters = [nn.Parameter(p.detach().to(device)) for p, device in zip(starts, devices, strict=True)]
        optimizer = optimizer_class(parameters, lr=0.01, sigma=0.0)
        for step in range(20):
            for parameter, gradient in zip(parameters, make_gradients(step), strict=True):
                parameter.grad = gradient.to(parameter)
            optimizer.step()
        ends.append([parameter.detach().cpu() for parameter in parameters])
    torch.testing.assert_close(ends[1], ends[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(ends[2], ends[0], rtol=0, atol=1e-5)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@BOTH
def test_cuda_has_the_noise_of_the_cpu(optimizer_class: Any) -> None:
    """Of each parameter and each step: the gradients are 0, so that nothing else moves the parameters."""
    ends = []
    for device in ("cpu", "cuda"):
        parameters = [nn.Parameter(torch.zeros(size, device=device)) for size in (5000, 300)]
        optimizer = optimizer_class(parameters, lr=1.0, weight_decay=0.0, sigma=1.0, seed=SEED)
        for _ in range(2):
            set_gradients(parameters, [torch.zeros_like(parameter) for parameter in parameters])
            optimizer.step()
        ends.append([parameter.detach().cpu() for parameter in parameters])
    torch.testing.assert_close(ends[1], ends[0], rtol=0, atol=2e-6)
    assert float(ends[1][0].std()) == pytest.approx(0.5 * math.sqrt(2), rel=0.05)


KNOWN = {
    "zeros": ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    "ones": ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    "pi": (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
}
"""Of Philox4x32-10, from Random123: counter, key, words."""
SAMPLE = 2**20
SEED_NOISE = 2024


def draws(size: int = SAMPLE, index: int = 0, step: int = 1, seed: int = SEED_NOISE) -> np.ndarray:
    return drawing.normal([size], [index], [step], seed)[0].numpy()


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN.values(), ids=KNOWN)
def test_the_generator_gives_the_published_words(
    counter: tuple[int, ...], key: tuple[int, ...], words: tuple[int, ...]
) -> None:
    seed, step = key[0] + (key[1] << 32), counter[2] + (counter[3] << 32)
    assert tuple(noise_reference.philox(counter, key)) == words
    found = drawing.philox(tuple(torch.tensor([word]) for word in counter), seed)
    assert tuple(int(word) for word in found) == words
    lanes = drawing.LANES
    block, lane = divmod(counter[0], lanes)
    compiled = np.zeros(4 * lanes, np.uint32)
    upgd_kernel._draw_words(compiled, 4 * lanes, block, counter[1], np.uint64(step), np.uint64(seed))
    assert tuple(compiled[lane::lanes].tolist()) == words


@pytest.mark.parametrize("size", [0, 1, 1023, 1025, 4096, 4097, 6200])
@pytest.mark.parametrize("step", [1, 2**32 + 7])
def test_noise_equals_the_reference(size: int, step: int) -> None:
    expected = noise_reference.noise(size, 3, step, 2**63 + 5)
    np.testing.assert_allclose(draws(size, 3, step, 2**63 + 5), expected, rtol=1e-12, atol=1e-12)


def test_both_paths_have_the_same_noise_at_every_size_of_the_word() -> None:
    """Also at both ends: the largest noise is 6.8 standard deviations, the smallest 0."""
    words = np.array([0, 1, 2**8, 2**24, 2**31, 2**32 - 2**9, 2**32 - 1] * 2, np.int64)
    angles = np.repeat(np.array([0, 3 * 2**29 + 5], np.int64), len(words) // 2)
    lanes = drawing.LANES
    compiled, buffer = np.zeros(2 * lanes, np.float32), np.zeros(2 * lanes, np.uint32)
    buffer[: len(words)], buffer[lanes : lanes + len(words)] = words, angles
    upgd_kernel._box_muller(buffer, compiled, len(words))
    plain = drawing._box_muller(torch.from_numpy(words), torch.from_numpy(angles))
    found = compiled[: len(words)], compiled[lanes : lanes + len(words)]
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=2e-6, atol=1e-6)
    assert math.sqrt(2 * 33 * math.log(2)) == pytest.approx(float(compiled[0]), rel=1e-6)
    assert float(plain[0].abs().min()) == 0.0


def test_noise_is_standard_normal() -> None:
    sample = draws()
    error = 1 / math.sqrt(SAMPLE)
    assert abs(sample.mean()) < 4 * error
    assert abs(sample.var() - 1) < 4 * math.sqrt(2) * error
    assert abs(stats.skew(sample)) < 4 * math.sqrt(6) * error
    assert abs(stats.kurtosis(sample)) < 4 * math.sqrt(24) * error
    assert stats.kstest(sample, "norm").pvalue > 0.01


@pytest.mark.parametrize(
    "other",
    [
        {"index": 1},
        {"step": 2},
        {"step": 1 + 2**32},
        {"seed": SEED_NOISE + 1},
        {"seed": SEED_NOISE + 2**32},
        {"index": 1, "step": 0},
    ],
    ids=str,
)
def test_parameters_steps_and_seeds_are_independent(other: dict[str, int]) -> None:
    assert_independent(draws(), draws(**other))


def assert_independent(one: np.ndarray, other: np.ndarray) -> None:
    """Neither the numbers nor their sizes are correlated."""
    error = 1 / math.sqrt(len(one))
    assert abs(np.corrcoef(one, other)[0, 1]) < 4 * error
    assert abs(np.corrcoef(one**2, other**2)[0, 1]) < 4 * error


def test_parameters_drawn_together_have_the_noise_of_each_drawn_alone() -> None:
    """Each in its own step, which may be a tensor."""
    sizes, indices, steps = [5000, 1, 3, 4096], [7, 0, 2, 3], [1, 2**32 + 3, torch.tensor(2**32 + 3), 9]
    together = drawing.normal(sizes, indices, steps, SEED_NOISE)
    for size, index, step, drawn in zip(sizes, indices, steps, together, strict=True):
        np.testing.assert_array_equal(drawn.numpy(), draws(size, index, int(step)))
