"""Utility-based perturbed gradient descent: UPGD and AdaptiveUPGD.

Source: Elsayed and Mahmood, "Addressing Loss of Plasticity and Catastrophic Forgetting in Continual Learning",
ICLR 2024 (global, first-order utility).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from rlcore.errors import ResumeWarning, SettingError
from rlcore.functional import utility as functional
from rlcore.functional.utility import UtilityExtremes
from rlcore.optim import memory, settings, upgd_paths, upgd_state
from rlcore.optim.upgd_paths import Coefficients, Group, Part, Scalar, Update
from rlcore.optim.upgd_state import bias_correction
from rlcore.warn import warn_caller


class UtilityGatedOptimizer(Optimizer):
    """The part that both optimizers share: everything except the direction d of the step.

    For every parameter p with a gradient g, over its own step count t::

        u_t = EMA of -g * p (beta_utility, from zero), divided by 1 - beta_utility^t
        s_t = sigmoid(u_t / max u_t), the maximum over all parameters with a gradient in this step
        p_t = p_{t-1} * (1 - lr * weight_decay) - lr * (d_t + noise) * (1 - s_t)

    Where max u <= 0 the divisor is max |u|, and s = 0.5 where every u is 0.

    This differs from the authors' published code in two ways:

    - We divide u_t by the maximum of the bias-corrected averages, they by the maximum of the uncorrected ones. Their
      divisor is smaller early in training, so their gates s are closer to 0 and 1.
    - They divide by a negative maximum too, which would protect the least useful weights most.

    Our rule has a jump. As the largest utility falls towards 0, the share 1 - s of the least useful weight rises to 1.
    Where the largest utility crosses 0, the divisor becomes max |u| and this share drops from 1.0 to 0.731.

    The noise is normal with the standard deviation sigma, or with ``adaptive_noise`` max(sigma * r, min_noise_std), r
    being the bias-corrected EMA (noise_beta) of the root mean square of d over the parameter tensor. sigma = 0 means no
    noise in either case. Noise is a function of the seed, the parameter's index among all parameters, its own step
    count and the element alone; see :mod:`rlcore.optim.noise`.

    State is float32, or float64 for float64 parameters. It is finite for every finite input (magnitudes above a
    quarter of the dtype's range are taken as that); a parameter overflows only where its new value leaves its dtype.
    Parameters without a gradient, or without elements, are left alone.

    Contiguous float32 parameters on the CPU are computed by compiled loops, all others by torch. The first step
    compiles the loops, or loads them from the cache on disk.

    Where no gradient lies on the CPU, a step does not wait for the device: the device skips a step with a non-finite
    gradient, and ``skipped_steps`` counts it. The device needs float64.
    """

    _settings: ClassVar[tuple[str, ...]] = tuple(settings.UPGDSettings.model_fields)
    _averages: ClassVar[upgd_state.Averages] = {"step": ("utility",)}

    def __init__(self, params: ParamsT, **values: object) -> None:
        if values["seed"] is None:
            values["seed"] = _draw_seed()
        self._skipped: Tensor | int = 0
        self._forget_steps()
        super().__init__(params, {name: settings.check(name, name, value) for name, value in values.items()})

    def add_param_group(self, param_group: Group) -> None:
        """Add a group; settings that it leaves out take the constructor's values, keys of other kinds are kept.

        :raises SettingError: a setting is unusable or a parameter is not real; no group is added
        """
        where = f"param_groups[{len(self.param_groups)}]"
        group = settings.plain_group(param_group, self._settings, where)
        if not isinstance(group["params"], (Tensor, set)):  # of which torch takes the one and refuses the other
            group["params"] = list(group["params"])
        parameters = group["params"]
        settings.check_optimized([parameters] if isinstance(parameters, Tensor) else parameters, where)
        super().add_param_group(group)

    def _forget_steps(self) -> None:
        """Drop what the previous step left to save work in the next one."""
        self._paths = upgd_paths.Paths()
        self._checked: dict[int, list[Any]] = {}

    @property
    def skipped_steps(self) -> int:
        """Steps since construction that a device skipped because a gradient was not finite; waits for the device."""
        return int(self._skipped)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore; settings that the saved groups or defaults do not know yet take their defaults."""
        super().__setstate__(state)
        self.__dict__.setdefault("_skipped", 0)
        self._forget_steps()
        for name in self._settings:
            if name not in self.defaults:
                default = settings.AdaptiveSettings.model_fields[name].default
                self.defaults[name] = _draw_seed() if name == "seed" else default
            for group in self.param_groups:
                group.setdefault(name, self.defaults[name])

    def state_dict(self) -> dict[str, Any]:
        """The state after the last step. Counters are plain integers; where a device has them, this waits for it."""
        state, counters = super().state_dict(), self._all_averages()
        entries = {
            key: {name: int(value) if name in counters else value for name, value in own.items()}
            for key, own in state["state"].items()
        }
        return {**state, "state": entries}

    def reseed(self) -> None:
        """Give the noise another seed, which is drawn from torch's global generator."""
        seed = _draw_seed()
        for group in self.param_groups:
            group["seed"] = seed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a copy of a saved state, in the precision of the state instead of the parameter's.

        Averages that the saved state lacks start fresh, settings that its groups lack take the constructor's values.
        Warns with :class:`ResumeWarning` where a state with noise has no seed, as it had before noise had one.

        :raises StateError: the state does not fit the parameters; nothing was changed
        :raises SettingError: a group holds an unusable setting; nothing was changed
        """
        saved: dict[str, Any] = {}

        def examine(_: Optimizer, final: dict[str, Any]) -> dict[str, Any]:
            upgd_state.check(final, self.param_groups, self._all_averages())
            groups = [
                settings.plain_group(group, self._settings, f"param_groups[{index}]")
                for index, group in enumerate(final["param_groups"])
            ]
            if upgd_state.has_averages(final) and any(
                "seed" not in group and group.get("sigma", self.defaults["sigma"]) > 0 for group in groups
            ):
                warn_caller(
                    "The saved optimizer state has no noise seed: an older version wrote it. Training goes on with "
                    "another noise sequence; to choose it, pass seed=... to the optimizer, or "
                    'optimizer_kwargs={"seed": ...} to DistributionalPPO.',
                    ResumeWarning,
                )
            saved.update(final, param_groups=groups)
            return saved

        def restore(_: Optimizer) -> None:
            upgd_state.restore(self.state, saved, self.param_groups, self._all_averages())

        # As hooks, so that they see what the hooks of others made of the state, and are seen through by them.
        first = self.register_load_state_dict_pre_hook(examine)
        last = self.register_load_state_dict_post_hook(restore, prepend=True)
        try:
            super().load_state_dict(state_dict)
        finally:
            first.remove()
            last.remove()

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Change every parameter that has a gradient.

        :param closure: evaluates the model again and returns the loss
        :return: the closure's loss, or None
        :raises NonFiniteGradientError: a gradient holds NaN or infinity, and some gradient lies on the CPU; nothing was
            changed
        :raises SettingError: a gradient is sparse or a group holds an unusable setting; nothing was changed
        :raises StateError: a gradient or an average has another shape than its parameter; nothing was changed
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            self._update(self._collect())
        return loss

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
                utility.copy_(upgd_state.rescaled(utility, factor))

    def _update(self, updates: Sequence[Update]) -> None:
        """Check all of them before any is prepared or changed."""
        if updates:
            self._check(updates)
            self._require_finite(updates)
            needed = {id(group): self._names_of(group) for group in self.param_groups}
            counted: dict[Any, Any] = {}
            for update in updates:
                if not update.state.keys() >= needed[id(update.group)]:
                    self._complete(update)
                update.advance(self._averages, counted)
            names = [name for names in self._averages.values() for name in names]
            self._change(self._paths.parts(updates, self._coefficients, names))

    def _collect(self) -> list[Update]:
        parameters = [(group, parameter) for group in self.param_groups for parameter in group["params"]]
        return [
            Update(parameter, gradient, group, self.state.get(parameter, {}), index, memory.address(gradient))
            for index, (group, parameter) in enumerate(parameters)
            if (gradient := parameter.grad) is not None and parameter.numel() > 0
        ]

    def _require_finite(self, updates: Sequence[Update]) -> None:
        finite = upgd_paths.is_finite(updates)
        if isinstance(finite, Tensor):
            self._skipped = self._skipped + ~finite
            taken = {device: finite.to(device) for device in {update.parameter.device for update in updates}}
            for update in updates:
                update.taken = taken[update.parameter.device]
        elif not finite:
            raise upgd_paths.non_finite(updates, self.param_groups)

    def _check(self, updates: Sequence[Update]) -> None:
        for index, group in enumerate(self.param_groups):
            values = [group[name] for name in self._settings]
            if values != self._checked.get(index):
                settings.plain_group(group, self._settings, f"param_groups[{index}]")
                self._checked[index] = values
        for update in updates:
            if not update.address and update.gradient.layout != torch.strided:
                name = upgd_paths.label(update, self.param_groups)
                message = f"the gradient of {name} is sparse: the utility needs every element. Build the layer with "
                raise SettingError("sparse", message + "sparse=False.")
        upgd_paths.require_shapes(updates, self.param_groups)

    def _complete(self, update: Update) -> None:
        """Start those averages fresh that the state of a parameter lacks."""
        state = self.state[update.parameter] = update.state
        for counter, names in self._averages_of(update.group).items():
            if not all(name in state for name in (counter, *names)):
                state[counter] = 0
                state.update({name: self._initial_average(name, update.parameter) for name in names})

    def _initial_average(self, name: str, parameter: Tensor) -> Tensor:
        shape = () if name in upgd_state.SCALARS else parameter.shape
        return torch.zeros(shape, dtype=upgd_state.state_dtype(parameter), device=parameter.device)

    def _averages_of(self, group: Group) -> upgd_state.Averages:
        return self._all_averages() if self._adapts(group) else self._averages

    def _names_of(self, group: Group) -> set[str]:
        """What the state of a parameter holds."""
        return {name for counter, names in self._averages_of(group).items() for name in (counter, *names)}

    def _all_averages(self) -> upgd_state.Averages:
        return {**self._averages, **upgd_state.NOISE_AVERAGES}

    def _change(self, parts: Sequence[Part]) -> None:
        scale = self._gate_scale(self._extremes(parts, [part.average() for part in parts]))
        for part in parts:
            part.change(self._noise_stds(part), scale)

    def _noise_stds(self, part: Part) -> list[Scalar]:
        """Standard deviations of the noise of each tensor."""
        adapts = [self._adapts(update.group) for update in part.updates]
        if not any(adapts):
            return [update.group["sigma"] for update in part.updates]
        return [
            self._noise_std(update, rms) if is_adaptive else update.group["sigma"]
            for update, rms, is_adaptive in zip(part.updates, part.direction_rms(), adapts, strict=True)
        ]

    def _adapts(self, group: Group) -> bool:
        """Whether noise follows the direction."""
        return bool(group["adaptive_noise"] and group["sigma"] > 0)

    def _extremes(self, parts: Sequence[Part], found: Sequence[UtilityExtremes]) -> UtilityExtremes:  # noqa: ARG002
        """Of all corrected utilities; ``found`` are those of each part, whose averages have been moved."""
        return functional.joint_extremes(found)

    def _gate_scale(self, extremes: UtilityExtremes) -> Scalar:
        """What utilities are divided by before the sigmoid."""
        return functional.utility_scale(extremes)

    def _coefficients(self, update: Update) -> Coefficients:
        """The scalars of the step that depend on its settings and counters alone."""
        group = update.group
        return Coefficients(
            kept=1 - group["lr"] * group["weight_decay"],
            lr=group["lr"],
            correction=bias_correction(group["beta_utility"], update.state["step"]),
            utility_weight=1 - group["beta_utility"],
        )

    def _noise_std(self, update: Update, rms: Tensor) -> Scalar:
        """Standard deviation of adaptive noise; ``rms`` is the direction's root mean square, 0-dimensional."""
        group, state = update.group, update.state
        update.advance(upgd_state.NOISE_AVERAGES)
        update.average("direction_rms", self._noise_reference(update, rms), 1 - group["noise_beta"])
        level: Tensor = state["direction_rms"] / bias_correction(group["noise_beta"], state["noise_step"])
        return functional.bounded((level * group["sigma"]).clamp(min=group["min_noise_std"]))

    def _noise_reference(self, update: Update, rms: Tensor) -> Tensor:  # noqa: ARG002
        """What adaptive noise is proportional to; 0-dimensional."""
        return rms


class UPGD(UtilityGatedOptimizer):
    """Utility-based perturbed gradient descent, d = g; the rule is that of :class:`UtilityGatedOptimizer`.

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
        super().__init__(params, **{name: value for name, value in locals().items() if name in self._settings})


class AdaptiveUPGD(UtilityGatedOptimizer):
    """UPGD with the direction of Adam, d = m_hat / (sqrt(v_hat) + eps).

    m and v are the averages of g and g^2 (Kingma and Ba, "Adam", ICLR 2015), bias-corrected. d does not depend on the
    scale of the gradient, so a fixed sigma already keeps the signal-to-noise ratio.

    :param params: parameters, named parameters or groups, as for any torch optimizer
    :param betas: decay of m and of v, each in [0, 1)
    :param eps: added to the root of v, positive

    The other settings and the errors are those of :class:`UPGD`.
    """

    _settings = tuple(settings.AdaptiveSettings.model_fields)
    _averages: ClassVar[upgd_state.Averages] = {
        **UtilityGatedOptimizer._averages,
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
        super().__init__(params, **{name: value for name, value in locals().items() if name in self._settings})

    def _coefficients(self, update: Update) -> Coefficients:
        (first_beta, second_beta), steps = update.group["betas"], update.state["moment_step"]
        shared = super()._coefficients(update)
        return shared._replace(
            first_weight=1 - first_beta,
            second_weight=1 - second_beta,
            mean_factor=1.0 / bias_correction(first_beta, steps),
            root_factor=bias_correction(second_beta, steps) ** -0.5,
            eps=update.group["eps"],
        )


def _draw_seed() -> int:
    return int(torch.randint(2**63 - 1, (), device="cpu"))
