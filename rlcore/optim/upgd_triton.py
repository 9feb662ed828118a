"""The UPGD step on a CUDA device as two kernels, each launched once for all tensors. Importing this imports Triton.

:mod:`rlcore.optim.upgd_device` launches ``measure`` by itself, and ``survey`` before ``change``. A program works on one
block of :mod:`rlcore.optim.noise` of one tensor. ``table`` has a row per tensor, ``settings`` one per group, ``rows``
the row of each program. ``found`` has two sets that steps use in turn, and which is next for each kernel. A set has
whether a gradient is not finite, the largest corrected utility, or 0 if none is positive, and the largest magnitude of
one: the bits of positive numbers have their order.

No program reads what another one of its launch writes; what several write, they write alike. So ``survey`` writes the
counters after this step and the level of noise before it to ``counts`` and ``levels``, per tensor, and ``change``
writes the state and clears the set of the next step.
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
BAD, MAXIMUM, MAGNITUDE, FINDINGS = map(tl.constexpr, range(4))
SURVEYED, CHANGED = tl.constexpr(2 * 3), tl.constexpr(2 * 3 + 1)


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
def _moved(average, value, weight):
    """One step of an average towards a value, which it takes to the bit where the weight is 1."""
    weight = tl.load(weight).to(tl.float32)
    change = value - average
    return tl.where(weight < 0.5, average + weight * change, value - (1.0 - weight) * change)


@triton.jit
def _averages(row, own, places, mask, gradient, HAS_MOMENTS: tl.constexpr):  # noqa: N803
    """The averages after this step: of the utility, and the moments."""
    value = _bounded(-gradient * _wide(row, PARAMETER, places, mask))
    utility = tl.load(tl.load(row + UTILITY).to(FLOATS) + places, mask, 0.0)
    utility = _moved(utility, value, own + UTILITY_WEIGHT)
    first, second = gradient, gradient
    if HAS_MOMENTS:
        first = tl.load(tl.load(row + FIRST_MOMENT).to(FLOATS) + places, mask, 0.0)
        first = _moved(first, gradient, own + FIRST_WEIGHT)
        second = tl.load(tl.load(row + SECOND_MOMENT).to(FLOATS) + places, mask, 0.0)
        second = _moved(second, _bounded(gradient * gradient), own + SECOND_WEIGHT)
    return utility, first, second


@triton.jit
def _factors(own, steps):
    """Of the direction, which is ``mean_factor * m / (root_factor * sqrt(v) + eps)``."""
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
def _counted(row, column):
    """A counter after this step."""
    return tl.load(tl.load(row + column).to(COUNTER)) + 1


@triton.jit
def survey(table, rows, settings, found, counts, levels, squares, HAS_MOMENTS: tl.constexpr):  # noqa: N803
    row, own, block = _locate(table, rows, settings)
    tensor, turn = tl.load(rows + tl.program_id(0)), tl.load(found + SURVEYED)
    if tl.program_id(0) == 0:
        tl.store(found + CHANGED, turn)
    found += turn * FINDINGS
    adapts = tl.load(own + ADAPTS) > 0
    counts += 3 * tensor
    tl.store(counts, _counted(row, STEP))
    if HAS_MOMENTS:
        tl.store(counts + 1, _counted(row, MOMENT_STEP))
    if adapts:
        tl.store(counts + 2, _counted(row, NOISE_STEP))
        tl.store(levels + tensor, tl.load(tl.load(row + DIRECTION_RMS).to(FLOATS)))
    places = block * BLOCK + tl.arange(0, BLOCK)
    mask = places < tl.load(row + SIZE)
    gradient = _wide(row, GRADIENT, places, mask)
    bad = tl.max(((gradient.to(tl.int32, bitcast=True) & 0x7F800000) == 0x7F800000).to(tl.int32), 0)
    tl.atomic_max(found + BAD, bad, mask=bad > 0)
    gradient = _bounded(gradient)
    utility, first, second = _averages(row, own, places, mask, gradient, HAS_MOMENTS)
    utility = tl.div_rn(utility, _correction(own + UTILITY_DECAY, _counted(row, STEP)).to(tl.float32))
    tl.atomic_max(found + MAXIMUM, tl.max(utility.to(tl.int32, bitcast=True), 0))
    tl.atomic_max(found + MAGNITUDE, tl.max(tl.abs(utility).to(tl.int32, bitcast=True), 0))
    if adapts:
        direction = gradient
        if HAS_MOMENTS:
            mean_factor, root_factor, eps = _factors(own, _counted(row, MOMENT_STEP))
            direction = _direction(first, second, mean_factor, root_factor, eps)
        wide = tl.where(mask, direction, 0.0).to(tl.float64)
        tl.store(squares + tl.program_id(0), tl.sum(wide * wide, 0))


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
def _scale(found):
    maximum = tl.load(found + MAXIMUM).to(tl.float32, bitcast=True)
    magnitude = tl.load(found + MAGNITUDE).to(tl.float32, bitcast=True)
    return tl.where(maximum > 0, maximum, tl.where(magnitude > 0, magnitude, 1.0))


@triton.jit
def _count(row, counts, HAS_MOMENTS: tl.constexpr):  # noqa: N803
    tl.store(tl.load(row + STEP).to(COUNTER), tl.load(counts))
    if HAS_MOMENTS:
        tl.store(tl.load(row + MOMENT_STEP).to(COUNTER), tl.load(counts + 1))


@triton.jit
def _adapted_std(row, own, counts, level, squares):
    """Standard deviation of noise that follows the direction; moves the average of its root mean square."""
    total, end = tl.zeros([LANES], tl.float64), tl.load(row + END_PROGRAM)
    for start in range(tl.load(row + FIRST_PROGRAM), end, LANES):
        programs = start + tl.arange(0, LANES)
        total += tl.load(squares + programs, programs < end, 0.0)
    rms = tl.sqrt(tl.sum(total, 0) / tl.load(row + SIZE).to(tl.float64)).to(tl.float32)
    level, steps = _moved(tl.load(level), rms, own + NOISE_WEIGHT), tl.load(counts + 2)
    tl.store(tl.load(row + DIRECTION_RMS).to(FLOATS), level)
    tl.store(tl.load(row + NOISE_STEP).to(COUNTER), steps)
    std = level / _correction(own + NOISE_DECAY, steps) * tl.load(own + SIGMA)
    return tl.minimum(tl.maximum(std, tl.load(own + LEAST_NOISE)), LIMIT).to(tl.float32)


@triton.jit
def change(table, rows, settings, found, counts, levels, squares, skipped, HAS_MOMENTS: tl.constexpr):  # noqa: N803
    """p * kept - lr * (d + noise) * (1 - s), where 1 - sigmoid(x) = 1 / (1 + exp(x))."""
    row, own, block = _locate(table, rows, settings)
    tensor, turn = tl.load(rows + tl.program_id(0)), tl.load(found + CHANGED)
    bad, counts = tl.load(found + turn * FINDINGS + BAD), counts + 3 * tensor
    if tl.program_id(0) == 0:
        tl.store(found + (1 - turn) * FINDINGS + tl.arange(0, 4), 0, tl.arange(0, 4) < FINDINGS)
        tl.store(found + SURVEYED, 1 - turn)
        tl.store(skipped, tl.load(skipped) + bad)
    if bad == 0:
        scale, steps = _scale(found + turn * FINDINGS), tl.load(counts)
        kept, lr = tl.load(own + KEPT).to(tl.float32), tl.load(own + LR).to(tl.float32)
        _count(row, counts, HAS_MOMENTS)
        std = tl.load(own + SIGMA).to(tl.float32)
        if tl.load(own + ADAPTS) > 0:
            std = _adapted_std(row, own, counts, levels + tensor, squares)
        correction = _correction(own + UTILITY_DECAY, steps).to(tl.float32)
        if HAS_MOMENTS:
            mean_factor, root_factor, eps = _factors(own, tl.load(counts + 1))
        a = tl.zeros([LANES], tl.float32)
        b, c, d = a, a, a
        if std > 0:
            a, b, c, d = _normal(row, block, steps)
        draws = (a, b, c, d)
        for quarter in tl.static_range(4):
            places = block * BLOCK + quarter * LANES + tl.arange(0, LANES)
            mask = places < tl.load(row + SIZE)
            direction = _bounded(_wide(row, GRADIENT, places, mask))
            utility, first, second = _averages(row, own, places, mask, direction, HAS_MOMENTS)
            tl.store(tl.load(row + UTILITY).to(FLOATS) + places, utility, mask)
            if HAS_MOMENTS:
                tl.store(tl.load(row + FIRST_MOMENT).to(FLOATS) + places, first, mask)
                tl.store(tl.load(row + SECOND_MOMENT).to(FLOATS) + places, second, mask)
                direction = _direction(first, second, mean_factor, root_factor, eps)
            direction = _bounded(direction + draws[quarter] * std)
            share = 1.0 / (1.0 + tl.exp(tl.div_rn(tl.div_rn(utility, correction), scale)))
            _write(row, places, mask, _wide(row, PARAMETER, places, mask) * kept - lr * (direction * share))
