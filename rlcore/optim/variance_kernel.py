"""What the gradient scaler computes of contiguous float32 memory on the CPU, as compiled loops.

``table`` has a row per tensor: the addresses of its gradient, of the means and variances of its elements and of their
deviations from these means, and its number of elements. The formulas are those of
:mod:`rlcore.optim.gradient_variance`.

Sums are taken in float32 within a block, about the block's own mean, and in float64 over blocks. A block whose squares
leave the range of float32 is summed in float64.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-warn-unreachable
# mypy: disable-error-code="attr-defined, call-arg"

from __future__ import annotations

from typing import Final

import numpy as np
from numba import carray

from rlcore.optim.compiled import compiled, inlined, pointer, summing

GRADIENT, MEANS, VARIANCES, DEVIATIONS, SIZE = range(5)

BLOCK: Final = 512
# Between these a float32 sum of the squares of a block neither overflowed nor lost small elements.
LEAST, MOST = np.float32(1e-20), np.float32(1e30)
# That of rlcore.optim.gradient_variance, which a test compares.
LARGEST_ELEMENT: Final = np.float32(1e16)
_MAGNITUDE = np.int32(0x7FFFFFFF)


@inlined
def _tensor(table, row, column):
    return carray(pointer(table[row, column]), table[row, SIZE])


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
    """As ``_sums_about``, in float64."""
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


@inlined
def _largest(block):
    """The bits of the largest magnitude, whose maximum vectorises; that of floats does not."""
    bits, largest = block.view(np.int32), np.int32(0)
    for i in range(len(bits)):
        largest = max(largest, bits[i] & _MAGNITUDE)
    return largest


@inlined
def _limited(value):
    return -LARGEST_ELEMENT if value < -LARGEST_ELEMENT else LARGEST_ELEMENT if value > LARGEST_ELEMENT else value


@inlined
def _next_variance(variance, deviation, weight, kept):
    return kept * (variance + weight * (deviation * deviation))


@inlined
def _settle(means, variances, deviations, weight, kept):
    for i in range(len(means)):
        means[i] = means[i] + weight * deviations[i]
        variances[i] = _next_variance(variances[i], deviations[i], weight, kept)


@inlined
def _settle_and_deviate(gradient, means, variances, deviations, weight, kept):
    """The two in one pass, for their memory is the cost."""
    for i in range(len(gradient)):
        mean = means[i] + weight * deviations[i]
        variances[i] = _next_variance(variances[i], deviations[i], weight, kept)
        means[i] = mean
        deviations[i] = _limited(gradient[i]) - mean


@inlined
def _deviate(gradient, means, deviations):
    for i in range(len(gradient)):
        deviations[i] = _limited(gradient[i]) - means[i]


@inlined
def _announce(announced, variances, deviations, weight, kept):
    for i in range(len(variances)):
        announced[i] = _next_variance(variances[i], deviations[i], weight, kept)


@inlined
def _rest(weight):
    return np.float32(1.0 - weight)


@compiled("void(int64[:, ::1], float64[:, ::1], boolean, float64[:, ::1])")
def measure(table, weights, has_maximum, measured):
    """Measure every gradient. Settle its elements' averages, and take its deviations from them.

    :param weights: of the deviations that were committed and are still to be settled, 0 for none; and of these. Without
        rows where no elements are averaged
    :param has_maximum: whether to look for the largest magnitude
    :param measured: where mean, variance and largest magnitude of each gradient go, and the sum of its elements'
        variances once the deviations are settled
    """
    announced = np.empty(BLOCK, np.float32)
    for row in range(len(table)):
        gradient = _tensor(table, row, GRADIENT)
        mean, squares, total, largest = 0.0, 0.0, 0.0, np.int32(0)
        for start in range(0, len(gradient), BLOCK):
            end = min(start + BLOCK, len(gradient))
            block = gradient[start:end]
            block_mean, block_squares = _moments(block)
            # Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979
            difference = block_mean - mean
            mean += difference * ((end - start) / end)
            squares += block_squares + difference * difference * (start * ((end - start) / end))
            if has_maximum:
                largest = max(largest, _largest(block))
            if len(weights) > 0:
                means, variances = _tensor(table, row, MEANS)[start:end], _tensor(table, row, VARIANCES)[start:end]
                deviations = _tensor(table, row, DEVIATIONS)[start:end]
                old, new = weights[row]
                if old > 0:
                    _settle_and_deviate(block, means, variances, deviations, np.float32(old), _rest(old))
                else:
                    _deviate(block, means, deviations)
                _announce(announced[: end - start], variances, deviations, np.float32(new), _rest(new))
                total += np.float64(_sum(announced[: end - start]))
        measured[row, 0], measured[row, 1] = mean, squares / len(gradient)
        measured[row, 2], measured[row, 3] = np.int32(largest).view(np.float32), total


@compiled("void(int64[:, ::1], float64[::1])")
def settle(table, weights):
    """Move the averages of all elements by their deviations."""
    for row in range(len(table)):
        means, variances = _tensor(table, row, MEANS), _tensor(table, row, VARIANCES)
        _settle(means, variances, _tensor(table, row, DEVIATIONS), np.float32(weights[row]), _rest(weights[row]))


@compiled("void(int64[:, ::1], float64[::1])")
def sum_variances(table, sums):
    """Sum the variances of each tensor's elements, to the bit as :func:`measure` announces it."""
    for row in range(len(table)):
        variances, total = _tensor(table, row, VARIANCES), 0.0
        for start in range(0, len(variances), BLOCK):
            total += np.float64(_sum(variances[start : min(start + BLOCK, len(variances))]))
        sums[row] = total


@compiled("void(int64[:, ::1], float32)")
def scale(table, factor):
    """Multiply every gradient by the factor."""
    for row in range(len(table)):
        gradient = _tensor(table, row, GRADIENT)
        for i in range(len(gradient)):
            gradient[i] = gradient[i] * factor
