"""The noise of the UPGD optimizers, and its size relative to the step that it perturbed.

It is standard normal noise, a function of seed, step, parameter and element alone.

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
from typing import Final

import torch
from torch import Tensor

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
    steps: Sequence[int | Tensor],
    seed: int,
    device: torch.device | None = None,
) -> list[Tensor]:
    """Noise of some parameters in one step of each, float64, of shape ``[size]`` each.

    :param indices: of the parameters among all of an optimizer, in [0, 2^32)
    :param steps: the parameters' own steps, at least 0; tensors are 0-dimensional, on ``device``
    :param seed: in [0, 2^64)
    """
    lanes = [math.ceil(size / BLOCK) * LANES for size in sizes]
    lane = torch.cat([torch.arange(count, device=device) for count in lanes])
    index = torch.cat([torch.full((count,), index, device=device) for count, index in zip(lanes, indices, strict=True)])
    counts = zip(lanes, steps, strict=True)
    step = torch.cat([torch.as_tensor(step, device=device).expand(count) for count, step in counts])
    words = philox((lane, index, step & _MASK, step >> 32), seed)
    blocks = [word.view(-1, LANES) for word in words]
    pairs = [half for first in (0, 2) for half in _box_muller(blocks[first], blocks[first + 1])]
    numbers = torch.split(torch.stack(pairs, dim=1).view(-1), [count * BLOCK // LANES for count in lanes])
    return [own[:size] for own, size in zip(numbers, sizes, strict=True)]


def _box_muller(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Two independent normal numbers from two words; the first is rounded to float32, as the compiled path has it."""
    uniform = (first.float() + 0.5).double() * 2.0**-32
    radius, angle = (-2.0 * uniform.log()).sqrt(), second.double() * (2.0 * math.pi * 2.0**-32)
    return radius * angle.cos(), radius * angle.sin()
