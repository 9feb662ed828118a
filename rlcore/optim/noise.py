"""The noise of a UPGD optimizer: what it is, and how loud it was next to the step that it perturbed.

It is standard normal noise as a function of seed, step, parameter and element alone.

Bits: Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011). Its key is
the seed; its counter holds lane and block of the element, the index of the parameter, and the step. Normal numbers:
Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958, from two words of 32 bits each, so that
noise ends at 6.8 standard deviations.

Elements come in blocks of ``BLOCK``. Element e of block b has the word e // LANES of the counter b * LANES + e % LANES,
which lets a compiler compute neighbours at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from rlcore.functional import utility as functional
from rlcore.optim.upgd_state import bias_correction

BLOCK: Final = 4096
LANES: Final = BLOCK // 4

MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS: Final = (0x9E3779B9, 0xBB67AE85)
ROUNDS: Final = 10

_MASK: Final = 0xFFFFFFFF


def philox(counter: tuple[Tensor, ...], seed: int) -> tuple[Tensor, ...]:
    """Philox4x32-10.

    :param counter: four int64 tensors of one shape, values in [0, 2^32), least significant word first
    :param seed: the key, in [0, 2^64)
    :return: four tensors like those of ``counter``
    """
    a, b, c, d = counter
    keys = [seed & _MASK, seed >> 32]
    for _ in range(ROUNDS):
        # int64 products wrap, which leaves their 64 bits as they are.
        p, q = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b, c, d = ((q >> 32) & _MASK) ^ b ^ keys[0], q & _MASK, ((p >> 32) & _MASK) ^ d ^ keys[1], p & _MASK
        keys = [(key + step) & _MASK for key, step in zip(keys, KEY_STEPS, strict=True)]
    return a, b, c, d


def normal(
    sizes: Sequence[int],
    indices: Sequence[int],
    step: int | Tensor,
    seed: int,
    device: torch.device | None = None,
) -> Tensor:
    """Noise of some parameters in one step, one after another, float64, of shape ``[sum(sizes)]``.

    :param sizes: of the parameters, at least 1
    :param indices: of the parameters among all of an optimizer, in [0, 2^32)
    :param step: the parameters' own step, at least 0; as a tensor 0-dimensional, on ``device``
    :param seed: in [0, 2^64)
    """
    lanes = [padded(size) * LANES // BLOCK for size in sizes]
    lane = torch.cat([torch.arange(count, device=device) for count in lanes])
    index = torch.cat([torch.full((count,), index, device=device) for count, index in zip(lanes, indices, strict=True)])
    words = philox((lane, index, *_halves(lane, step)), seed)
    blocks = [word.view(-1, LANES) for word in words]
    pairs = [half for first in (0, 2) for half in _box_muller(blocks[first], blocks[first + 1])]
    numbers = torch.split(torch.stack(pairs, dim=1).view(-1), [BLOCK // LANES * count for count in lanes])
    return torch.cat([own[:size] for own, size in zip(numbers, sizes, strict=True)])


def padded(size: int) -> int:
    """How many numbers are computed for a parameter of that size: whole blocks."""
    return math.ceil(size / BLOCK) * BLOCK


def _halves(like: Tensor, step: int | Tensor) -> tuple[Tensor, Tensor]:
    return torch.zeros_like(like) + (step & _MASK), torch.zeros_like(like) + (step >> 32)


def _box_muller(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Two independent normal numbers from two words; the first is rounded to float32, as the compiled path has it."""
    uniform = (first.float() + 0.5).double() * 2.0**-32
    radius, angle = (-2.0 * uniform.log()).sqrt(), second.double() * (2.0 * math.pi * 2.0**-32)
    return radius * angle.cos(), radius * angle.sin()


def noise_to_signal(optimizer: torch.optim.Optimizer) -> float | None:
    """Root mean square of the last step's noise, as its standard deviation has it, over that of the direction d.

    Both are taken over all elements that had a gradient. Everything is read from the state and the gradients that the
    step left behind, so the step itself costs nothing more.

    :return: at least 0; None for an optimizer of another kind, before its first step under the present settings, and
        where d is 0 throughout
    """
    averages_of = getattr(optimizer, "_averages_of", None)
    if averages_of is None:
        return None
    noise = signal = 0.0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            if parameter.grad is None or not state:
                continue
            averages = averages_of(group)
            if not all(name in state for counter, names in averages.items() for name in (counter, *names)):
                return None
            power = float(_direction(parameter.grad, state, group).square().sum())
            noise += parameter.numel() * _noise_std(state, group) ** 2
            signal += power
    return math.sqrt(noise / signal) if signal > 0 else None


def _direction(gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    """The direction of the last step, float64; for UPGD the gradient, for AdaptiveUPGD from the averages."""
    if "betas" not in group:
        return functional.bounded(gradient).double()
    first_beta, second_beta = group["betas"]
    steps = int(state["moment_step"])
    mean = state["first_moment"].double() / bias_correction(first_beta, steps)
    root = (state["second_moment"].double() / bias_correction(second_beta, steps)).sqrt()
    direction: Tensor = mean / (root + group["eps"])
    return direction


def _noise_std(state: dict[str, Any], group: dict[str, Any]) -> float:
    """Standard deviation of the last step's noise."""
    sigma = float(group["sigma"])
    if sigma == 0.0 or not group["adaptive_noise"]:
        return sigma
    rms = float(state["direction_rms"]) / bias_correction(group["noise_beta"], int(state["noise_step"]))
    return max(sigma * rms, float(group["min_noise_std"]))
