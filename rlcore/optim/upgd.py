"""Utility-based perturbed gradient descent: UPGD and AdaptiveUPGD.

Source: Elsayed and Mahmood, "Addressing Loss of Plasticity and Catastrophic Forgetting in Continual Learning",
ICLR 2024 (global, first-order utility).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from numbers import Integral, Real
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from rlcore.errors import NonFiniteGradientError, ResumeWarning, SettingError, StateError
from rlcore.functional import utility as functional
from rlcore.functional.utility import UtilityExtremes, bias_correction
from rlcore.optim import noise
from rlcore.state.schema import describe
from rlcore.warn import warn_caller

Group: TypeAlias = dict[str, Any]
Scalar: TypeAlias = float | Tensor

NOISE_AVERAGES: Final[Mapping[str, tuple[str, ...]]] = {"noise_step": ("direction_rms",)}

_FLOAT32: Final = torch.finfo(torch.float32)
_RANGES: Final = {
    **dict.fromkeys(("lr", "weight_decay", "sigma", "min_noise_std"), (0.0, _FLOAT32.max)),
    **dict.fromkeys(("beta_utility", "noise_beta"), (0.0, math.nextafter(1.0, 0.0))),
    "eps": (_FLOAT32.tiny, math.inf),
}
_OTHERS: Final = {"adaptive_noise": "True or False", "seed": "a whole number in [0, 2**64)", "betas": "two numbers"}


def checked(name: str, where: str, value: Any) -> Any:
    """Return a setting as a plain Python value.

    :raises SettingError: the value cannot be used; the error names ``where``
    """
    if name == "betas" and isinstance(value, tuple | list) and len(value) == 2:
        return tuple(checked("beta_utility", where, each) for each in value)
    if name == "adaptive_noise" and isinstance(value, bool):
        return value
    low, high = _RANGES.get(name, (0, 2**64 - 1))
    kind = Integral if name == "seed" else Real
    is_number = name not in ("betas", "adaptive_noise") and isinstance(value, kind) and not isinstance(value, bool)
    if is_number and low <= value <= high and math.isfinite(value):
        return int(value) if name == "seed" else float(value)
    wanted = _OTHERS.get(name, f"a number from {low:.3g} to {high:.3g}" if high >= 1 else "a number in [0, 1)")
    raise SettingError(where, f"{where}={value!r}: the optimizer cannot make steps with it. Give {wanted}.")


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
        self.move("utility", functional.weight_utility(gradient, self._wide(self.parameter)), c.utility_weight)
        if "first_moment" in self.state:
            self.move("first_moment", gradient, c.first_weight)
            self.move("second_moment", functional.bounded(gradient * gradient), c.second_weight)
        return functional.utility_extremes([self._utility(c)])

    def direction(self, c: Coefficients) -> Tensor:
        """The direction d of this step."""
        if "first_moment" not in self.state:
            return self._gradient()
        root = self.state["second_moment"].sqrt() * self._wide(c.root_factor) + c.eps
        return functional.bounded(self.state["first_moment"] / root * self._wide(c.mean_factor))

    def change(self, c: Coefficients, direction: Tensor, scale: Scalar) -> None:
        """Change the parameter.

        :param direction: with its noise
        :param scale: divisor of the corrected utilities
        """
        parameter, share = self._wide(self.parameter), 1 - functional.gate(self._utility(c), scale)
        changed = parameter * c.kept - c.lr * (direction * share)
        self.parameter.copy_(self._if_taken(changed, parameter))

    def _gradient(self) -> Tensor:
        return functional.bounded(self._wide(self.gradient))

    def _utility(self, c: Coefficients) -> Tensor:
        utility: Tensor = self.state["utility"] / self._wide(c.correction)
        return utility

    def _wide(self, value: Any) -> Any:
        """In the precision of the state, as tensors without dimensions would otherwise widen one another."""
        return value.to(state_dtype(self.parameter)) if isinstance(value, Tensor) else value

    def _if_taken(self, new: Tensor, old: Tensor) -> Tensor:
        return new if isinstance(self.taken, bool) else torch.where(self.taken, new, old)


class UPGD(Optimizer):
    """Utility-based perturbed gradient descent.

    For every parameter p with a gradient g, over its own step count t::

        u_t = EMA of -g * p (beta_utility, from zero), divided by 1 - beta_utility^t
        s_t = sigmoid(u_t / max u_t), the maximum over all parameters with a gradient in this step
        p_t = p_{t-1} * (1 - lr * weight_decay) - lr * (d_t + noise) * (1 - s_t),    d_t = g_t

    Where max u <= 0 the divisor is max |u|, and s = 0.5 where every u is 0. The authors' code divides by the maximum of
    the uncorrected averages, so that its gates are closer to 0 and 1 early in training. It also divides by a negative
    maximum, which protects the least useful weights most. Our rule has a jump: where the largest utility crosses 0, the
    share 1 - s of the least useful weight drops from 1.0 to 0.731.

    The noise is normal with the standard deviation sigma, or with ``adaptive_noise`` max(sigma * r, min_noise_std), r
    being the bias-corrected EMA (noise_beta) of the root mean square of d over the tensor. It is a function of the
    seed, the parameter's index, its own step count and the element alone (:mod:`rlcore.optim.noise`).

    State is float32, or float64 for float64 parameters. It is finite for every finite input (magnitudes above a quarter
    of the dtype's range are taken as that). Parameters without a gradient, or without elements, are left alone.

    Contiguous float32 parameters on the CPU are computed by compiled loops, all others by torch. Where no gradient lies
    on the CPU, a step does not wait for the device: the device skips a step with a non-finite gradient, and
    ``skipped_steps`` counts it. The device needs float64.

    :param params: parameters, named parameters or groups, as for any torch optimizer
    :param lr: step size, at least 0
    :param weight_decay: decoupled weight decay, at least 0
    :param beta_utility: decay of the utility's average, in [0, 1)
    :param sigma: standard deviation of the noise, or its ratio to the RMS of d; at least 0, and 0 means no noise
    :param adaptive_noise: noise in proportion to d, so that rescaled gradients keep their signal-to-noise ratio
    :param noise_beta: decay of the average of the RMS of d, in [0, 1)
    :param min_noise_std: least standard deviation of adaptive noise, at least 0. Noise of that size does not adapt, so
        lower it where sigma times the RMS of d lies below it
    :param seed: of the noise, in [0, 2^64); None draws one from torch's global generator
    :raises SettingError: a setting is unusable or a parameter is not real
    """

    _settings: ClassVar[tuple[str, ...]] = (
        *("lr", "weight_decay", "beta_utility", "sigma", "adaptive_noise", "noise_beta", "min_noise_std", "seed"),
    )
    _averages: ClassVar[Mapping[str, tuple[str, ...]]] = {"step": ("utility",)}
    """Counter -> the averages that it counts; one that is missing starts fresh with a counter of its own."""

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-5,
        *,
        weight_decay: float = 1e-3,
        beta_utility: float = 0.999,
        sigma: float = 1e-3,
        adaptive_noise: bool = False,
        noise_beta: float = 0.999,
        min_noise_std: float = 1e-6,
        seed: int | None = None,
    ) -> None:
        self._start(params, locals())

    def _start(self, params: ParamsT, given: Mapping[str, Any]) -> None:
        values = {name: value for name, value in given.items() if name in self._settings}
        values["seed"] = _draw_seed() if values["seed"] is None else values["seed"]
        self._skipped: Tensor | int = 0
        self._accepted: dict[int, list[Any]] = {}
        super().__init__(params, {name: checked(name, name, value) for name, value in values.items()})

    def _checked_settings(self, group: Group, where: str) -> Group:
        """Return a copy of a group with its settings checked and plain; keys of other kinds are kept."""
        held = [name for name in self._settings if name in group]
        return {**group, **{name: checked(name, f"{where}[{name!r}]", group[name]) for name in held}}

    def add_param_group(self, param_group: Group) -> None:
        """Add a group; settings that it leaves out take the constructor's values.

        :raises SettingError: a setting is unusable or a parameter is not real; no group is added
        """
        where = f"param_groups[{len(self.param_groups)}]"
        group = self._checked_settings(param_group, where)
        if not isinstance(group["params"], Tensor | set):  # torch takes the one and refuses the other
            group["params"] = list(group["params"])
        for index, each in enumerate([group["params"]] if isinstance(group["params"], Tensor) else group["params"]):
            parameter = each[1] if isinstance(each, tuple) and len(each) == 2 else each
            if isinstance(parameter, Tensor) and not parameter.is_floating_point():
                raise SettingError(
                    f"{where}['params']",
                    f"{where}['params'][{index}] has the dtype {parameter.dtype}: utilities are ordered, so only real "
                    "floating-point parameters can be optimized. Pass torch.view_as_real of a complex one.",
                )
        super().add_param_group(group)

    @property
    def skipped_steps(self) -> int:
        """Steps since construction that a device skipped because a gradient was not finite; waits for the device."""
        return int(self._skipped)

    def reseed(self) -> None:
        """Give the noise another seed, which is drawn from torch's global generator."""
        seed = _draw_seed()
        for group in self.param_groups:
            group["seed"] = seed

    @torch.no_grad()
    def rescale_utilities(self, parameters: Iterable[Tensor], factor: float) -> None:
        """Multiply the utilities of parameters that something else has just multiplied: a utility averages -g * p.

        A shift that was added as well, as to a bias, is not corrected; the average forgets it. Parameters without state
        are passed over.

        :param factor: what the parameters were multiplied by; > 0, finite
        """
        for parameter in parameters:
            if "utility" in self.state.get(parameter, {}):
                utility = self.state[parameter]["utility"]
                utility.copy_(_rescaled(utility, factor))

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Change every parameter that has a gradient.

        :param closure: evaluates the model again and returns the loss
        :return: the closure's loss, or None
        :raises NonFiniteGradientError: a gradient holds NaN or infinity, and some gradient lies on the CPU; nothing was
            changed
        :raises SettingError: a gradient is sparse or a group holds an unusable setting; nothing was changed
        :raises StateError: a gradient or an average has another shape than its parameter; nothing was changed
        """
        with torch.enable_grad():
            loss = None if closure is None else closure()
        parameters = [(group, parameter) for group in self.param_groups for parameter in group["params"]]
        updates = [
            Update(parameter, gradient, group, self.state.get(parameter, {}), index)
            for index, (group, parameter) in enumerate(parameters)
            if (gradient := parameter.grad) is not None and parameter.numel() > 0
        ]
        if updates:
            with torch.no_grad():
                self._update(updates)
        return loss

    def _update(self, updates: Sequence[Update]) -> None:
        """Check all of them before any is changed."""
        from rlcore.optim.upgd_kernel import CompiledPart  # imports Numba, which only the first step needs

        self._check(updates)
        self._require_finite(updates)
        needed = {id(group): self.state_names(group) for group in self.param_groups}
        for update in updates:
            if not update.state.keys() >= needed[id(update.group)]:
                self._complete(update)
            update.count(self._averages)
        names = [name for names in self._averages.values() for name in names]
        part, others = CompiledPart.of(updates, names, self._coefficients)
        plain = [(update, self._coefficients(update)) for update in others]
        extremes = [update.average(c) for update, c in plain] + ([part.average()] if part else [])
        scale = self._gate_scale(functional.joint_extremes(extremes))
        noises = _noises([update for update in others if update.group["sigma"] > 0])
        for update, c in plain:
            direction = update.direction(c)
            if update.group["sigma"] > 0:
                std = self._noise_std(update, functional.root_mean_square(direction))
                drawn = next(noises).to(direction.dtype).view(direction.shape)
                direction = functional.bounded(direction + drawn * std)
            update.change(c, direction, scale)
        if part:
            stds = [update.group["sigma"] for update in part.updates]
            if any(self._adapts(group) for group in self.param_groups):
                pairs = zip(part.updates, part.direction_rms(), strict=True)
                stds = [self._noise_std(*each) for each in pairs]
            part.change(stds, scale)

    def _check(self, updates: Sequence[Update]) -> None:
        for index, group in enumerate(self.param_groups):
            values = [group[name] for name in self._settings]
            if values != self._accepted.get(index):
                self._checked_settings(group, f"param_groups[{index}]")
                self._accepted[index] = values
        for update in updates:
            if update.gradient.layout != torch.strided:
                message = f"the gradient of {self._label(update)} is sparse: the utility needs every element. Build the"
                raise SettingError("sparse", f"{message} layer with sparse=False.")
            shape, utility = update.parameter.shape, update.state.get("utility")
            for what, tensor in (("gradient", update.gradient), ("average of the utility", utility)):
                if tensor is not None and tensor.shape != shape:
                    raise StateError(
                        f"the {what} of {self._label(update)} has the shape {tuple(tensor.shape)}, so no step was "
                        "made: the parameter has got other memory since. Set its gradient to None and call backward() "
                        "again, or build the optimizer again, which starts the averages fresh."
                    )

    def _require_finite(self, updates: Sequence[Update]) -> None:
        if any(update.gradient.is_cpu for update in updates):
            from rlcore.optim.upgd_kernel import are_finite

            if are_finite([update.gradient for update in updates]):
                return
            name = next(self._label(update) for update in updates if not update.gradient.isfinite().all())
            raise NonFiniteGradientError(
                name,
                f"the gradient of {name} holds NaN or infinity: through the global maximum of the utility it would "
                "reach every parameter. Nothing was changed; look at the loss and the inputs of this batch.",
            )
        finite = torch.nn.utils.get_total_norm([update.gradient for update in updates], math.inf).isfinite()
        self._skipped = self._skipped + ~finite
        for update in updates:
            update.taken = finite.to(update.parameter.device)

    def _label(self, update: Update) -> str:
        """The name of a parameter, or its group, its index there and its shape."""
        number = next(number for number, group in enumerate(self.param_groups) if group is update.group)
        index = update.index - sum(len(group["params"]) for group in self.param_groups[:number])
        if names := update.group.get("param_names"):
            return str(names[index])
        return f"parameter {index} of group {number}, shape {tuple(update.parameter.shape)}"

    def _complete(self, update: Update) -> None:
        """Start those averages fresh that the state of a parameter lacks."""
        state = self.state[update.parameter] = update.state
        for counter, names in self._averages_of(update.group).items():
            if not all(name in state for name in (counter, *names)):
                state[counter] = 0
                state.update({name: _initial_average(name, update.parameter) for name in names})

    def _averages_of(self, group: Group) -> Mapping[str, tuple[str, ...]]:
        return {**self._averages, **NOISE_AVERAGES} if self._adapts(group) else self._averages

    def _adapts(self, group: Group) -> bool:
        """Whether noise follows the direction."""
        return bool(group["adaptive_noise"] and group["sigma"] > 0)

    def state_names(self, group: Group) -> set[str]:
        """What the state of a parameter of a group holds after a step."""
        return {name for counter, names in self._averages_of(group).items() for name in (counter, *names)}

    def _gate_scale(self, extremes: UtilityExtremes) -> Scalar:
        """What utilities are divided by before the sigmoid."""
        return functional.utility_scale(extremes)

    def _coefficients(self, update: Update) -> Coefficients:
        """The scalars of the step that depend on its settings and counters alone."""
        lr, weight_decay, beta = (update.group[name] for name in ("lr", "weight_decay", "beta_utility"))
        return Coefficients(1 - lr * weight_decay, lr, bias_correction(beta, update.state["step"]), 1 - beta)

    def _noise_std(self, update: Update, rms: Tensor) -> Scalar:
        """Standard deviation of the noise; moves its average.

        :param rms: root mean square of the direction, 0-dimensional
        """
        group, state = update.group, update.state
        if not self._adapts(group):
            return float(group["sigma"])
        update.count(NOISE_AVERAGES)
        update.move("direction_rms", rms, 1 - group["noise_beta"])
        level: Tensor = state["direction_rms"] / bias_correction(group["noise_beta"], state["noise_step"])
        return functional.bounded((level * group["sigma"]).clamp(min=group["min_noise_std"]))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore; settings that the saved groups or defaults do not know yet take their defaults."""
        super().__setstate__(state)
        self.__dict__.setdefault("_skipped", 0)
        self._accepted = {}
        signature = inspect.signature(AdaptiveUPGD).parameters
        for name in self._settings:
            if name not in self.defaults:
                self.defaults[name] = _draw_seed() if name == "seed" else signature[name].default
            for group in self.param_groups:
                group.setdefault(name, self.defaults[name])

    def state_dict(self) -> dict[str, Any]:
        """The state after the last step. Counters are plain integers; where a device has them, this waits for it."""
        saved, counters = super().state_dict(), {**self._averages, **NOISE_AVERAGES}
        entries = {
            key: {name: int(value) if name in counters else value for name, value in own.items()}
            for key, own in saved["state"].items()
        }
        return {**saved, "state": entries}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a copy of a saved state, in the precision of the state instead of the parameter's.

        Averages that the saved state lacks start fresh, settings that its groups lack take the constructor's values.
        Warns with :class:`ResumeWarning` where a state with noise has no seed, as it had before noise had one.

        :raises StateError: the state does not fit the parameters; nothing was changed
        :raises SettingError: a group holds an unusable setting; nothing was changed
        """
        averages = {**self._averages, **NOISE_AVERAGES}
        restored = _read_state(state_dict, self.param_groups, averages)
        groups = [
            self._checked_settings(group, f"param_groups[{index}]")
            for index, group in enumerate(state_dict["param_groups"])
        ]
        noisy = [group for group in groups if "seed" not in group and group.get("sigma", self.defaults["sigma"]) > 0]
        if noisy and any("utility" in entries for entries in restored.values()):
            warn_caller(
                "The saved optimizer state has no noise seed: an older version wrote it. Training goes on with another "
                "noise sequence; to choose it, pass seed=... to the optimizer, or "
                'optimizer_kwargs={"seed": ...} to DistributionalPPO.',
                ResumeWarning,
            )
        super().load_state_dict({**state_dict, "state": {}, "param_groups": groups})
        self.state.update(restored)


class AdaptiveUPGD(UPGD):
    """UPGD with the direction of Adam, d = m_hat / (sqrt(v_hat) + eps).

    m and v are the averages of g and g^2 (Kingma and Ba, "Adam", ICLR 2015), bias-corrected. d does not depend on the
    scale of the gradient, so a fixed sigma already keeps the signal-to-noise ratio.

    :param params: parameters, named parameters or groups, as for any torch optimizer
    :param betas: decay of m and of v, each in [0, 1)
    :param eps: added to the root of v, positive

    The other settings and the errors are those of :class:`UPGD`.
    """

    _settings = (*UPGD._settings, "betas", "eps")
    _averages: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **UPGD._averages,
        "moment_step": ("first_moment", "second_moment"),
    }

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-5,
        *,
        weight_decay: float = 1e-3,
        beta_utility: float = 0.999,
        sigma: float = 1e-3,
        adaptive_noise: bool = False,
        noise_beta: float = 0.999,
        min_noise_std: float = 1e-6,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        seed: int | None = None,
    ) -> None:
        self._start(params, locals())

    def _coefficients(self, update: Update) -> Coefficients:
        (first_beta, second_beta), steps = update.group["betas"], update.state["moment_step"]
        return (
            super()
            ._coefficients(update)
            ._replace(
                first_weight=1 - first_beta,
                second_weight=1 - second_beta,
                mean_factor=1.0 / bias_correction(first_beta, steps),
                root_factor=bias_correction(second_beta, steps) ** -0.5,
                eps=update.group["eps"],
            )
        )


def _noises(updates: Sequence[Update]) -> Iterator[Tensor]:
    """Draw the noise of each; a device draws that of a whole group in the time of one."""
    for _, batch in groupby(updates, lambda each: (each.index, 0) if each.parameter.is_cpu else _place(each)):
        own = list(batch)
        sizes, steps = [each.parameter.numel() for each in own], [each.state["step"] for each in own]
        indices, seed = [each.index for each in own], own[0].group["seed"]
        yield from noise.normal(sizes, indices, steps, seed, own[0].parameter.device)


def _place(update: Update) -> tuple[int, str]:
    return id(update.group), str(update.parameter.device)


def state_dtype(parameter: Tensor) -> torch.dtype:
    """float64 for float64 parameters, else float32: an average with decay 0.999 stands still in bfloat16."""
    return torch.float64 if parameter.dtype == torch.float64 else torch.float32


def _initial_average(name: str, parameter: Tensor) -> Tensor:
    shape = () if name == "direction_rms" else parameter.shape
    return torch.zeros(shape, dtype=state_dtype(parameter), device=parameter.device)


def _read_state(
    saved: dict[str, Any], groups: Sequence[Group], averages: Mapping[str, tuple[str, ...]]
) -> dict[Tensor, dict[str, Any]]:
    """Return copies of the saved averages of each parameter, in the precision of the state.

    :raises StateError: for the first thing that does not fit
    """
    if not {"state", "param_groups"} <= saved.keys():
        raise StateError(
            f"the saved state has the entries {sorted(map(str, saved))}, but 'state' and 'param_groups' are needed. "
            "Pass what an optimizer's state_dict() returned."
        )
    sizes, own = ([len(group["params"]) for group in each] for each in (saved["param_groups"], groups))
    if sizes != own:
        raise StateError(
            f"the saved state has groups of {sizes} parameters, the optimizer has {own}: their averages cannot be "
            "matched. Build the optimizer with the groups it was saved with."
        )
    names = [name for each in averages.values() for name in each]
    return {
        parameter: {
            name: _read_counter(f"state[{key}][{name!r}]", value)
            if name in averages
            else _read_average(f"state[{key}][{name!r}]", value, _initial_average(name, parameter))
            for name, value in saved["state"][key].items()
            if name in {*averages, *names}
        }
        for key, parameter in _matched(saved, groups)
    }


def _matched(saved: dict[str, Any], groups: Sequence[Group]) -> list[tuple[int, Tensor]]:
    keys = [key for group in saved["param_groups"] for key in group["params"]]
    parameters = [parameter for group in groups for parameter in group["params"]]
    return [(key, parameter) for key, parameter in zip(keys, parameters, strict=True) if key in saved["state"]]


def _read_counter(where: str, value: object) -> int:
    number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0 or number % 1 != 0:
        raise StateError(f"{where} is {value!r}: bias correction needs a whole number of steps of at least 0.")
    return int(number)


def _read_average(where: str, value: object, like: Tensor) -> Tensor:
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.shape != like.shape:
        wanted = f"but a floating-point tensor of shape {tuple(like.shape)} is needed"
        raise StateError(f"{where} is {describe(value)}, {wanted}")
    if not bool(value.isfinite().all()):
        raise StateError(f"{where} holds NaN or infinity, which would reach every parameter in the next step")
    return value.to(like.device, like.dtype, copy=True)


def with_rescaled_utilities(
    saved: dict[str, Any], groups: Sequence[Group], parameters: Collection[Tensor], factor: float
) -> dict[str, Any]:
    """A saved state as it would be had ``parameters`` been multiplied by ``factor``; what is given stays.

    :param saved: has the groups of ``groups``
    :param parameters: of ``groups``
    """
    chosen, state = set(map(id, parameters)), dict(saved["state"])
    for key, parameter in _matched(saved, groups):
        utility = state[key].get("utility")
        if id(parameter) in chosen and isinstance(utility, Tensor) and utility.is_floating_point():
            state[key] = {**state[key], "utility": _rescaled(utility.to(state_dtype(parameter)), factor)}
    return {**saved, "state": state}


def _rescaled(utility: Tensor, factor: float) -> Tensor:
    """The utility of a parameter that was multiplied by ``factor``, computed in float64, in the range of its dtype."""
    limit = torch.finfo(utility.dtype).max / 4
    return (utility.double() * factor).clamp(-limit, limit).to(utility.dtype)


def _draw_seed() -> int:
    return int(torch.randint(2**63 - 1, (), device="cpu"))
