"""Utility-based perturbed gradient descent: UPGD and AdaptiveUPGD.

Source: Elsayed and Mahmood, "Addressing Loss of Plasticity and Catastrophic Forgetting in Continual Learning",
ICLR 2024 (global, first-order utility).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from rlcore.errors import NonFiniteGradientError, SettingError, StateError
from rlcore.optim.upgd_step import (
    NOISE_AVERAGES,
    Averages,
    Coefficients,
    Group,
    Scalar,
    Update,
    UtilityExtremes,
    bias_correction,
    bounded,
    checked,
    draw_seed,
    initial_average,
    joint_extremes,
    noises_of,
    plain_counters,
    read_state,
    root_mean_square,
    utility_scale,
)


@cache
def device_kernels() -> Any:
    """Return the kernels for CUDA devices; None unless RLCORE_TRITON=1 asks for them, or without Triton.

    They have to be asked for as long as no device has run their tests; Triton's interpreter has.
    """
    if os.environ.get("RLCORE_TRITON") != "1" or find_spec("triton") is None:
        return None
    from rlcore.optim import upgd_device

    return upgd_device


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
    ``skipped_steps`` counts it. The device needs float64. With ``RLCORE_TRITON=1`` in the environment, Triton kernels
    make the whole step on a CUDA device if all parameters are contiguous, of at most 32 bits and on one device. A
    CUDA graph can hold such a step if one was made before with gradients at the same addresses
    (``zero_grad(set_to_none=False)``); its replays keep the settings of the captured step, such as the rate.

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
    _averages: ClassVar[Averages] = {"step": ("utility",)}

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
        values["seed"] = draw_seed() if values["seed"] is None else values["seed"]
        self._skipped: Tensor | int = 0
        self._kept: Any = None
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
        super().add_param_group(self._checked_settings(param_group, where))
        for parameter in self.param_groups[-1]["params"]:
            if not parameter.is_floating_point():
                self.param_groups.pop()
                raise SettingError(
                    f"{where}['params']",
                    f"{where}['params'] holds a parameter of the dtype {parameter.dtype}: utilities are ordered, so "
                    "only real floating-point parameters can be optimized. Pass torch.view_as_real of a complex one.",
                )

    @property
    def skipped_steps(self) -> int:
        """Steps since construction that a device skipped because a gradient was not finite; waits for the device."""
        return int(self._skipped)

    def reseed(self) -> None:
        """Give the noise another seed, which is drawn from torch's global generator."""
        seed = draw_seed()
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
                limit = torch.finfo(utility.dtype).max / 4
                utility.copy_((utility.double() * factor).clamp(-limit, limit))

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Change every parameter that has a gradient.

        :param closure: evaluates the model again and returns the loss
        :return: the closure's loss, or None
        :raises CallOrderError: a CUDA graph captures the step, and none was made before with the same gradients
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
        """Step all parameters of a call; their gradients are checked before any parameter changes."""
        self._check(updates)
        if all(update.gradient.is_cuda for update in updates) and (kernels := device_kernels()):
            self._complete(updates)
            self._kept = kernels.DevicePart.of(updates, self._averages_of, self._kept)
            if self._kept is not None:
                self._skipped = self._kept.step(self._skipped)
                return
        from rlcore.optim.upgd_kernel import CompiledPart  # imports Numba, which only the first step needs

        gradients = self._require_finite(updates)
        self._complete(updates)
        for update in updates:
            update.count(self._averages)
        names = [name for names in self._averages.values() for name in names]
        part, others = CompiledPart.of(updates, names, gradients, self._coefficients, self._kept)
        self._kept = part
        plain = [(update, self._coefficients(update)) for update in others]
        extremes = [update.average(c) for update, c in plain] + ([part.average()] if part else [])
        scale = self._gate_scale(joint_extremes(extremes))
        noises = noises_of([update for update in others if update.group["sigma"] > 0])
        for update, c in plain:
            direction = update.direction(c)
            if update.group["sigma"] > 0:
                std = self._noise_std(update, root_mean_square(direction))
                drawn = next(noises).to(direction.dtype).view(direction.shape)
                direction = bounded(direction + drawn * std)
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
            shape, gradient = update.parameter.shape, update.gradient.shape
            utility = update.state.get("utility", update.gradient).shape
            if gradient != shape or utility != shape:
                what, wrong = ("gradient", gradient) if gradient != shape else ("average of the utility", utility)
                message = f"the {what} of {self._label(update)} has the shape {tuple(wrong)}, so no step was made: the"
                raise StateError(f"{message} parameter has got other memory since. Build the optimizer again.")

    def _require_finite(self, updates: Sequence[Update]) -> list[int]:
        """Return where the gradients lie for the compiled loops."""
        gradients = [update.gradient for update in updates]
        if any(gradient.is_cpu for gradient in gradients):
            from rlcore.optim.upgd_kernel import places_if_finite

            if places := places_if_finite(gradients):
                return places
            name = next(self._label(update) for update in updates if not update.gradient.isfinite().all())
            raise NonFiniteGradientError(
                name,
                f"the gradient of {name} holds NaN or infinity: through the global maximum of the utility it would "
                "reach every parameter. Nothing was changed; look at the loss and the inputs of this batch.",
            )
        finite = torch.nn.utils.get_total_norm(gradients, math.inf).isfinite()
        self._skipped = self._skipped + ~finite
        for update in updates:
            update.taken = finite.to(update.parameter.device)
        return [0] * len(updates)

    def _label(self, update: Update) -> str:
        """The name of a parameter, or its group, its index there and its shape."""
        number = next(number for number, group in enumerate(self.param_groups) if group is update.group)
        index = update.index - sum(len(group["params"]) for group in self.param_groups[:number])
        if names := update.group.get("param_names"):
            return str(names[index])
        return f"parameter {index} of group {number}, shape {tuple(update.parameter.shape)}"

    def _complete(self, updates: Sequence[Update]) -> None:
        """Start those averages fresh that the state of a parameter lacks."""
        needed = {id(group): self.state_names(group) for group in self.param_groups}
        for update in updates:
            state = update.state
            if state.keys() >= needed[id(update.group)]:
                continue
            self.state[update.parameter] = state
            for counter, names in self._averages_of(update.group).items():
                if not all(name in state for name in (counter, *names)):
                    state[counter] = 0
                    state.update({name: initial_average(name, update.parameter) for name in names})

    def _averages_of(self, group: Group) -> Averages:
        return {**self._averages, **NOISE_AVERAGES} if self._adapts(group) else self._averages

    def _adapts(self, group: Group) -> bool:
        """Return True if noise follows the direction."""
        return bool(group["adaptive_noise"] and group["sigma"] > 0)

    def state_names(self, group: Group) -> set[str]:
        """Return the names in the state of a parameter of a group after a step."""
        return {name for counter, names in self._averages_of(group).items() for name in (counter, *names)}

    def _gate_scale(self, extremes: UtilityExtremes) -> Scalar:
        """Return the number that utilities are divided by before the sigmoid."""
        return utility_scale(extremes)

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
        return bounded((level * group["sigma"]).clamp(min=group["min_noise_std"]))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore; settings that the saved groups do not know yet take the constructor's values."""
        super().__setstate__(state)
        self._skipped, self._accepted, self._kept = getattr(self, "_skipped", 0), {}, None
        for group in self.param_groups:
            group.update({name: self.defaults[name] for name in self._settings if name not in group})

    def state_dict(self) -> dict[str, Any]:
        """The state after the last step. Counters are plain integers; where a device has them, this waits for it."""
        saved = super().state_dict()
        return {**saved, "state": plain_counters(saved["state"], {**self._averages, **NOISE_AVERAGES})}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a copy of a saved state, in the precision of the state instead of the parameter's.

        Averages that the saved state lacks start fresh, settings that its groups lack take the constructor's values.

        :raises StateError: the state does not fit the parameters; nothing was changed
        :raises SettingError: a group holds an unusable setting; nothing was changed
        """
        averages = {**self._averages, **NOISE_AVERAGES}
        restored = read_state(state_dict, self.param_groups, averages)
        groups = [
            self._checked_settings(group, f"param_groups[{index}]")
            for index, group in enumerate(state_dict["param_groups"])
        ]
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
    _averages: ClassVar[Averages] = {**UPGD._averages, "moment_step": ("first_moment", "second_moment")}

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
        plain = super()._coefficients(update)
        return plain._replace(
            first_weight=1 - first_beta,
            second_weight=1 - second_beta,
            mean_factor=1.0 / bias_correction(first_beta, steps),
            root_factor=bias_correction(second_beta, steps) ** -0.5,
            eps=update.group["eps"],
        )
