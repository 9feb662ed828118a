"""Utility of a weight, the protection from change that it earns, and the step of UPGD in torch.

Source: Elsayed and Mahmood, "Addressing Loss of Plasticity and Catastrophic Forgetting in Continual Learning",
ICLR 2024, with the first-order utility. The compiled loops of :mod:`rlcore.optim.upgd_kernel` do the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from numbers import Integral, Real
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch import Tensor

from rlcore.errors import SettingError, StateError
from rlcore.optim import noise
from rlcore.optim.transfers import on_host
from rlcore.state.tree import FREE, STEPS, Rule, fit


@dataclass(frozen=True)
class UtilityExtremes:
    """The sums and extremes over all utilities of one step that the gate uses.

    :param maximum: max u, 0-dimensional or a number
    :param maximum_magnitude: max |u|, at least 0, likewise
    """

    maximum: Tensor | float
    maximum_magnitude: Tensor | float


def bounded(values: Tensor) -> Tensor:
    """Clamp to a quarter of the dtype's range, so that an average, its bias correction or a sum of two stays finite.

    :param values: any shape, without NaN; infinities become the bound
    """
    limit = torch.finfo(values.dtype).max / 4
    return values.clamp(-limit, limit)


def bias_correction(decay: float, steps: int | Tensor) -> float | Tensor:
    """Sum of the weights that an average started at zero has given out after ``steps`` steps."""
    return 1.0 - float(decay) ** (steps.double() if isinstance(steps, Tensor) else steps)


def weight_utility(gradient: Tensor, parameter: Tensor) -> Tensor:
    """First-order utility -g * p: the estimated rise of the loss if the weight were set to zero.

    :param gradient: any shape, finite
    :param parameter: the same shape, finite
    :return: the same shape, finite
    """
    return bounded(-gradient * parameter)


def utility_extremes(utilities: Sequence[Tensor]) -> UtilityExtremes:
    """Extremes over all tensors together, on the device of the first and in the widest of their dtypes.

    :param utilities: at least one tensor, each of any shape with at least one element, finite
    """
    lows, highs = zip(*(torch.aminmax(utility) for utility in utilities), strict=True)
    low, high = gather(lows).amin(), gather(highs).amax()
    return UtilityExtremes(maximum=high, maximum_magnitude=torch.maximum(high, -low))


def joint_extremes(extremes: Sequence[UtilityExtremes]) -> UtilityExtremes:
    """Extremes over all tensors together.

    :param extremes: those of each tensor, at least one
    """
    if len(extremes) == 1:
        return extremes[0]
    maxima = gather([torch.as_tensor(each.maximum) for each in extremes])
    magnitudes = gather([torch.as_tensor(each.maximum_magnitude) for each in extremes])
    return UtilityExtremes(maximum=maxima.amax(), maximum_magnitude=magnitudes.amax())


def gather(scalars: Sequence[Tensor]) -> Tensor:
    """Stack 0-dimensional tensors of any device on the device of the first; shape (len(scalars),)."""
    device = scalars[0].device
    return torch.stack([scalar if scalar.device == device else scalar.to(device) for scalar in scalars])


def utility_scale(extremes: UtilityExtremes) -> Tensor | float:
    """Positive divisor that keeps the order of the utilities: max u, or max |u| where max u <= 0, or 1 if all are 0.

    The published rule divides by max u always: 0/0 where it is 0, and the reverse order where it is negative.
    """
    maximum, magnitude = extremes.maximum, extremes.maximum_magnitude
    if isinstance(maximum, Tensor) and isinstance(magnitude, Tensor):
        return torch.where(maximum > 0, maximum, torch.where(magnitude > 0, magnitude, 1.0))
    return maximum if maximum > 0 else magnitude if magnitude > 0 else 1.0


def gate(utility: Tensor, scale: Tensor | float) -> Tensor:
    """Protection s = sigmoid(u / scale); a weight is changed by the share 1 - s of its step.

    :param utility: any shape, finite
    :param scale: positive; a number, or 0-dimensional on any device
    :return: the shape and dtype of ``utility``, values in [0, 1], never falling where the utility rises
    """
    divisor = torch.as_tensor(scale, device=utility.device)
    return torch.sigmoid(utility.to(torch.promote_types(utility.dtype, divisor.dtype)) / divisor).to(utility.dtype)


def root_mean_square(values: Tensor) -> Tensor:
    """sqrt(mean(x^2)), 0-dimensional; scaled by max |x| so that the squares neither overflow nor vanish.

    :param values: any shape with at least one element, finite
    """
    scale = values.abs().amax().clamp(min=torch.finfo(values.dtype).tiny)
    norm: Tensor = torch.linalg.vector_norm(values / scale)
    return norm / math.sqrt(values.numel()) * scale


Group: TypeAlias = dict[str, Any]
Scalar: TypeAlias = float | Tensor
Averages: TypeAlias = Mapping[str, tuple[str, ...]]
"""Counter -> the averages that it counts; one that is missing starts fresh with a counter of its own."""

NOISE_AVERAGES: Final[Averages] = {"noise_step": ("direction_rms",)}


_FLOAT32: Final = torch.finfo(torch.float32)
_DECAY: Final = (0.0, math.nextafter(1.0, 0.0), "a number in [0, 1)")
_SIZE: Final = (0.0, _FLOAT32.max, "a finite number of at least 0")
_RANGES: Final = {
    **dict.fromkeys(("lr", "weight_decay", "sigma", "min_noise_std"), _SIZE),
    **dict.fromkeys(("beta_utility", "noise_beta", "betas"), _DECAY),
    "eps": (_FLOAT32.tiny, _FLOAT32.max, f"a finite number of at least {_FLOAT32.tiny:.2g}"),
    "seed": (0, 2**64 - 1, "a whole number in [0, 2**64)"),
    "adaptive_noise": (0, 1, "True or False"),
}


def checked(name: str, where: str, value: Any) -> Any:
    """Return a setting as a plain Python value.

    :raises SettingError: the value cannot be used; the error names ``where``
    """
    low, high, wanted = _RANGES[name]
    kind: Any = {"seed": Integral, "adaptive_noise": bool}.get(name, Real)
    values = value if name == "betas" and isinstance(value, tuple | list) else [value]
    fits = [isinstance(x, kind) and isinstance(x, bool) == (kind is bool) and low <= x <= high for x in values]
    if not all(fits) or len(fits) != 1 + (name == "betas"):
        raise SettingError(where, f"{where}={value!r}: the optimizer cannot make steps with it. Give {wanted}.")
    plain = {"seed": int, "adaptive_noise": bool}.get(name, float)
    return tuple(map(plain, values)) if name == "betas" else plain(value)


def state_dtype(parameter: Tensor) -> torch.dtype:
    """float64 for float64 parameters, else float32: an average with decay 0.999 does not move in bfloat16."""
    return torch.float64 if parameter.dtype == torch.float64 else torch.float32


class Coefficients(NamedTuple):
    """The scalars of one parameter's step, in the order of the kernel; tensors where only a device has the counter.

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
    """One parameter that has a gradient in this step, and its step by plain torch.

    :param index: of the parameter, counted through all groups
    :param taken: whether the step changes anything; 0-dimensional where only a device knows
    """

    parameter: Tensor
    gradient: Tensor
    group: Group
    state: dict[str, Any]
    index: int
    taken: Tensor | bool = True

    def count(self, counters: Iterable[str]) -> None:
        """Count one step, if it is taken."""
        for counter in counters:
            self.state[counter] = self.state[counter] + self.taken

    def move(self, name: str, value: Tensor, weight: float) -> None:
        """Move an average towards a value, if the step is taken; both are bounded, so their difference is finite."""
        average = self.state[name]
        average.copy_(self._if_taken(average.lerp(value, weight), average))

    def average(self, c: Coefficients) -> UtilityExtremes:
        """Move all averages one step; return the extremes of the corrected utility."""
        gradient = self._gradient()
        self.move("utility", weight_utility(gradient, self._wide(self.parameter)), c.utility_weight)
        if "first_moment" in self.state:
            self.move("first_moment", gradient, c.first_weight)
            self.move("second_moment", bounded(gradient * gradient), c.second_weight)
        return utility_extremes([self._utility(c)])

    def direction(self, c: Coefficients) -> Tensor:
        """The direction d of this step."""
        if "first_moment" not in self.state:
            return self._gradient()
        root = self.state["second_moment"].sqrt() * self._wide(c.root_factor) + c.eps
        return bounded(self.state["first_moment"] / root * self._wide(c.mean_factor))

    def change(self, c: Coefficients, direction: Tensor, scale: Scalar) -> None:
        """Change the parameter.

        :param direction: with its noise
        :param scale: divisor of the corrected utilities
        """
        parameter, share = self._wide(self.parameter), 1 - gate(self._utility(c), scale)
        changed = parameter * c.kept - c.lr * (direction * share)
        self.parameter.copy_(self._if_taken(changed, parameter))

    def _gradient(self) -> Tensor:
        return bounded(self._wide(self.gradient))

    def _utility(self, c: Coefficients) -> Tensor:
        utility: Tensor = self.state["utility"] / self._wide(c.correction)
        return utility

    def _wide(self, value: Any) -> Any:
        """Return a number, or a tensor of one, in the precision of the state, so that it widens no other tensor."""
        return value.to(state_dtype(self.parameter)) if isinstance(value, Tensor) else value

    def _if_taken(self, new: Tensor, old: Tensor) -> Tensor:
        return new if isinstance(self.taken, bool) else torch.where(self.taken, new, old)


