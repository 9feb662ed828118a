"""The UPGD step as compiled CPU loops over contiguous float32 memory. Importing this module compiles or loads them.

:class:`CompiledPart` is what the optimizers call. Each loop serves all tensors of a step in one call. ``table`` has a
row per tensor: the addresses of its parameter, utility, gradient, first and second moment, its number of elements, its
index among all parameters, and the row of ``coefficients`` that it follows. These rows are
:class:`rlcore.optim.upgd_step.Coefficients`. Without moments, as in UPGD, the gradient is used for both, and the
coefficients make it the direction.
The formulas are those of :mod:`rlcore.optim.upgd_step` and :mod:`rlcore.optim.noise`.

NaN and infinity are treated as IEEE 754 has them; products may be fused with sums. Where a loop is written in an
unusual way, it vectorises in this way only.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-warn-unreachable
# mypy: disable-error-code="attr-defined, call-arg"

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from rlcore.optim.compiled import addresses, compiled, inlined, summing, table_of, vector
from rlcore.optim.upgd_step import UtilityExtremes

PARAMETER, UTILITY, GRADIENT, FIRST_MOMENT, SECOND_MOMENT, SIZE, INDEX, COEFFICIENTS = range(8)
LIMIT: Final = np.finfo(np.float32).max / np.float32(4)

# Those of rlcore.optim.noise, which a test compares: numba's cache follows changes of this file alone.
BLOCK: Final = 4096
LANES: Final = BLOCK // 4
ROUNDS: Final = 10
_MASK, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEP_0, _KEY_STEP_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)

_EXPONENT = np.int32(0x7F800000)
_MAGNITUDE = np.int32(0x7FFFFFFF)


@inlined
def _bounded(value):
    return -LIMIT if value < -LIMIT else LIMIT if value > LIMIT else value


@inlined
def _exponential(x):
    """exp(x) for x in [-87, 88]; values beyond are taken as these, NaN stays NaN. Relative error below 2e-7."""
    x = np.float32(-87.0) if x < np.float32(-87.0) else np.float32(88.0) if x > np.float32(88.0) else x
    shifted = x * np.float32(1.44269504) + np.float32(12582912.0)  # 1.5 * 2^23: rounds to a whole number
    whole = shifted - np.float32(12582912.0)
    power = np.int32(np.float32(shifted).view(np.int32) - np.int32(0x4B400000))
    rest = (x - whole * np.float32(0.693359375)) - whole * np.float32(-2.12194440e-4)
    series = np.float32(1 / 720) + rest * np.float32(1 / 5040)
    series = np.float32(1 / 24) + rest * (np.float32(1 / 120) + rest * series)
    series = np.float32(1 / 2) + rest * (np.float32(1 / 6) + rest * series)
    series = np.float32(1.0) + rest * (np.float32(1.0) + rest * series)
    return series * np.int32((power + np.int32(127)) << np.int32(23)).view(np.float32)


@inlined
def _radius(word):
    """sqrt(-2 ln((word + 1/2) / 2^32)), from ln m = 2 artanh((m - 1) / (m + 1)) for m in [sqrt(1/2), sqrt(2)]."""
    bits = np.float32(np.float32(word) + np.float32(0.5)).view(np.int32)
    exponent = np.int32(np.int32(bits - np.int32(0x3F3504F3)) >> np.int32(23))
    reduced = np.int32(bits - np.int32(exponent << np.int32(23))).view(np.float32) - np.float32(1.0)
    s = reduced / (np.float32(2.0) + reduced)
    z = s * s
    series = np.float32(1 / 5) + z * (np.float32(1 / 7) + z * np.float32(1 / 9))
    series = np.float32(2.0) * s * (np.float32(1.0) + z * (np.float32(1 / 3) + z * series))
    logarithm = series + (np.float32(exponent) - np.float32(32.0)) * np.float32(0.6931471805599453)
    square = np.float32(-2.0) * logarithm
    return np.sqrt(square if square > np.float32(0.0) else np.float32(0.0))


@inlined
def _unit_vector(word):
    """Cosine and sine of 2 pi word / 2^32: series within a quarter turn, and the quarter from the two upper bits."""
    quarter = np.uint32(np.uint32(word + np.uint32(0x20000000)) >> np.uint32(30))
    rest = np.int32(np.uint32(word - np.uint32(quarter << np.uint32(30))))
    x = np.float32(rest) * np.float32(np.pi / 2**31)
    z = x * x
    sine = x * (np.float32(1.0) + z * (np.float32(-1 / 6) + z * (np.float32(1 / 120) + z * np.float32(-1 / 5040))))
    series = np.float32(1 / 24) + z * (np.float32(-1 / 720) + z * np.float32(1 / 40320))
    cosine = np.float32(1.0) + z * (np.float32(-0.5) + z * series)
    swapped = (quarter & np.uint32(1)) != 0
    across = sine if swapped else cosine
    up = cosine if swapped else sine
    left = (np.uint32(quarter + np.uint32(1)) & np.uint32(2)) != 0
    down = (quarter & np.uint32(2)) != 0
    return -across if left else across, -up if down else up


@inlined
def _draw_words(words, count, block, index, step, seed):
    """Philox4x32-10 in 64-bit lanes, whose upper halves hold what the next product masks away."""
    for i in range(min(count, LANES)):
        a, b = np.uint64(block * LANES + i), np.uint64(index)
        c, d = step & _MASK, step >> _HALF
        key_0, key_1 = seed & _MASK, seed >> _HALF
        for _ in range(ROUNDS):
            p, q = (a & _MASK) * _MULTIPLIER_0, (c & _MASK) * _MULTIPLIER_1
            a, b, c, d = (q >> _HALF) ^ b ^ key_0, q, (p >> _HALF) ^ d ^ key_1, p
            key_0, key_1 = key_0 + _KEY_STEP_0, key_1 + _KEY_STEP_1
        words[i] = np.uint32(a)
        words[i + LANES] = np.uint32(b)
        words[i + 2 * LANES] = np.uint32(c)
        words[i + 3 * LANES] = np.uint32(d)


@inlined
def _box_muller(words, noise, count):
    """Two lanes of words give two of noise, of which the first ``count`` elements of each are written."""
    for i in range(min(count, LANES)):
        radius = _radius(words[i])
        cosine, sine = _unit_vector(words[i + LANES])
        noise[i] = radius * cosine
        noise[i + LANES] = radius * sine


@inlined
def _draw(words, noise, count, block, index, step, seed):
    """Standard normal noise of at least the first ``count`` elements of a block."""
    _draw_words(words, count, block, index, step, seed)
    for first in range(0, count, 2 * LANES):
        _box_muller(words[first:], noise[first:], count - first)


@inlined
def _ordered(bits):
    """From the bits of a float32 an integer of the same order, and back."""
    return np.int32(bits ^ (np.int32(bits >> np.int32(31)) & _MAGNITUDE))


@inlined
def _nearer(average, value, weight):
    """One step of an average towards a value, which it takes to the bit where the weight is 1."""
    change = value - average
    if weight < np.float32(0.5):
        return average + weight * change
    return value - (np.float32(1.0) - weight) * change


@inlined
def _tensor(table, row, column):
    return vector(table, row, column, SIZE)


@compiled("boolean(int64[:, ::1])")
def _all_finite(table):
    """Say if all tensors are free of NaN and infinity; ``table`` has addresses, 0 for others, and sizes."""
    bad = np.int32(0)
    for row in range(len(table)):
        if table[row, 0] == 0:
            continue
        bits = vector(table, row, 0, 1).view(np.int32)
        for i in range(len(bits)):
            bad |= np.int32((bits[i] & _EXPONENT) == _EXPONENT)
    return bad == 0


@inlined
def _average_utility(parameter, gradient, utility, weight):
    """Average the utility in place; return its smallest and largest value as integers, whose minimum vectorises."""
    low, high = np.int32(2**31 - 1), np.int32(-(2**31))
    for i in range(len(utility)):
        value = _nearer(utility[i], _bounded(-_bounded(gradient[i]) * parameter[i]), weight)
        utility[i] = value
        order = _ordered(np.float32(value).view(np.int32))
        low, high = min(low, order), max(high, order)
    return low, high


@inlined
def _average_moments(gradient, first, second, first_weight, second_weight):
    for i in range(len(gradient)):
        value = _bounded(gradient[i])
        first[i] = _nearer(first[i], value, first_weight)
        second[i] = _nearer(second[i], _bounded(value * value), second_weight)


@compiled("UniTuple(float32, 2)(int64[:, ::1], float32[:, ::1], boolean)")
def _average(table, coefficients, has_moments):
    """Move all averages one step, and return the smallest and the largest of the corrected utilities."""
    smallest, largest = np.float32(np.inf), np.float32(-np.inf)
    for row in range(len(table)):
        parameter, gradient = _tensor(table, row, PARAMETER), _tensor(table, row, GRADIENT)
        utility = _tensor(table, row, UTILITY)
        correction, utility_weight, first_weight, second_weight = coefficients[table[row, COEFFICIENTS], 2:6]
        low, high = np.int32(2**31 - 1), np.int32(-(2**31))
        for start in range(0, len(parameter), BLOCK):
            end = min(start + BLOCK, len(parameter))
            part = gradient[start:end]
            least, most = _average_utility(parameter[start:end], part, utility[start:end], utility_weight)
            low, high = min(low, least), max(high, most)
            if has_moments:
                first = _tensor(table, row, FIRST_MOMENT)[start:end]
                second = _tensor(table, row, SECOND_MOMENT)[start:end]
                _average_moments(part, first, second, first_weight, second_weight)
        smallest = min(smallest, np.int32(_ordered(low)).view(np.float32) / correction)
        largest = max(largest, np.int32(_ordered(high)).view(np.float32) / correction)
    return smallest, largest


@summing
def _power(values):
    """Sum of squares, in any order."""
    total = 0.0
    for i in range(len(values)):
        total += np.float64(values[i]) * np.float64(values[i])
    return total


@inlined
def _direct(direction, first, second, mean_factor, root_factor, eps):
    for i in range(len(first)):
        root = np.sqrt(abs(second[i])) * root_factor + eps
        direction[i] = _bounded(_bounded(first[i]) / root * mean_factor)


@compiled("void(int64[:, ::1], float32[:, ::1], float64[::1])")
def _mean_squares(table, coefficients, means):
    """Write the mean square of the direction of each tensor to ``means``."""
    direction = np.empty(BLOCK, np.float32)
    for row in range(len(table)):
        first, second = _tensor(table, row, FIRST_MOMENT), _tensor(table, row, SECOND_MOMENT)
        mean_factor, root_factor, eps = coefficients[table[row, COEFFICIENTS], 6:9]
        total = 0.0
        for start in range(0, len(first), BLOCK):
            end = min(start + BLOCK, len(first))
            _direct(direction, first[start:end], second[start:end], mean_factor, root_factor, eps)
            total += _power(direction[: end - start])
        means[row] = total / len(first)


@inlined
def _move(parameter, first, second, utility, noise, std, kept, lr, half, other, mean_factor, root_factor, eps):
    """p * kept - lr * (d + noise) * (1 - s), where 1 - sigmoid(x) = 1 / (1 + exp(x)).

    One reciprocal serves the root in d and the gate.
    """
    for i in range(len(parameter)):
        root = np.sqrt(abs(second[i])) * root_factor + eps
        inverse = np.float32(1.0) / (root * (np.float32(1.0) + _exponential(utility[i] * half * other)))
        step = _bounded(_bounded(first[i]) * mean_factor * inverse + std * noise[i] * (root * inverse))
        parameter[i] = parameter[i] * kept - lr * step


@compiled("void(int64[:, ::1], float32[:, ::1], uint64[:, ::1], float32[::1], float64)")
def _change(table, coefficients, keys, stds, scale):
    """Change every parameter.

    :param keys: of the noise, like ``coefficients``: step and seed
    :param stds: of the noise, one a tensor
    """
    words, noise = np.empty(BLOCK, np.uint32), np.zeros(BLOCK, np.float32)
    for row in range(len(table)):
        parameter, utility = _tensor(table, row, PARAMETER), _tensor(table, row, UTILITY)
        first, second = _tensor(table, row, FIRST_MOMENT), _tensor(table, row, SECOND_MOMENT)
        choice, std = table[row, COEFFICIENTS], stds[row]
        kept, lr, correction = coefficients[choice, :3]
        mean_factor, root_factor, eps = coefficients[choice, 6:9]
        # The factor of the utility in two halves, as it can be beyond float32.
        factor = 1.0 / (scale * correction)
        half = np.float32(np.sqrt(abs(factor)))
        other = np.float32(np.copysign(half, factor))
        for start in range(0, len(parameter), BLOCK):
            end = min(start + BLOCK, len(parameter))
            if std > 0:
                _draw(words, noise, end - start, start // BLOCK, table[row, INDEX], keys[choice, 0], keys[choice, 1])
            p, u, m, v = parameter[start:end], utility[start:end], first[start:end], second[start:end]
            _move(p, m, v, u, noise, std, kept, lr, half, other, mean_factor, root_factor, eps)


def places_if_finite(tensors: Sequence[Tensor]) -> list[int]:
    """Return the :func:`rlcore.optim.compiled.addresses` of tensors of any kind; an empty list if one is not finite."""
    places = addresses(tensors)
    table = np.array([places, [*map(Tensor.numel, tensors)]], np.int64).T.copy()
    others = (tensor for tensor, place in zip(tensors, places, strict=True) if not place)
    return places if _all_finite(table) and all(bool(tensor.isfinite().all()) for tensor in others) else []


class CompiledPart:
    """The contiguous float32 parameters of steps on the CPU; the twin of :class:`rlcore.optim.upgd_step.Update`."""

    updates: Sequence[Any] = ()
    _made_for: Any = None
    _held: Sequence[Tensor] = ()

    def __init__(self, columns: Sequence[Sequence[int]], indices: Sequence[int]) -> None:
        self._has_moments = columns[FIRST_MOMENT] is not columns[GRADIENT]
        places, self._taken, self._others = table_of(*columns)
        self._table = np.column_stack([places, np.array(indices)[self._taken], np.zeros(len(places), np.int64)])

    @classmethod
    def of(
        cls,
        updates: Sequence[Any],
        names: Sequence[str],
        gradients: list[int],
        coefficients_of: Callable[[Any], Sequence[Any]],
        kept: CompiledPart | None,
    ) -> tuple[CompiledPart | None, list[Any]]:
        """Return the part of a step that the loops compute, None if there is none, and the rest.

        A float64 parameter leaves all to the rest, as its utility scales the others'.

        :param names: of the averages that have the parameter's shape, the utility first
        :param gradients: their :func:`rlcore.optim.compiled.addresses`
        :param kept: the part of the step before, which serves again if nothing but the gradients has moved
        """
        parameters, indices = [each.parameter for each in updates], [each.index for each in updates]
        averages = [[each.state[name] for each in updates] for name in names]
        places, own = addresses(parameters), [*chain(*averages)]
        made_for = (
            *(places, [*map(bool, gradients)], indices, [*map(Tensor.numel, parameters)]),
            *([*map(id, own)], [*map(Tensor.data_ptr, own)], [*map(Tensor.is_contiguous, own)]),
        )
        if kept is None or kept._made_for != made_for:
            utility, *moments = map(addresses, averages)
            if any(each.dtype is torch.float64 for each in parameters):
                utility = [0] * len(utility)
            moments, sizes = moments or [gradients] * 2, [*map(Tensor.numel, parameters)]
            kept = cls([places, utility, gradients, *moments, sizes], indices)
            kept._made_for, kept._held = made_for, own  # held, so that no other tensor has their identities
        kept._follow([updates[i] for i in kept._taken], np.array(gradients)[kept._taken], coefficients_of)
        return kept if kept.updates else None, [updates[i] for i in kept._others]

    def _follow(self, updates: Sequence[Any], gradients: Any, coefficients_of: Callable[[Any], Sequence[Any]]) -> None:
        """Take over the gradients, settings and counters of this step."""
        self.updates = updates
        kinds = [(id(each.group), each.state["step"], each.state.get("moment_step")) for each in updates]
        chosen = dict(zip(kinds, updates, strict=True))  # equal ones have equal coefficients
        rows = {kind: row for row, kind in enumerate(chosen)}
        self._table[:, GRADIENT : FIRST_MOMENT if self._has_moments else SIZE] = gradients[:, None]
        self._table[:, COEFFICIENTS] = [rows[kind] for kind in kinds]
        self._coefficients = np.array([coefficients_of(update) for update in chosen.values()], dtype=np.float32)
        self._keys = np.array([(each.state["step"], each.group["seed"]) for each in chosen.values()], dtype=np.uint64)

    def average(self) -> UtilityExtremes:
        """Move all averages one step; return the extremes of the corrected utilities."""
        low, high = _average(self._table, self._coefficients, self._has_moments)
        return UtilityExtremes(maximum=high, maximum_magnitude=max(high, -low))

    def direction_rms(self) -> Sequence[Tensor]:
        """Root mean square of the direction of each tensor, 0-dimensional."""
        means = np.empty(len(self.updates))
        _mean_squares(self._table, self._coefficients, means)
        return torch.from_numpy(np.sqrt(means).astype(np.float32)).unbind()

    def change(self, stds: Sequence[float | Tensor], scale: float | Tensor) -> None:
        """Change the parameters.

        :param stds: of the noise of each tensor
        :param scale: divisor of the corrected utilities
        """
        _change(self._table, self._coefficients, self._keys, np.array(stds, dtype=np.float32), float(scale))
        # Autograd refuses to go back through a parameter that has changed since, if it is told.
        torch.autograd.graph.increment_version([update.parameter for update in self.updates])
        self.updates = ()  # which hold the gradients
