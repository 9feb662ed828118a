"""The noise of UPGD: published answers of its generator, its distribution, and what it depends on."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from rlcore.optim import noise, upgd_kernel
from rlcore.optim.upgd import UPGD
from tests.reference import noise_reference

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
SEED = 2024


def draws(size: int = SAMPLE, index: int = 0, step: int = 1, seed: int = SEED) -> np.ndarray:
    return noise.normal([size], [index], [step], seed)[0].numpy()


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN.values(), ids=KNOWN)
def test_the_generator_gives_the_published_words(
    counter: tuple[int, ...], key: tuple[int, ...], words: tuple[int, ...]
) -> None:
    seed, step = key[0] + (key[1] << 32), counter[2] + (counter[3] << 32)
    assert tuple(noise_reference.philox(counter, key)) == words
    found = noise.philox(tuple(torch.tensor([word]) for word in counter), seed)
    assert tuple(int(word) for word in found) == words
    lanes = noise.LANES
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
    lanes = noise.LANES
    compiled, buffer = np.zeros(2 * lanes, np.float32), np.zeros(2 * lanes, np.uint32)
    buffer[: len(words)], buffer[lanes : lanes + len(words)] = words, angles
    upgd_kernel._box_muller(buffer, compiled, len(words))
    plain = noise._box_muller(torch.from_numpy(words), torch.from_numpy(angles))
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
        {"seed": SEED + 1},
        {"seed": SEED + 2**32},
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
    together = noise.normal(sizes, indices, steps, SEED)
    for size, index, step, drawn in zip(sizes, indices, steps, together, strict=True):
        np.testing.assert_array_equal(drawn.numpy(), draws(size, index, int(step)))


def noisy_step(optimizer: UPGD) -> Tensor:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return torch.cat([each.detach().clone() for group in optimizer.param_groups for each in group["params"]])


def make(groups: list[int], dtype: torch.dtype = torch.float32) -> UPGD:
    """Groups of so many parameters of 3 elements each."""
    chosen = [{"params": [nn.Parameter(torch.zeros(3, dtype=dtype)) for _ in range(count)]} for count in groups]
    return UPGD(chosen, lr=1.0, sigma=1.0, seed=SEED)


def test_two_optimizers_do_not_disturb_each_other_or_the_global_generator() -> None:
    alone, one, other = make([2]), make([2]), make([3])
    expected = [noisy_step(alone) for _ in range(3)]
    before = torch.get_rng_state()
    found = []
    for _ in range(3):
        found.append(noisy_step(one))
        noisy_step(other)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
