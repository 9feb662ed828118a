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

from rlcore.errors import SettingError
from rlcore.functional import utility as functional
from rlcore.functional.utility import UtilityExtremes
from rlcore.optim import gradient_check, upgd_state
from rlcore.optim import upgd_settings as settings
from rlcore.optim.gradient_check import LARGEST_UNBOUNDED, DeferredCheck, largest_gradient
from rlcore.optim.upgd_state import bias_correction
from rlcore.optim.upgd_updates import Group, Update, Workspace


class UtilityGatedOptimizer(Optimizer):
    """The part that both optimizers share: everything except the direction d of the step.

    For every parameter p with a gradient g, over its own step count t::

        u_t = EMA of -g * p (beta_utility, from zero), divided by 1 - beta_utility^t
        s_t = sigmoid(u_t / max u_t), the maximum over all parameters with a gradient in this step
        p_t = p_{t-1} * (1 - lr * weight_decay) - lr * (d_t + noise) * (1 - s_t)

    Where max u <= 0 the divisor is max |u|, and s = 0.5 where every u is 0. The noise is normal with the standard
    deviation sigma, or with ``adaptive_noise`` max(sigma * r, min_noise_std), r being the bias-corrected EMA
    (noise_beta) of the root mean square of d over the parameter tensor. sigma = 0 means no noise in either case.

    Noise comes from torch's global generators: one ``torch.randn`` for each device and state dtype, in the order in
    which these first occur, over all parameters with a gradient and sigma > 0, groups first, then parameters, each
    row-major.

    State is float32, or float64 for float64 parameters. It is finite for every finite input (magnitudes above a
    quarter of the dtype's range are taken as that); a parameter overflows only where its new value leaves its dtype.
    Parameters without a gradient, or without elements, are left alone.

    Where all gradients lie on one CUDA device, a step does not wait for it unless 65 are under way. The device then
    skips a step with a non-finite gradient and all after it, and the error comes with a later call: a step that finds
    it known, or ``state_dict``, ``load_state_dict``, a copy or a pickle, which wait. Parameters and state are as they
    were before the skipped steps, though their noise stays drawn; training may go on.
    """

    _settings: ClassVar[tuple[str, ...]] = settings.SHARED
    _averages: ClassVar[upgd_state.Averages] = {"step": ("utility",)}

    def __init__(self, params: ParamsT, **values: object) -> None:
        for name, value in values.items():
            settings.check(name, name, value)
        super().__init__(params, {name: settings.plain(value) for name, value in values.items()})
        self._forget_steps()

    def add_param_group(self, param_group: Group) -> None:
        """Add a group; settings that it leaves out take the constructor's values, keys of other kinds are kept.

        :raises SettingError: a setting is unusable or a parameter is not real; no group is added
        """
        where = f"param_groups[{len(self.param_groups)}]"
        group = settings.plain_group(param_group, self._settings, where)
        if not isinstance(group["params"], (Tensor, set)):  # of which torch takes the one and refuses the other
            group["params"] = list(group["params"])
        parameters = group["params"]
        settings.check_parameters([parameters] if isinstance(parameters, Tensor) else parameters, where)
        super().add_param_group(group)

    def _forget_steps(self) -> None:
        """Begin anew with what is kept from step to step beside the state."""
        self._workspace = Workspace()
        self._deferred = DeferredCheck(self.state)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle takes; waits for the device.

        :raises NonFiniteGradientError: as :meth:`state_dict`
        """
        self._deferred.read(0)
        return super().__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore; settings that the saved groups or defaults do not know yet take their defaults."""
        super().__setstate__(state)
        self._forget_steps()
        for name in self._settings:
            self.defaults.setdefault(name, settings.RULES[name].default)
            for group in self.param_groups:
                group.setdefault(name, self.defaults[name])

    def state_dict(self) -> dict[str, Any]:
        """The state after the last step; waits for the device.

        :raises NonFiniteGradientError: an earlier gradient held NaN or infinity; the next call returns the state from
            before its step
        """
        self._deferred.read(0)
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a copy of a saved state, in the precision of the state instead of the parameter's.

        Averages that the saved state lacks start fresh, settings that its groups lack take the constructor's values.

        :raises StateError: the state does not fit the parameters; nothing was changed
        :raises SettingError: a group holds an unusable setting; nothing was changed
        :raises NonFiniteGradientError: an earlier gradient held NaN or infinity; nothing was loaded
        """
        self._deferred.read(0)
        saved: dict[str, Any] = {}

        def examine(_: Optimizer, final: dict[str, Any]) -> dict[str, Any]:
            upgd_state.check(final, self.param_groups, self._all_averages())
            groups = [
                settings.plain_group(group, self._settings, f"param_groups[{index}]")
                for index, group in enumerate(final["param_groups"])
            ]
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
        :raises NonFiniteGradientError: a gradient holds NaN or infinity; nothing was changed and nothing drawn. Or one
            held it in an earlier step: all steps from that one on were skipped, and this one was not begun
        :raises SettingError: a gradient is sparse or a group holds an unusable setting; nothing was changed
        """
        self._deferred.read()
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
        are passed over. Waits for the device.

        :param factor: what the parameters were multiplied by; > 0, finite
        :raises NonFiniteGradientError: an earlier gradient held NaN or infinity; nothing was multiplied
        """
        self._deferred.read(0)
        for parameter in parameters:
            if "utility" in self.state.get(parameter, {}):
                utility = self.state[parameter]["utility"]
                utility.copy_(upgd_state.rescaled(utility, factor))

    def _update(self, updates: Sequence[Update]) -> None:
        """Check all of them before any is prepared or changed."""
        if updates:
            self._check(updates)
            blocks = self._blocks(updates)
            for update in updates:
                self._complete(update)
            for block in blocks:
                block.fill(self._averages)
            self._change(blocks)

    def _blocks(self, updates: Sequence[Update]) -> list[Update]:
        """What the step works on: its gradients are finite, or the device leaves it out."""
        if gradient_check.is_deferred(updates):
            return self._workspace.blocks(updates, self._averages, self._deferred.admit(updates))
        self._deferred.read(0)
        blocks = self._workspace.blocks(updates, self._averages)
        return list(updates) if largest_gradient(blocks) > LARGEST_UNBOUNDED else blocks

    def _collect(self) -> list[Update]:
        return [
            Update(parameter, parameter.grad, group, (group_index, index), self.state.get(parameter, {}))
            for group_index, group in enumerate(self.param_groups)
            for index, parameter in enumerate(group["params"])
            if parameter.grad is not None and parameter.numel() > 0
        ]

    def _check(self, updates: Sequence[Update]) -> None:
        for index, group in enumerate(self.param_groups):
            settings.check_group(group, self._settings, f"param_groups[{index}]")
        for update in updates:
            if update.gradient.layout != torch.strided:
                raise SettingError(
                    "sparse",
                    f"the gradient of {update.label} is sparse: the utility needs every element. "
                    "Build the layer with sparse=False.",
                )

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
        return self._all_averages() if group["adaptive_noise"] and group["sigma"] > 0 else self._averages

    def _all_averages(self) -> upgd_state.Averages:
        return {**self._averages, **upgd_state.NOISE_AVERAGES}

    def _change(self, updates: Sequence[Update]) -> None:
        for update in updates:
            self._track_utility(update)
        extremes = self._extremes(updates)
        for update, noise in zip(updates, self._workspace.noise(updates), strict=True):
            direction = self._direction(update)
            if noise is not None:
                direction = self._perturbed(direction, noise, self._noise_std(update, direction))
            self._apply(update, direction, self._protection(self._utility(update), extremes))

    def _track_utility(self, update: Update) -> None:
        parameter = update.parameter.to(update.gradient.dtype)
        update.advance("step")
        utility = functional.weight_utility(update.gradient, parameter, out=update.workspace("gate"))
        update.average("utility", utility, update.group["beta_utility"])

    def _utility(self, update: Update) -> Tensor:
        """Bias-corrected utility, in the update's workspace."""
        return torch.div(update.state["utility"], self._correction(update), out=update.workspace("gate"))

    def _extremes(self, updates: Sequence[Update]) -> UtilityExtremes:
        """Of all utilities; the correction keeps their order, so only the ends of each average are corrected."""
        ends = [torch.stack(torch.aminmax(update.state["utility"])) / self._correction(update) for update in updates]
        return functional.utility_extremes(ends)

    def _correction(self, update: Update) -> float:
        return bias_correction(update.group["beta_utility"], update.state["step"])

    def _protection(self, utility: Tensor, extremes: UtilityExtremes) -> Tensor:
        """The share by which every weight is protected; takes the memory of ``utility``."""
        return functional.gate(utility, extremes.scale, out=utility)

    def _direction(self, update: Update) -> Tensor:
        """The direction d of the step; the parameter's shape, state dtype, finite."""
        raise NotImplementedError

    def _noise_std(self, update: Update, direction: Tensor) -> Tensor | float:
        group = update.group
        if not group["adaptive_noise"]:
            return float(group["sigma"])
        state = update.state
        update.advance("noise_step")
        update.average("direction_rms", self._noise_reference(update, direction), group["noise_beta"])
        rms: Tensor = state["direction_rms"] / bias_correction(group["noise_beta"], state["noise_step"])
        return functional.bounded((rms * group["sigma"]).clamp(min=group["min_noise_std"]))

    def _noise_reference(self, update: Update, direction: Tensor) -> Tensor:  # noqa: ARG002
        """What adaptive noise is proportional to; 0-dimensional."""
        return functional.root_mean_square(direction)

    def _perturbed(self, direction: Tensor, noise: Tensor, std: Tensor | float) -> Tensor:
        """The direction with its noise, which it takes the memory of."""
        if isinstance(std, float):
            return functional.bounded_(torch.add(direction, noise, alpha=std, out=noise))
        return functional.bounded_(noise.mul_(std).add_(direction))

    def _apply(self, update: Update, direction: Tensor, protection: Tensor) -> None:
        lr, weight_decay = update.group["lr"], update.group["weight_decay"]
        working = update.working(direction.dtype)
        working.mul_(1 - lr * weight_decay).addcmul_(direction, protection.sub_(1), value=lr)
        update.write(working)


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
    ) -> None:
        super().__init__(
            params,
            lr=lr,
            weight_decay=weight_decay,
            beta_utility=beta_utility,
            sigma=sigma,
            adaptive_noise=adaptive_noise,
            noise_beta=noise_beta,
            min_noise_std=min_noise_std,
        )

    def _direction(self, update: Update) -> Tensor:
        return update.gradient


