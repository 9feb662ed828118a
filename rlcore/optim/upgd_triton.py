"""The UPGD step on a CUDA device as four kernels, each launched once for all tensors. Importing this imports Triton.

:mod:`rlcore.optim.upgd_device` launches ``measure`` by itself and the others in the order in which they stand here. A
program works on one block of :mod:`rlcore.optim.noise` of one tensor, or in ``reduce`` on one tensor. ``table`` has a
row per tensor, ``settings`` one per group, ``rows`` the row of each program. ``found`` has whether a gradient is not
finite, the largest corrected utility, or 0 if none is positive, and the largest magnitude of one: the bits of positive
numbers have their order.
The formulas are those of :mod:`rlcore.optim.upgd_step` and :mod:`rlcore.optim.noise`.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators, no-warn-unreachable

from __future__ import annotations

import torch
import triton
import triton.language as tl

from rlcore.optim import noise

BLOCK, LANES = tl.constexpr(noise.BLOCK), tl.constexpr(noise.LANES)
LIMIT = tl.constexpr(torch.finfo(torch.float32).max / 4)
PARAMETER, GRADIENT, UTILITY, FIRST_MOMENT, SECOND_MOMENT, DIRECTION_RMS = map(tl.constexpr, range(6))
STEP, MOMENT_STEP, NOISE_STEP, SIZE, INDEX, KIND = map(tl.constexpr, range(6, 12))
SEED, GROUP, FIRST_PROGRAM, END_PROGRAM, COLUMNS = map(tl.constexpr, range(12, 17))
KEPT, LR, UTILITY_DECAY, UTILITY_WEIGHT, FIRST_DECAY, FIRST_WEIGHT = map(tl.constexpr, range(6))
SECOND_DECAY, SECOND_WEIGHT, EPS, SIGMA, ADAPTS = map(tl.constexpr, range(6, 11))
NOISE_DECAY, NOISE_WEIGHT, LEAST_NOISE, SETTINGS = map(tl.constexpr, range(11, 15))
FLOATS, COUNTER = tl.constexpr(tl.pointer_type(tl.float32)), tl.constexpr(tl.pointer_type(tl.int64))
MAXIMUM, MAGNITUDE = tl.constexpr(1), tl.constexpr(2)
TAKEN, SCALE = tl.constexpr(0), tl.constexpr(1)


@triton.jit
def _bounded(values):
    return tl.minimum(tl.maximum(values, -LIMIT), LIMIT)


@triton.jit
def _locate(table, rows, settings):
    """Row and settings of the tensor of this program, and which of its blocks is meant."""
    row = table + tl.load(rows + tl.program_id(0)) * COLUMNS
    block = tl.program_id(0) - tl.load(row + FIRST_PROGRAM)
    return row, settings + tl.load(row + GROUP) * SETTINGS, block


@triton.jit
def _wide(row, column, places, mask):
    """Elements of a parameter or a gradient as float32."""
    address, kind = tl.load(row + column), tl.load(row + KIND)
    if kind == 0:
        values = tl.load(address.to(FLOATS) + places, mask, 0.0)
    elif kind == 1:
        values = tl.load(address.to(tl.pointer_type(tl.bfloat16)) + places, mask, 0.0).to(tl.float32)
    else:
        values = tl.load(address.to(tl.pointer_type(tl.float16)) + places, mask, 0.0).to(tl.float32)
    return values


@triton.jit
def _write(row, places, mask, values):
    address, kind = tl.load(row + PARAMETER), tl.load(row + KIND)
    if kind == 0:
        tl.store(address.to(FLOATS) + places, values, mask)
    elif kind == 1:
        # Rounded to even, which the interpreter does not do; NaN keeps its bits.
        bits = values.to(tl.int32, bitcast=True)
        rounded = tl.where(values == values, bits + 0x7FFF + ((bits >> 16) & 1), bits)
        tl.store(address.to(tl.pointer_type(tl.int16)) + places, (rounded >> 16).to(tl.int16), mask)
    else:
        tl.store(address.to(tl.pointer_type(tl.float16)) + places, values.to(tl.float16), mask)


@triton.jit
def _correction(decay, steps):
    return 1.0 - tl.exp(steps.to(tl.float64) * tl.load(decay))


@triton.jit
def _move_average(pointer, mask, value, weight):
    """One step of an average towards a value, which it takes to the bit where the weight is 1."""
    average, weight = tl.load(pointer, mask, 0.0), tl.load(weight).to(tl.float32)
    change = value - average
    moved = tl.where(weight < 0.5, average + weight * change, value - (1.0 - weight) * change)
    tl.store(pointer, moved, mask)
    return moved


@triton.jit
def _factors(row, own, steps):
    """Of the direction, which is ``mean_factor * m / (root_factor * sqrt(v) + eps)``."""
    steps += tl.load(tl.load(row + MOMENT_STEP).to(COUNTER))
    mean_factor = 1.0 / _correction(own + FIRST_DECAY, steps)
    root_factor = 1.0 / tl.sqrt(_correction(own + SECOND_DECAY, steps))
    return mean_factor.to(tl.float32), root_factor.to(tl.float32), tl.load(own + EPS).to(tl.float32)


@triton.jit
def _direction(first, second, mean_factor, root_factor, eps):
    return _bounded(tl.div_rn(first, tl.sqrt_rn(second) * root_factor + eps) * mean_factor)


@triton.jit
def measure(table, rows, settings, measured):
    """Mean of each block of the gradients and the sum of squared deviations from it, in float64."""
    row, _, block = _locate(table, rows, settings)
    places, size = block * BLOCK + tl.arange(0, BLOCK), tl.load(row + SIZE)
    values = _wide(row, GRADIENT, places, places < size).to(tl.float64)
    mean = tl.sum(values, 0) / tl.minimum(size - block * BLOCK, BLOCK).to(tl.float64)
    deviations = tl.where(places < size, values - mean, 0.0)
    tl.store(measured + 2 * tl.program_id(0), mean)
    tl.store(measured + 2 * tl.program_id(0) + 1, tl.sum(deviations * deviations, 0))


@triton.jit
def look(table, rows, settings, found):
    row, _, block = _locate(table, rows, settings)
    places = block * BLOCK + tl.arange(0, BLOCK)
    bits = _wide(row, GRADIENT, places, places < tl.load(row + SIZE)).to(tl.int32, bitcast=True)
    bad = tl.max(((bits & 0x7F800000) == 0x7F800000).to(tl.int32), 0)
    tl.atomic_max(found, bad, mask=bad > 0)


@triton.jit
def average(table, rows, settings, found, squares, HAS_MOMENTS: tl.constexpr):  # noqa: N803
    row, own, block = _locate(table, rows, settings)
    if tl.load(found) == 0:
        places = block * BLOCK + tl.arange(0, BLOCK)
        mask = places < tl.load(row + SIZE)
        gradient = _bounded(_wide(row, GRADIENT, places, mask))
        value = _bounded(-gradient * _wide(row, PARAMETER, places, mask))
        utility = _move_average(tl.load(row + UTILITY).to(FLOATS) + places, mask, value, own + UTILITY_WEIGHT)
        correction = _correction(own + UTILITY_DECAY, tl.load(tl.load(row + STEP).to(COUNTER)) + 1).to(tl.float32)
        utility = tl.div_rn(utility, correction)
        tl.atomic_max(found + MAXIMUM, tl.max(utility.to(tl.int32, bitcast=True), 0))
        tl.atomic_max(found + MAGNITUDE, tl.max(tl.abs(utility).to(tl.int32, bitcast=True), 0))
        direction = gradient
        if HAS_MOMENTS:
            first_place, second_place = tl.load(row + FIRST_MOMENT), tl.load(row + SECOND_MOMENT)
            first = _move_average(first_place.to(FLOATS) + places, mask, gradient, own + FIRST_WEIGHT)
            square = _bounded(gradient * gradient)
            second = _move_average(second_place.to(FLOATS) + places, mask, square, own + SECOND_WEIGHT)
            mean_factor, root_factor, eps = _factors(row, own, 1)
            direction = _direction(first, second, mean_factor, root_factor, eps)
        if tl.load(own + ADAPTS) > 0:
            wide = tl.where(mask, direction, 0.0).to(tl.float64)
            tl.store(squares + tl.program_id(0), tl.sum(wide * wide, 0))


@triton.jit
def _count(row, column):
    counter = tl.load(row + column).to(COUNTER)
    steps = tl.load(counter) + 1
    tl.store(counter, steps)
    return steps


@triton.jit
def _adapted_std(row, own, squares):
    """Standard deviation of noise that follows the root mean square of the direction; moves its average."""
    total, end = tl.zeros([LANES], tl.float64), tl.load(row + END_PROGRAM)
    for start in range(tl.load(row + FIRST_PROGRAM), end, LANES):
        programs = start + tl.arange(0, LANES)
        total += tl.load(squares + programs, programs < end, 0.0)
    rms = tl.sqrt(tl.sum(total, 0) / tl.load(row + SIZE).to(tl.float64)).to(tl.float32)
    level = _move_average(tl.load(row + DIRECTION_RMS).to(FLOATS), end > 0, rms, own + NOISE_WEIGHT)
    level = level / _correction(own + NOISE_DECAY, _count(row, NOISE_STEP)) * tl.load(own + SIGMA)
    return tl.minimum(tl.maximum(level, tl.load(own + LEAST_NOISE)), LIMIT).to(tl.float32)


@triton.jit
def reduce(table, settings, found, squares, results, stds, skipped, HAS_MOMENTS: tl.constexpr):  # noqa: N803
    place, bad = tl.program_id(0), tl.load(found)
    row = table + place * COLUMNS
    own = settings + tl.load(row + GROUP) * SETTINGS
    if place == 0:
        maximum = tl.load(found + MAXIMUM).to(tl.float32, bitcast=True)
        magnitude = tl.load(found + MAGNITUDE).to(tl.float32, bitcast=True)
        tl.store(results + TAKEN, 1.0 - bad.to(tl.float32))
        tl.store(results + SCALE, tl.where(maximum > 0, maximum, tl.where(magnitude > 0, magnitude, 1.0)))
        tl.store(skipped, tl.load(skipped) + bad)
    if bad == 0:
        _count(row, STEP)
        if HAS_MOMENTS:
            _count(row, MOMENT_STEP)
        if tl.load(own + ADAPTS) > 0:
            tl.store(stds + place, _adapted_std(row, own, squares))
        else:
            tl.store(stds + place, tl.load(own + SIGMA).to(tl.float32))


@triton.jit
def _radius(word):
    """sqrt(-2 ln((word + 1/2) / 2^32)), from ln m = 2 artanh((m - 1) / (m + 1)) for m in [sqrt(1/2), sqrt(2)]."""
    bits = (word.to(tl.float32) + 0.5).to(tl.int32, bitcast=True)
    exponent = (bits - 0x3F3504F3) >> 23
    reduced = (bits - (exponent << 23)).to(tl.float32, bitcast=True) - 1.0
    s = tl.div_rn(reduced, 2.0 + reduced)
    z = s * s
    series = 2.0 * s * (1.0 + z * (1 / 3 + z * (1 / 5 + z * (1 / 7 + z * (1 / 9)))))
    logarithm = series + (exponent.to(tl.float32) - 32.0) * 0.6931471805599453
    return tl.sqrt_rn(tl.maximum(-2.0 * logarithm, 0.0))


@triton.jit
def _unit_vector(word):
    """Cosine and sine of 2 pi word / 2^32: series within a quarter turn, and the quarter from the two upper bits."""
    quarter = (word + 0x20000000) >> 30
    rest = (word - (quarter << 30)).to(tl.int32, bitcast=True)
    x = rest.to(tl.float32) * 1.4629180792671596e-09  # pi / 2^31
    z = x * x
    sine = x * (1.0 + z * (-1 / 6 + z * (1 / 120 + z * (-1 / 5040))))
    cosine = 1.0 + z * (-0.5 + z * (1 / 24 + z * (-1 / 720 + z * (1 / 40320))))
    swapped = (quarter & 1) != 0
    across, up = tl.where(swapped, sine, cosine), tl.where(swapped, cosine, sine)
    left, down = ((quarter + 1) & 2) != 0, (quarter & 2) != 0
    return tl.where(left, -across, across), tl.where(down, -up, up)


@triton.jit
def _normal(row, block, steps):
    """Standard normal noise of a block, a quarter each."""
    lane = (block * LANES + tl.arange(0, LANES)).to(tl.uint32)
    index = tl.load(row + INDEX).to(tl.uint32)
    low, high = (steps & 0xFFFFFFFF).to(tl.uint32), (steps >> 32).to(tl.uint32)
    a, b, c, d = tl.philox(tl.load(row + SEED), lane, index, low, high)
    first, second = _radius(a), _radius(c)
    first_x, first_y = _unit_vector(b)
    second_x, second_y = _unit_vector(d)
    return first * first_x, first * first_y, second * second_x, second * second_y


@triton.jit
def change(table, rows, settings, found, results, stds, HAS_MOMENTS: tl.constexpr):  # noqa: N803
    """p * kept - lr * (d + noise) * (1 - s), where 1 - sigmoid(x) = 1 / (1 + exp(x))."""
    row, own, block = _locate(table, rows, settings)
    if tl.program_id(0) == 0:  # no program of this launch reads what the next step starts from
        tl.store(found, 0)
        tl.store(found + MAXIMUM, 0)
        tl.store(found + MAGNITUDE, 0)
    if tl.load(results + TAKEN) > 0:
        scale, std = tl.load(results + SCALE), tl.load(stds + tl.load(rows + tl.program_id(0)))
        kept, lr = tl.load(own + KEPT).to(tl.float32), tl.load(own + LR).to(tl.float32)
        steps = tl.load(tl.load(row + STEP).to(COUNTER))
        correction = _correction(own + UTILITY_DECAY, steps).to(tl.float32)
        first, second = tl.load(row + FIRST_MOMENT).to(FLOATS), tl.load(row + SECOND_MOMENT).to(FLOATS)
        if HAS_MOMENTS:
            mean_factor, root_factor, eps = _factors(row, own, 0)
        a = tl.zeros([LANES], tl.float32)
        b, c, d = a, a, a
        if std > 0:
            a, b, c, d = _normal(row, block, steps)
        draws = (a, b, c, d)
        for quarter in tl.static_range(4):
            places = block * BLOCK + quarter * LANES + tl.arange(0, LANES)
            mask = places < tl.load(row + SIZE)
            if HAS_MOMENTS:
                m, v = tl.load(first + places, mask, 0.0), tl.load(second + places, mask, 0.0)
                direction = _direction(m, v, mean_factor, root_factor, eps)
            else:
                direction = _bounded(_wide(row, GRADIENT, places, mask))
            direction = _bounded(direction + draws[quarter] * std)
            utility = tl.div_rn(tl.load(tl.load(row + UTILITY).to(FLOATS) + places, mask, 0.0), correction)
            share = 1.0 / (1.0 + tl.exp(tl.div_rn(utility, scale)))
            _write(row, places, mask, _wide(row, PARAMETER, places, mask) * kept - lr * (direction * share))