def noises_of(updates: Sequence[Update]) -> Iterator[Tensor]:
    """Draw standard normal noise for each parameter, in one draw for all of a group on a device."""

    def place(each: Update) -> tuple[int, str]:
        on_cpu = each.parameter.is_cpu
        return (each.index, "cpu") if on_cpu else (id(each.group), str(each.parameter.device))

    for _, batch in groupby(updates, place):
        own = list(batch)
        sizes, steps = [each.parameter.numel() for each in own], [each.state["step"] for each in own]
        indices, seed = [each.index for each in own], own[0].group["seed"]
        yield from noise.normal(sizes, indices, steps, seed, own[0].parameter.device)


def initial_average(name: str, parameter: Tensor) -> Tensor:
    """Return an average that starts at zero; ``direction_rms`` is 0-dimensional."""
    shape = () if name == "direction_rms" else parameter.shape
    return torch.zeros(shape, dtype=state_dtype(parameter), device=parameter.device)


def read_state(saved: dict[str, Any], groups: Sequence[Group], averages: Averages) -> dict[Tensor, dict[str, Any]]:
    """Return copies of the saved averages of each parameter, in the precision of the state.

    :raises StateError: for the first thing that does not fit
    """
    record = fit(saved, {"state": {}, "param_groups": []}, "the saved optimizer", {"state": FREE, "param_groups": FREE})
    sizes, wanted = ([len(group["params"]) for group in each] for each in (record["param_groups"], groups))
    if sizes != wanted:
        raise StateError(
            f"the saved state has groups of {sizes} parameters, the optimizer has {wanted}: their averages cannot be "
            "matched. Build the optimizer with the groups it was saved with."
        )
    names = [name for counter, own in averages.items() for name in (counter, *own)]
    rules = {name: replace(STEPS, may_lack=True) if name in averages else Rule(may_lack=True) for name in names}
    read: dict[Tensor, dict[str, Any]] = {}
    keys = [key for group in record["param_groups"] for key in group["params"]]
    parameters = [parameter for group in groups for parameter in group["params"]]
    for key, parameter in zip(keys, parameters, strict=True):
        if key not in record["state"]:
            continue
        like = {name: 0 if name in averages else initial_average(name, parameter) for name in names}
        entries = {name: value for name, value in record["state"][key].items() if name in rules}
        read[parameter] = {
            name: value.to(parameter.device, copy=True) if isinstance(value, Tensor) else value
            for name, value in fit(entries, like, f"state[{key}]", rules).items()
        }
    return read


