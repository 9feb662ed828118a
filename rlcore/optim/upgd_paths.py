"""The two ways in which a step is computed: plain torch, and compiled loops for contiguous float32 on the CPU.

Both take the same scalars from the optimizer and draw the same noise; they differ in rounding alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlcore.errors import NonFiniteGradientError, StateError
from rlcore.functional import utility as functional
from rlcore.functional.utility import UtilityExtremes
from rlcore.optim import memory, noise
from rlcore.optim.upgd_state import state_dtype

Group: TypeAlias = dict[str, Any]
State: TypeAlias = dict[str, Any]
Scalar: TypeAlias = float | Tensor

# Bounds the memory of intermediate results; larger parameters are computed one by one.
LARGEST_PART: Final = 2**22


class Coefficients(NamedTuple):
    """The scalars of a group at a number of steps; tensors where only a device knows that number.

    :param kept: share of a parameter that weight decay leaves, 1 - lr * weight_decay
    :param correction: divides the average of the utility
    :param utility_weight: of the newest value in the average of the utility; the next two in those of the moments
    :param mean_factor: d = mean_factor * m / (root_factor * sqrt(v) + eps)
    """

    kept: float
    lr: float
    correction: Scalar
    utility_weight: float
    first_weight: float = 1.0
    second_weight: float = 1.0
    mean_factor: Scalar = 1.0
    root_factor: Scalar = 0.0
    eps: float = 1.0


@dataclass(slots=True)
class Update:
    """One parameter that has a gradient in this step.

    :param index: of the parameter, counted through all groups
    :param address: of the gradient, if it is float32 and lies row by row on the CPU; else 0
    :param taken: whether the step changes anything; 0-dimensional where only a device knows
    """

    parameter: Tensor
    gradient: Tensor
    group: Group
    state: State
    index: int
    address: int
    taken: Tensor | bool = True

    def advance(self, counters: Iterable[str], counted: dict[Any, Any] | None = None) -> None:
        """Count one step. Counters on a device are replaced and never written to, as parameters share them.

        :param counted: what the other parameters have counted in this step, to which this one adds
        """
        known = {} if counted is None else counted
        for counter in counters:
            before = self.state[counter]
            key = _mark(before), id(self.taken)
            if key not in known:
                known[key] = before, before + self.taken  # what has been freed could give its id to another counter
            self.state[counter] = known[key][1]

    def average(self, name: str, value: Tensor, weight: float) -> None:
        """Move an average towards a value; both are bounded, so their difference is finite."""
        average = self.state[name]
        average.copy_(self.if_taken(average.lerp(value, weight), average))

    def if_taken(self, new: Tensor, old: Tensor) -> Tensor:
        """What holds after the step."""
        return new if isinstance(self.taken, bool) else torch.where(self.taken, new, old)


class TorchPart:
    """Parameters of one dtype, any layout, on one device, of one group and after one number of steps, as one vector.

    On a device an operator costs as much for a million elements as for one.

    :param updates: at least one, of one kind as :func:`_kind` has it; their counters have counted this step
    """

    def __init__(self, updates: Sequence[Update], coefficients: Coefficients, *, has_moments: bool) -> None:
        self.updates, self._has_moments = updates, has_moments
        self._sizes = [update.parameter.numel() for update in updates]
        self._dtype = state_dtype(updates[0].parameter)
        self._gradient = functional.bounded(_flattened([update.gradient for update in updates]).to(self._dtype))
        self._coefficients = Coefficients._make(_in_dtype(each, self._dtype) for each in coefficients)

    def average(self) -> UtilityExtremes:
        """Move all averages one step; return the extremes of the corrected utilities."""
        gradient, c = self._gradient, self._coefficients
        utility = functional.weight_utility(gradient, self._parameter())
        self._move("utility", utility, c.utility_weight)
        if self._has_moments:
            self._move("first_moment", gradient, c.first_weight)
            self._move("second_moment", functional.bounded(gradient * gradient), c.second_weight)
        return functional.utility_extremes([self._utility()])

    def direction_rms(self) -> Sequence[Tensor]:
        """Root mean square of the direction of each tensor, 0-dimensional."""
        return [functional.root_mean_square(each) for each in torch.split(self._direction(), self._sizes)]

    def change(self, stds: Sequence[Scalar], scale: Scalar) -> None:
        """Change the parameters.

        :param stds: of the noise of each tensor
        :param scale: divisor of the corrected utilities
        """
        first, c, parameter = self.updates[0], self._coefficients, self._parameter()
        direction = self._direction()
        if first.group["sigma"] > 0:
            direction = functional.bounded(direction + self._noise() * self._of_elements(stds))
        share = 1 - functional.gate(self._utility(), scale)
        changed = parameter * c.kept - c.lr * (direction * share)
        self._write([update.parameter for update in self.updates], first.if_taken(changed, parameter))

    def _move(self, name: str, value: Tensor, weight: float) -> None:
        """As :meth:`Update.average`, of all."""
        average = self._joined(name)
        moved = self.updates[0].if_taken(average.lerp(value, weight), average)
        self._write([update.state[name] for update in self.updates], moved)

    def _write(self, tensors: list[Tensor], values: Tensor) -> None:
        torch._foreach_copy_(tensors, torch._C._nn.unflatten_dense_tensors(values, tensors))

    def _parameter(self) -> Tensor:
        return _flattened([update.parameter for update in self.updates]).to(self._dtype)

    def _joined(self, name: str) -> Tensor:
        return _flattened([update.state[name] for update in self.updates])

    def _utility(self) -> Tensor:
        return self._joined("utility") / self._coefficients.correction

    def _direction(self) -> Tensor:
        if not self._has_moments:
            return self._gradient
        c = self._coefficients
        root = self._joined("second_moment").sqrt() * c.root_factor + c.eps
        return functional.bounded(self._joined("first_moment") / root * c.mean_factor)

    def _noise(self) -> Tensor:
        first, places = self.updates[0], [update.index for update in self.updates]
        step, seed = first.state["step"], first.group["seed"]
        return noise.normal(self._sizes, places, step, seed, self._gradient.device).to(self._dtype)

    def _of_elements(self, scalars: Sequence[Scalar]) -> Scalar:
        """One number of each tensor as one of each element; numbers that no device has are those of the group."""
        tensors = [_in_dtype(scalar, self._dtype) for scalar in scalars if isinstance(scalar, Tensor)]
        if not tensors:
            return scalars[0]
        return torch.cat([each.expand(size) for each, size in zip(tensors, self._sizes, strict=True)])


def _flattened(tensors: list[Tensor]) -> Tensor:
    """The elements of all in one dimension, row by row. Not to be written to: a single tensor can share its memory."""
    flat: Tensor = torch._C._nn.flatten_dense_tensors(tensors)
    return flat


def _in_dtype(scalar: Any, dtype: torch.dtype) -> Any:
    """Tensors without dimensions would otherwise widen one another."""
    return scalar.to(dtype) if isinstance(scalar, Tensor) else scalar


class CompiledPart:
    """All contiguous float32 parameters on the CPU, each method in one call of the kernel; as :class:`TorchPart`.

    :param table: of the kernel; this step's columns are still to be filled
    """

    def __init__(
        self,
        updates: Sequence[Update],
        table: NDArray[np.int64],
        coefficients_of: Callable[[Update], Coefficients],
        *,
        has_moments: bool,
    ) -> None:
        from rlcore.optim import upgd_kernel  # imports numba, which only the first step needs

        self.updates, self._table, self._kernel, self._has_moments = updates, table, upgd_kernel, has_moments
        kinds = [(id(each.group), each.state["step"], each.state.get("moment_step")) for each in updates]
        first = dict(zip(reversed(kinds), reversed(updates), strict=True))
        rows = {kind: row for row, kind in enumerate(first)}
        table[:, upgd_kernel.GRADIENT] = [update.address for update in updates]
        if not has_moments:
            table[:, upgd_kernel.FIRST_MOMENT] = table[:, upgd_kernel.SECOND_MOMENT] = table[:, upgd_kernel.GRADIENT]
        table[:, upgd_kernel.COEFFICIENTS] = [rows[kind] for kind in kinds]
        self._coefficients = np.array([coefficients_of(update) for update in first.values()], dtype=np.float32)
        self._keys = np.array([(each.state["step"], each.group["seed"]) for each in first.values()], dtype=np.uint64)

    def average(self) -> UtilityExtremes:
        low, high = self._kernel.average(self._table, self._coefficients, self._has_moments)
        return UtilityExtremes(maximum=high, maximum_magnitude=max(high, -low))

    def direction_rms(self) -> Sequence[Tensor]:
        means = np.empty(len(self.updates))
        self._kernel.mean_squares(self._table, self._coefficients, means)
        return torch.from_numpy(np.sqrt(means).astype(np.float32)).unbind()

    def change(self, stds: Sequence[Scalar], scale: Scalar) -> None:
        own = np.array(stds, dtype=np.float32)
        self._kernel.change(self._table, self._coefficients, self._keys, own, float(scale))
        # Autograd refuses to go back through a parameter that has changed since, if it is told.
        torch.autograd.graph.increment_version([update.parameter for update in self.updates])


Part: TypeAlias = TorchPart | CompiledPart


def _of_one_kind(updates: Sequence[Update]) -> list[list[Update]]:
    """Those of each kind together, in lists of at most ``LARGEST_PART`` elements of noise or one parameter.

    Parameters that share their memory are in different lists, as each goes on from what the one before has written.
    """
    lists: list[list[Update]] = []
    open_lists: dict[Any, tuple[list[Update], int]] = {}
    sharing: Counter[int] = Counter()
    for update in updates:
        place = update.parameter.data_ptr()
        kind, size = (*_kind(update), sharing[place]), noise.padded(update.parameter.numel())
        sharing[place] += 1
        members, total = open_lists.get(kind, ([], 0))
        if not members or total + size > LARGEST_PART:
            members, total = [], 0
            lists.append(members)
        members.append(update)
        open_lists[kind] = members, total + size
    return lists


def _kind(update: Update) -> tuple[Any, ...]:
    """What parameters must share to be computed as one."""
    counters = [_mark(update.state[name]) for name in ("step", "moment_step") if name in update.state]
    return id(update.group), update.parameter.device, update.parameter.dtype, id(update.taken), *counters


def _mark(counter: int | Tensor) -> tuple[Any, ...]:
    """Equal for counters that are known to be equal, without waiting for the device that has them."""
    return ("device", id(counter)) if isinstance(counter, Tensor) else ("host", counter)


class Paths:
    """Divides steps between the paths; caches the addresses of the tensors until one of them changes."""

    def __init__(self) -> None:
        self._mark: tuple[list[Any], ...] = ()
        self._tensors: list[Tensor] = []
        self._compiled: list[bool] = []
        self._table = np.empty((0, 8), np.int64)

    def parts(
        self, updates: Sequence[Update], coefficients_of: Callable[[Update], Coefficients], names: Sequence[str]
    ) -> list[Part]:
        """The parts of a step; a float64 parameter takes all to plain torch, as its utility scales the others'.

        :param names: of the averages that have the parameter's shape, the utility first
        """
        self._look(updates, names)
        pairs = list(zip(updates, self._compiled, strict=True))
        compiled = [update for update, is_compiled in pairs if is_compiled]
        plain = [update for update, is_compiled in pairs if not is_compiled]
        has_moments = len(names) > 1
        parts: list[Part] = [
            TorchPart(each, coefficients_of(each[0]), has_moments=has_moments) for each in _of_one_kind(plain)
        ]
        if compiled:
            parts.append(CompiledPart(compiled, self._table, coefficients_of, has_moments=has_moments))
        return parts

    def _look(self, updates: Sequence[Update], names: Sequence[str]) -> None:
        """Look at all memory again if any of it has changed its place, its form or its owner.

        Averages belong to the optimizer alone: another form would be another place.
        """
        parameters = [update.parameter for update in updates]
        tensors = parameters + [update.state[name] for name in names for update in updates]
        mark = (
            [*map(id, tensors)],
            [*map(Tensor.data_ptr, tensors)],
            [*map(Tensor.numel, parameters)],
            [*map(Tensor.is_contiguous, parameters)],
            [update.gradient.numel() for update in updates],
            [update.address > 0 for update in updates],
            [update.index for update in updates],
        )
        if mark != self._mark:
            self._mark, self._tensors = mark, tensors
            any_double = torch.float64 in {parameter.dtype for parameter in parameters}
            rows = [None if any_double else _row(update, names) for update in updates]
            self._compiled = [row is not None for row in rows]
            self._table = np.array([row for row in rows if row is not None], dtype=np.int64).reshape(-1, 8)


def is_finite(updates: Sequence[Update]) -> bool | Tensor:
    """Whether all gradients are finite: 0-dimensional on the first device where none lies on the CPU.

    :param updates: at least one
    """
    if not any(update.gradient.is_cpu for update in updates):
        return torch.nn.utils.get_total_norm([update.gradient for update in updates], math.inf).isfinite()
    if not all(update.address or update.gradient.isfinite().all() for update in updates):
        return False
    addresses = np.array([update.address for update in updates if update.address], np.int64)
    if not len(addresses):
        return True
    from rlcore.optim import upgd_kernel  # imports numba, which only the first step needs

    sizes = np.array([update.gradient.numel() for update in updates if update.address], np.int64)
    return bool(upgd_kernel.all_finite(addresses, sizes))


def non_finite(updates: Sequence[Update], groups: Sequence[Group]) -> NonFiniteGradientError:
    """The error for the first gradient that is not finite."""
    name = next(label(update, groups) for update in updates if not update.gradient.isfinite().all())
    return NonFiniteGradientError(
        name,
        f"the gradient of {name} holds NaN or infinity: through the global maximum of the utility it would reach every "
        "parameter. Nothing was changed; look at the loss and the inputs of this batch.",
    )


def require_shapes(updates: Sequence[Update], groups: Sequence[Group]) -> None:
    """Raise :class:`StateError` for the first gradient or average that has not the shape of its parameter.

    The averages of a parameter have one shape, so the utility stands for them.
    """
    for update in updates:
        shape = update.parameter.shape
        utility = update.state.get("utility")
        if update.gradient.shape != shape:
            raise _unlike("gradient", update.gradient, update, groups, "Set it to None and call backward() again.")
        if utility is not None and utility.shape != shape:
            remedy = "Build the optimizer again, which starts the averages fresh."
            raise _unlike("average of the utility", utility, update, groups, remedy)


def _unlike(what: str, tensor: Tensor, update: Update, groups: Sequence[Group], remedy: str) -> StateError:
    name, shape = label(update, groups), tuple(tensor.shape)
    return StateError(
        f"the {what} of {name} has the shape {shape}, so no step was made: the parameter has got other memory since. "
        + remedy
    )


def label(update: Update, groups: Sequence[Group]) -> str:
    """The name of a parameter, or its group, its index there and its shape."""
    number = next(number for number, group in enumerate(groups) if group is update.group)
    index = update.index - sum(len(group["params"]) for group in groups[:number])
    if names := update.group.get("param_names"):
        return str(names[index])
    return f"parameter {index} of group {number}, shape {tuple(update.parameter.shape)}"


def _row(update: Update, names: Sequence[str]) -> list[int] | None:
    """The row of the kernel's table, None if some memory is not as the kernel takes it."""
    averages = [update.state[name] for name in names]
    addresses = [memory.address(update.parameter), update.address, *map(memory.address, averages)]
    sizes = {update.parameter.numel(), update.gradient.numel(), *(average.numel() for average in averages)}
    if 0 in addresses or len(sizes) > 1:
        return None
    return [*addresses, *[0] * (5 - len(addresses)), *sizes, update.index, 0]
