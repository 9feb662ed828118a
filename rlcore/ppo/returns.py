"""The scale of the returns: critics learn z, and raw values are mean + std * z (van Hasselt et al. 2016, "Learning
values across many orders of magnitude", arXiv:1602.07714, called PopArt below).

Rollout, advantages, value clipping and logged values are in raw units; only the value loss is in units of z.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlcore.errors import NonFiniteReturnError, StateError
from rlcore.state import tree
from rlcore.types import StateDict

Rule = Literal["zero_lag", "snapshot"]

LARGEST = float(np.finfo(np.float32).max)
"""The largest return that a rollout holds; larger statistics could not be squared."""

RULES = dict.fromkeys(("mean", "mean_snapshot"), tree.Rule(-LARGEST, LARGEST)) | {
    "weight": tree.Rule(0.0, 1.0),
    "variance": tree.Rule(0.0, LARGEST**2),
    "std_snapshot": tree.Rule(sys.float_info.min, LARGEST),
}
"""The ranges of a saved state."""


class Moments(NamedTuple):
    """Mean and standard deviation (> 0), in units of the return."""

    mean: float
    std: float


class ReturnScale:
    """Returns as they are: mean 0 and standard deviation 1."""

    snapshot = Moments(0.0, 1.0)
    """The moments that values and targets are scaled with now."""

    @property
    def statistics(self) -> Moments:
        """The moments measured so far."""
        return self.snapshot

    def normalise(self, returns: Tensor) -> Tensor:
        """Return z of raw returns or values; any shape."""
        return (returns - self.snapshot.mean) / self.snapshot.std

    def denormalise(self, values: Tensor) -> Tensor:
        """Return raw values of z; any shape."""
        return self.snapshot.mean + self.snapshot.std * values

    def before_rollout(self) -> None:
        """Called before each rollout."""

    def before_update(self, returns: NDArray[Any], output_layers: Iterable[nn.Linear]) -> float:  # noqa: ARG002
        """Called before each update.

        :param returns: the returns of the rollout, any shape
        :param output_layers: the layer of every critic that puts out z
        :return: the factor that the weights of these layers were multiplied by
        """
        return 1.0

    def after_update(self, returns: NDArray[Any]) -> None:
        """Called after each update."""

    def state_dict(self) -> StateDict | None:
        """Return the statistics; None where nothing is measured."""
        return None

    def load_state_dict(self, state: StateDict) -> None:  # noqa: ARG002
        """Restore the statistics, or raise StateError and change nothing."""
        raise StateError("return_scale_state is given, and return_scale=None; pass exact_match=False to go without")

    def reset(self) -> None:
        """Forget the statistics."""


class MeasuredReturnScale(ReturnScale):
    """Exponential averages over rollouts of the mean and variance of their returns, bias-corrected.

    Every rollout weighs in proportion to decay^(age), so that the first one counts fully; mean and variance are those
    of this mixture, in float64. Before the first rollout: mean 0, variance 1.

    This class has no lag: a rollout is measured before it is trained on, and the critics are corrected so that no raw
    value changes. The optimizer's moments of the corrected layers stay, as gradients of the loss in units of z keep
    their magnitude. Utilities, of gradients times weights, do not: multiply them by the factor that is returned.

    :param decay: in [0, 1); 0 for the last rollout alone
    :param min_std: floor of the standard deviation, > 0, so that constant returns stay finite
    """

    def __init__(self, decay: float, min_std: float) -> None:
        self.decay = decay
        self.min_std = min_std
        self.reset()

    @property
    def statistics(self) -> Moments:
        return Moments(self._mean, max(math.sqrt(self._variance), self.min_std))

    def update(self, returns: NDArray[Any]) -> None:
        """Measure the returns of one rollout; the snapshot stays.

        :param returns: any shape, at least one, finite
        """
        exact = returns.astype(np.float64)
        mean, variance = float(exact.mean()), float(exact.var())
        self._weight = self.decay * self._weight + 1.0 - self.decay
        share = (1.0 - self.decay) / self._weight
        between = share * (1.0 - share) * (mean - self._mean) ** 2
        self._variance = (1.0 - share) * self._variance + share * variance + between
        self._mean = (1.0 - share) * self._mean + share * mean

    def activate(self) -> None:
        """Scale with the present statistics from now on."""
        self.snapshot = self.statistics

    def before_update(self, returns: NDArray[Any], output_layers: Iterable[nn.Linear]) -> float:
        before = self.snapshot
        self.update(returns)
        self.activate()
        for layer in output_layers:
            preserve_outputs(layer, before, self.snapshot)
        return before.std / self.snapshot.std

    def state_dict(self) -> StateDict:
        statistics: StateDict = {"weight": self._weight, "mean": self._mean, "variance": self._variance}
        return statistics | {"mean_snapshot": self.snapshot.mean, "std_snapshot": self.snapshot.std}

    def load_state_dict(self, state: StateDict) -> None:
        fitted = tree.fit(state, self.state_dict(), "return_scale_state", RULES)
        self._weight, self._mean, self._variance = (fitted[name] for name in ("weight", "mean", "variance"))
        self.snapshot = Moments(fitted["mean_snapshot"], fitted["std_snapshot"])

    def reset(self) -> None:
        self._weight, self._mean, self._variance = 0.0, 0.0, 1.0
        self.activate()


class SnapshotReturnScale(MeasuredReturnScale):
    """The audited system's order: a rollout is trained on with the scale of the rollout before it.

    The snapshot is taken before each rollout and each update, the rollout measured after the update, and nothing is
    corrected, so that raw values jump whenever a snapshot is taken.
    """

    def before_rollout(self) -> None:
        self.activate()

    def before_update(self, returns: NDArray[Any], output_layers: Iterable[nn.Linear]) -> float:  # noqa: ARG002
        self.activate()
        return 1.0

    def after_update(self, returns: NDArray[Any]) -> None:
        self.update(returns)


def make_return_scale(rule: Rule | None, decay: float, min_std: float) -> ReturnScale:
    """Return the scale that the setting ``return_scale`` names."""
    if rule is None:
        return ReturnScale()
    return {"zero_lag": MeasuredReturnScale, "snapshot": SnapshotReturnScale}[rule](decay, min_std)


def preserve_outputs(layer: nn.Linear, before: Moments, after: Moments) -> None:
    """Change a linear layer so that its raw outputs under ``after`` are those under ``before``.

    W' = sigma / sigma' W and b' = (sigma b + mu - mu') / sigma' (PopArt, proposition 1), in float64.
    """
    scale, shift = before.std / after.std, (before.mean - after.mean) / after.std
    with torch.no_grad():
        layer.weight.copy_(scale * layer.weight.double())
        layer.bias.copy_(scale * layer.bias.double() + shift)


def require_finite(returns: NDArray[Any]) -> None:
    """
    :param returns: the returns of a rollout, any shape
    :raises NonFiniteReturnError: for NaN or infinity
    """
    finite = np.isfinite(returns)
    if not finite.all():
        raise NonFiniteReturnError(
            f"{int((~finite).sum())} of {returns.size} returns of the rollout are NaN or infinite; look at the rewards "
            "and observations of the environment (VecCheckNan finds the step). Nothing was changed."
        )
