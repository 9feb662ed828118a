"""The noise of the UPGD optimizers, one element at a time: Philox4x32-10 in Python's integers, then Box and Muller."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MASK = 2**32 - 1


def philox(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """The four words of a counter of four words under a key of two; least significant words first."""
    words, keys = list(counter), list(key)
    for _ in range(10):
        low, high = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
        words = [(high >> 32) ^ words[1] ^ keys[0], high & MASK, (low >> 32) ^ words[3] ^ keys[1], low & MASK]
        keys = [(keys[0] + 0x9E3779B9) & MASK, (keys[1] + 0xBB67AE85) & MASK]
    return words


def noise(size: int, index: int, step: int, seed: int) -> NDArray[np.float64]:
    """Standard normal noise of the parameter ``index`` in its step ``step``."""
    return np.array([_element(element, index, step, seed) for element in range(size)])


def _element(element: int, index: int, step: int, seed: int) -> float:
    block, place = divmod(element, 4096)
    lane = place % 1024
    words = philox((block * 1024 + lane, index, step & MASK, step >> 32), (seed & MASK, seed >> 32))
    word = place // 1024
    first, second = words[word // 2 * 2 : word // 2 * 2 + 2]
    # The optimizers work with the word as float32 has it.
    uniform = float(np.float32(first) + np.float32(0.5)) / 2**32
    angle = 2 * math.pi * second / 2**32
    return math.sqrt(-2 * math.log(uniform)) * (math.sin(angle) if word % 2 else math.cos(angle))