def plain_counters(states: Mapping[Any, Group], counters: Iterable[str]) -> dict[Any, Group]:
    """Return copies of the states of parameters whose counters are plain integers; waits once for those on a device."""
    plain = {key: dict(state) for key, state in states.items()}
    found = [(own, name) for own in plain.values() for name in counters if isinstance(own.get(name), Tensor)]
    for (own, name), count in zip(found, on_host([own[name] for own, name in found]), strict=True):
        own[name] = int(count)
    return plain


def draw_seed() -> int:
    return int(torch.randint(2**63 - 1, (), device="cpu"))


def noise_to_signal(optimizer: torch.optim.Optimizer) -> float | None:
    """Root mean square of the last step's noise, as its standard deviation has it, over that of the direction d.

    Both are taken over all elements that had a gradient. They are read from the state and the gradients that the step
    left behind, so the step itself costs nothing more.

    :return: at least 0; None for an optimizer of another kind, before its first step under the present settings, and
        where d is 0 throughout
    """
    own: Any = optimizer
    if not hasattr(own, "state_names"):
        return None
    noise, signals = 0.0, []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            if parameter.grad is not None and state:
                if not state.keys() >= own.state_names(group):
                    return None
                noise += parameter.numel() * _noise_std(state, group) ** 2
                update = Update(parameter, parameter.grad, group, state, 0)
                signals.append(update.direction(own._coefficients(update)).double().square().sum())
    signal = float(sum(on_host(signals)))
    return math.sqrt(noise / signal) if signal > 0 else None


def _noise_std(state: dict[str, Any], group: dict[str, Any]) -> float:
    """Standard deviation of the last step's noise."""
    sigma = float(group["sigma"])
    if sigma == 0.0 or not group["adaptive_noise"]:
        return sigma
    rms = float(state["direction_rms"]) / bias_correction(group["noise_beta"], int(state["noise_step"]))
    return float(max(sigma * rms, group["min_noise_std"]))