class AdaptiveUPGD(UtilityGatedOptimizer):
    """UPGD with the direction of Adam, d = m_hat / (sqrt(v_hat) + eps).

    m and v are the averages of g and g^2 (Kingma and Ba, "Adam", ICLR 2015), bias-corrected. d does not depend on the
    scale of the gradient, so a fixed sigma already keeps the signal-to-noise ratio.

    :param params: parameters, named parameters or groups, as for any torch optimizer
    :param betas: decay of m and of v, each in [0, 1)
    :param eps: added to the root of v, positive

    The other settings and the errors are those of :class:`UPGD`.
    """

    _settings = (*settings.SHARED, "betas", "eps")
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
    ) -> None:
        super().__init__(
            params,
            lr=lr,
            weight_decay=weight_decay,
            beta_utility=beta_utility,
            sigma=sigma,
            adaptive_noise=adaptive_noise,
            noise_beta=noise_beta,
            min_noise_std=min_noise_std,
            betas=betas,
            eps=eps,
        )

    def _direction(self, update: Update) -> Tensor:
        state, gradient = update.state, update.gradient
        first_beta, second_beta = update.group["betas"]
        update.advance("moment_step")
        update.average("first_moment", gradient, first_beta)
        room = update.workspace("direction")
        update.average("second_moment", functional.bounded_(torch.mul(gradient, gradient, out=room)), second_beta)
        root = torch.sqrt(state["second_moment"], out=room)
        root.mul_(bias_correction(second_beta, state["moment_step"]) ** -0.5).add_(update.group["eps"])
        direction = torch.div(state["first_moment"], root, out=room)
        return functional.bounded_(direction.mul_(1.0 / bias_correction(first_beta, state["moment_step"])))
