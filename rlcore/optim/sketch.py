"""The elementwise variance of gradients, estimated from few elements of each tensor."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlcore.errors import StateError
from rlcore.optim.gradient_moments import LARGEST, Floats, Gradients, Integers, Moments
from rlcore.optim.state_reading import read_entries, read_tensor, show
from rlcore.optim.tensor_statistics import Number, TensorLayout, read_list, snapshot
from rlcore.types import StateDict, StateValue

# Elements that the sketch watches in each tensor: the estimate's standard error is then an eighth of the spread of the
# variances between elements.
SKETCH_SIZE: Final = 64


class SketchEstimator:
    """``E`` estimated without bias from at most ``SKETCH_SIZE`` elements of each tensor, drawn once: O(1) memory.

    Every element is equally likely to be drawn, so the mean over all draws is E; a tensor of no more elements than
    that gives E itself. As a fraction of ``E_t[mean_s g^2]``, which is taken over all elements, it can exceed 1 where
    the gradient is concentrated in few elements and these are drawn.

    There is one draw for a whole training, and the error of noise that lies in few elements is as large as can be: it
    is missed for good, or counted as many times over as the tensor has elements for each one drawn. For such gradients
    take another estimator.

    The draw depends on the position and the size of the tensor alone, so that two scalers of one network watch the
    same elements; it is part of the state.
    """

    def __init__(self, layouts: Sequence[TensorLayout]) -> None:
        sizes = [math.prod(layout.shape) for layout in layouts]
        self._watch(sizes, [_drawn_coordinates(position, size) for position, size in enumerate(sizes)])

    def _watch(self, sizes: Sequence[int], coordinates: Sequence[Integers]) -> None:
        """Start fresh with these elements of each flattened tensor; all that are watched stand one after another."""
        self._sizes, self._coordinates = list(sizes), list(coordinates)
        self._counts = np.array([len(drawn) for drawn in coordinates], dtype=np.int64)
        self._ends = np.cumsum(self._counts)
        self._means, self._variances = np.zeros(self._counts.sum()), np.zeros(self._counts.sum())
        self._places = _places(self._sizes, self._coordinates)

    def measure(self, positions: Integers, gradients: Gradients) -> Floats:
        """Deviations from the means so far, ``[elements watched in these tensors]``."""
        where, coordinates, places = self._of(positions)
        elements = gradients.elements(coordinates, places).clip(-LARGEST, LARGEST)
        deltas: Floats = elements - self._means[where]
        return deltas

    def commit(self, positions: Integers, moments: Moments, measured: Floats, weights: Floats) -> None:  # noqa: ARG002
        where, _, _ = self._of(positions)
        repeated = np.repeat(weights, self._counts[positions])
        self._means[where] += repeated * measured
        self._variances[where] = (1.0 - repeated) * (self._variances[where] + repeated * np.square(measured))

    def _of(self, positions: Integers) -> tuple[slice | Integers, Sequence[Integers], Integers]:
        """Where the elements of these tensors stand among the watched ones; which they are; where in all of them."""
        if len(positions) == len(self._sizes):
            return slice(None), self._coordinates, self._places
        coordinates = [self._coordinates[position] for position in positions]
        ranges = [np.arange(self._ends[i] - self._counts[i], self._ends[i]) for i in positions]
        return _joined(ranges), coordinates, _places([self._sizes[i] for i in positions], coordinates)

    def variance(self) -> Floats:
        occupied = self._counts > 0
        means = np.zeros(len(self._counts))
        sums = np.add.reduceat(self._variances, (self._ends - self._counts)[occupied])
        means[occupied] = sums / self._counts[occupied]
        return means

    def relinked(self, layouts: Sequence[TensorLayout], kept: Sequence[int]) -> Self:
        estimator = type(self)(layouts)
        coordinates, means, variances = (estimator._split(x) for x in estimator._flat())
        for new, old in zip((coordinates, means, variances), self._flat(), strict=True):
            parts = self._split(old)
            for position in kept:
                new[position] = parts[position]
        estimator._watch(estimator._sizes, coordinates)
        estimator._means, estimator._variances = _joined(means), _joined(variances)
        return estimator

    def state_dict(self) -> StateDict:
        names = ("coordinates", "means", "variances")
        return {name: [snapshot(part) for part in self._split(x)] for name, x in zip(names, self._flat(), strict=True)}

    def load_state_dict(self, state: StateValue) -> None:
        entries = read_entries(state, ("coordinates", "means", "variances"), "state of the estimator 'sketch'")
        coordinates = _read_coordinates(entries["coordinates"], self._sizes)
        sizes = [len(drawn) for drawn in coordinates]
        means = _read_sketched(entries["means"], sizes, "means of the estimator")
        variances = _read_sketched(entries["variances"], sizes, "variances of the estimator", minimum=0.0)
        self._watch(self._sizes, coordinates)
        self._means, self._variances = means, variances

    def _flat(self) -> tuple[NDArray[Any], Floats, Floats]:
        return _joined(self._coordinates), self._means, self._variances

    def _split(self, values: NDArray[Number]) -> list[NDArray[Number]]:
        return np.split(values, self._ends[:-1])


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if len(parts) else np.zeros(0, dtype=np.int64)


def _places(sizes: Sequence[int], coordinates: Sequence[Integers]) -> Integers:
    """Where these elements of each tensor stand if all tensors follow one another."""
    offsets = np.cumsum([0, *sizes])
    return _joined([offset + drawn for offset, drawn in zip(offsets, coordinates, strict=False)])


def _drawn_coordinates(position: int, size: int) -> Integers:
    """Draw elements of a flattened tensor without replacement, int64 ``[min(size, SKETCH_SIZE)]``, rising."""
    # Python's generator draws from a range without listing it, so that a large tensor costs no more than a small one.
    generator = random.Random(f"{position} {size}")
    return np.array(sorted(generator.sample(range(size), min(size, SKETCH_SIZE))), dtype=np.int64)


def _read_coordinates(values: StateValue, sizes: Sequence[int]) -> list[Integers]:
    what = "coordinates of the estimator"
    pairs = zip(read_list(values, len(sizes), what), sizes, strict=True)
    return [_read_drawn(value, size, f"{what}, position {position}") for position, (value, size) in enumerate(pairs)]


def _read_drawn(value: StateValue, size: int, what: str) -> Integers:
    if not isinstance(value, Tensor):
        raise StateError(f"{what}: expected a {torch.int64} tensor, got {show(value)}; nothing was changed.")
    drawn = read_tensor(value, (value.numel(),), torch.int64, what, minimum=0)
    if bool((drawn >= size).any()) or bool((drawn.diff() <= 0).any()) or (len(drawn) == 0) != (size == 0):
        raise StateError(
            f"{what}: expected rising numbers below {size}, the size of the tensor, and at least one of a tensor that "
            f"is not empty; got {drawn[:8].tolist()}{'...' if len(drawn) > 8 else ''}. Nothing was changed."
        )
    return drawn.cpu().numpy()


def _read_sketched(values: StateValue, sizes: Sequence[int], what: str, minimum: float | None = None) -> Floats:
    """Read statistics of the elements that are watched in each tensor, and join them."""
    pairs = zip(read_list(values, len(sizes), what), sizes, strict=True)
    parts = [
        read_tensor(value, (size,), None, f"{what}, position {position}", minimum).double().cpu().numpy()
        for position, (value, size) in enumerate(pairs)
    ]
    return _joined(parts).astype(np.float64)
