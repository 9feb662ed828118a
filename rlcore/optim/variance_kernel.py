"""The compiled measurement of gradients for contiguous float32 memory on the CPU.

Sums are taken in float32 within a block, about the block's own mean, and in float64 over blocks. A block whose squares
leave the range of float32 is summed in float64.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-warn-unreachable
# mypy: disable-error-code="attr-defined, call-arg"

from __future__ import annotations

from typing import Final

import numpy as np

from rlcore.optim.compiled import compiled, inlined, summing, vector

BLOCK: Final = 512
# Between these a float32 sum of the squares of a block neither overflowed nor lost small elements.
LEAST, MOST = np.float32(1e-20), np.float32(1e30)


@summing
def _sum(values):
    total = np.float32(0.0)
    for i in range(len(values)):
        total += values[i]
    return total


@summing
def _sums_about(values, center):
    """Sum of the deviations from ``center``, and of their squares."""
    first, second = np.float32(0.0), np.float32(0.0)
    for i in range(len(values)):
        deviation = values[i] - center
        first += deviation
        second += deviation * deviation
    return first, second


@summing
def _wide_sums_about(values, center):
    """Do what ``_sums_about`` does, in float64."""
    first, second = 0.0, 0.0
    for i in range(len(values)):
        deviation = np.float64(values[i]) - center
        first += deviation
        second += deviation * deviation
    return first, second


@inlined
def _moments(block):
    """Mean of a block, and the sum of the squared deviations from it."""
    center = np.float64(np.float32(_sum(block) / np.float32(len(block))))
    first, second = _sums_about(block, np.float32(center))
    first, second = np.float64(first), np.float64(second)
    if not LEAST < second < MOST:
        center = np.float64(block[0])
        first, second = _wide_sums_about(block, center)
        center += first / len(block)
        first, second = _wide_sums_about(block, center)
    shift = first / len(block)
    return center + shift, max(second - first * shift, 0.0)


@compiled("void(int64[:, ::1], float64[:, ::1])")
def measure(table, measured):
    """Measure every gradient.

    :param table: address and number of elements of each gradient; see :func:`rlcore.optim.compiled.table_of`
    :param measured: takes mean and variance of each gradient
    """
    for row in range(len(table)):
        gradient = vector(table, row, 0, 1)
        mean, squares = 0.0, 0.0
        for start in range(0, len(gradient), BLOCK):
            end = min(start + BLOCK, len(gradient))
            block = gradient[start:end]
            block_mean, block_squares = _moments(block)
            # Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979
            difference = block_mean - mean
            mean += difference * ((end - start) / end)
            squares += block_squares + difference * difference * (start * ((end - start) / end))
        measured[row, 0], measured[row, 1] = mean, squares / len(gradient)
