"""Variance gradient scaling: shrink all gradients by one factor while they vary much from step to step.

Per tensor the variance of the gradient over time is divided by its power; the 90th percentile over tensors, ``nv``,
gives the factor ``max(min_scaling_factor, 1 / (1 + alpha * nv))``.

What this does depends on the optimizer:

- SGD and UPGD take steps in proportion to the gradient. A factor below 1 acts as a smaller learning rate.
- UPGD adds noise of a fixed size, which the factor does not scale. The smaller the factor, the larger the noise is
  relative to the step. ``adaptive_noise=True`` lets the noise follow.
- Adam and AdaptiveUPGD divide by the size of past gradients. A constant factor cannot change their steps, except
  through ``eps`` and clipping. Only changes of the factor act, for as long as the averages remember the old one.

If the norm of the gradients is clipped after the scaling, a smaller factor means that it is clipped less often.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from rlcore.errors import CallOrderError, NonFiniteGradientError, ResumeWarning, SettingError, StateError, warn_caller
from rlcore.optim import gradient_variance
from rlcore.optim.gradient_variance import (
    ESTIMATORS,
    Estimator,
    Floats,
    Integers,
    Moments,
    Normalization,
    ScalerSettings,
    TensorLayout,
)
from rlcore.state.tree import FREE, NOT_NEGATIVE, OPTIONAL, SAME, Rule, Rules, fit, misfit
from rlcore.types import StateDict, StateValue

ScalableParameters: TypeAlias = "Iterable[nn.Parameter] | Iterable[tuple[str, nn.Parameter]]"

PERCENTILE: Final = 0.9
STATE_VERSION: Final = 1
GLOBAL_AVERAGES: Final = ("grad_mean_ema", "grad_var_ema", "grad_norm_ema")

_RULES: Final[Rules] = {
    **dict.fromkeys(("version", "shapes"), SAME),
    **dict.fromkeys(("estimator_state", *ScalerSettings.model_fields), FREE),
    "grad_mean_ema": OPTIONAL,
    **dict.fromkeys(("grad_var_ema", "grad_norm_ema"), Rule(0, optional=True)),
    **dict.fromkeys(("observations", "mean_square"), NOT_NEGATIVE),
    "grad_max_ema": Rule(free=True, may_lack=True),  # of older versions; nothing reads it
}

Count = TypeVar("Count", float, Floats)


class Pending(NamedTuple):
    """The raw gradients of one step, measured and not yet committed."""

    positions: Integers
    gradients: list[Tensor]
    moments: Moments


class VarianceGradientScaler:
    """Scales the gradients of ``parameters`` by one factor that falls as their variance over time grows.

    A step is: backward, :meth:`scale_gradients`, clip, ``optimizer.step()``, :meth:`step`. If the optimizer raises,
    nothing has been committed. Averages start at zero and are bias-corrected by each tensor's own number of
    observations; a tensor without gradient in a step is not observed in it. Copies of a scaler (pickle, deepcopy) are
    not linked to any parameter until :meth:`update_parameters` is called.

    :param parameters: parameters, or ``(name, parameter)`` pairs as of ``module.named_parameters()``
    :param enabled: False: the factor is 1 and nothing is measured
    :param beta: decay of the averages, in [0, 1)
    :param alpha: strength of the scaling, >= 0
    :param eps: added to the denominator, > 0
    :param warmup_steps: number of committed steps during which the factor is 1
    :param estimator: which variance of a tensor's gradient g, over its elements (mean_s, Var_s) and over steps (E_t,
        Var_t). ``"mean"``: M = Var_t[mean_s g]; ``"element"``: E = mean_s Var_t[g];
        ``"spatial"``: S = E_t[Var_s g], which is no noise; ``"total"``: T = M + S. All take O(1) memory per
        tensor, ``"element"`` three numbers per element
    :param normalization: denominator ``"squared_mean"``: (E_t[mean_s g])^2, the published rule, whatever the estimator;
        ``"second_moment"``: E_t[mean_s g^2], which makes a scale-free fraction
    :param min_scaling_factor: smallest factor, in [0, 1]
    :param max_normalized_variance: cap of the normalized variance of each tensor, > 0; the default lies above 90, where
        the default floor is reached (``benchmarks/vgs_defaults.py``)
    :raises SettingError: a setting, or the list of parameters, cannot be used
    """

    def __init__(
        self,
        parameters: ScalableParameters,
        *,
        enabled: bool = True,
        beta: float = 0.99,
        alpha: float = 0.1,
        eps: float = 1e-8,
        warmup_steps: int = 100,
        estimator: Estimator = "mean",
        normalization: Normalization = "squared_mean",
        min_scaling_factor: float = 0.1,
        max_normalized_variance: float = 100.0,
    ) -> None:
        self._settings = ScalerSettings(
            **{name: value for name, value in locals().items() if name in ScalerSettings.model_fields}
        )
        self._pending: Pending | None = None
        self._link(*_checked_parameters(parameters))
        self._forget()

    @property
    def settings(self) -> ScalerSettings:
        """The settings in force; loading a state replaces them."""
        return self._settings

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """The parameters whose gradients are scaled; empty for a copy that is not linked."""
        return self._parameters or ()

    @property
    def step_count(self) -> int:
        """Number of committed steps."""
        return self._step_count

    @property
    def is_warming_up(self) -> bool:
        """True while too few steps are committed for a factor other than 1."""
        return self._step_count < self._settings.warmup_steps

    @property
    def grad_mean_ema(self) -> float | None:
        """Average over steps of the mean of all gradient elements; None before the first commit, as the two below."""
        return self._global_average("grad_mean_ema")

    @property
    def grad_var_ema(self) -> float | None:
        """Average over steps of the variance between all gradient elements of a step (not a variance over time)."""
        return self._global_average("grad_var_ema")

    @property
    def grad_norm_ema(self) -> float | None:
        """Average over steps of the L2 norm of all gradients together."""
        return self._global_average("grad_norm_ema")

    @property
    def measured_norm(self) -> float:
        """L2 norm of the gradients that are pending, before they were scaled; infinite without any, and from 1e75."""
        power = math.inf if self._pending is None else self._pending.moments.power
        return math.sqrt(power) if power < gradient_variance.LARGEST else math.inf

    def scale_gradients(self) -> float:
        """Measure the raw gradients as pending, multiply them in place by the factor from committed statistics.

        A measurement still pending from a step that was never committed is replaced.

        :returns: the factor, in [min_scaling_factor, 1]
        :raises NonFiniteGradientError: a gradient holds NaN or infinity; no gradient is changed and nothing is pending
        :raises StateError: this is a copy that is not linked to parameters
        """
        if not self._settings.enabled:
            return 1.0
        self._measure()
        factor = self.get_scaling_factor()
        self._apply(factor)
        return factor

    def step(self) -> None:
        """Commit the pending measurement; does nothing when disabled.

        :raises CallOrderError: nothing is pending
        """
        if not self._settings.enabled:
            return
        if self._pending is None:
            raise CallOrderError(
                "step() has nothing to commit: no gradients were measured since the last step(). "
                "Call scale_gradients() after backward and before optimizer.step(), then step()."
            )
        self._commit(self._pending)
        self._pending = None

    def update_statistics(self) -> None:
        """Measure the gradients and commit them without scaling; raises as :meth:`scale_gradients`."""
        if self._settings.enabled:
            self._measure()
            self.step()

    def get_scaling_factor(self) -> float:
        """Return the factor that :meth:`scale_gradients` would apply now, in [min_scaling_factor, 1]."""
        if not self._settings.enabled or self.is_warming_up:
            return 1.0
        factor = 1.0 / (1.0 + self._settings.alpha * self.get_normalized_variance())
        return max(self._settings.min_scaling_factor, factor)

    def get_normalized_variance(self) -> float:
        """Return the 90th percentile of the normalized variance over the tensors observed so far; 0 if none was."""
        observed = self._observations > 0
        if not observed.any():
            return 0.0
        return _percentile(self._normalized_variances()[observed])

    def reset_statistics(self) -> None:
        """Forget all statistics, the step count and what is pending; settings and parameters stay.

        After committed steps a :class:`ResumeWarning` says how many are forgotten.
        """
        if self._step_count > 0:
            warn_caller(
                f"The gradient statistics of {self._step_count} steps are reset: the factor is 1 again until the "
                "warm-up is over.",
                ResumeWarning,
            )
        self._forget()

    def _forget(self) -> None:
        """Start with no statistics, without a warning."""
        size = len(self._layouts)
        self._step_count = 0
        self._observations = np.zeros(size, dtype=np.int64)
        self._mean, self._mean_square = np.zeros(size), np.zeros(size)
        self._global_observations = 0
        self._global_averages = np.zeros(len(GLOBAL_AVERAGES))
        self._estimator = ESTIMATORS[self._settings.estimator](self._layouts)
        self._pending = None

    def update_parameters(self, parameters: ScalableParameters) -> None:
        """Link to ``parameters``. The statistics stay if all shapes do, and start fresh with a warning if not.

        What is pending was measured on the old parameters and is dropped.

        :raises SettingError: the list of parameters cannot be used; nothing is changed
        """
        names, linked = _checked_parameters(parameters)
        statistics, shapes = self._estimator.state_dict(), [layout.shape for layout in self._layouts]
        self._link(names, linked)
        self._pending = None
        if [layout.shape for layout in self._layouts] != shapes:
            self.reset_statistics()
            return
        self._estimator = ESTIMATORS[self._settings.estimator](self._layouts)
        self._estimator.load_state_dict(statistics)
        for name in ("_observations", "_mean", "_mean_square"):  # a copy of a scaler shares them
            vars(self)[name] = vars(self)[name].copy()

    def state_dict(self) -> StateDict:
        """Return a snapshot of settings and statistics as tensors and plain Python values, without what is pending."""
        settings: StateDict = dict(iter(self._settings))
        shapes: list[StateValue] = [list(layout.shape) for layout in self._layouts]
        return {
            "version": STATE_VERSION,
            **settings,
            "step_count": self._step_count,
            "global_observations": self._global_observations,
            **{name: self._global_average(name) for name in GLOBAL_AVERAGES},
            "shapes": shapes,
            "observations": torch.from_numpy(self._observations.copy()),
            "mean": torch.from_numpy(self._mean.copy()),
            "mean_square": torch.from_numpy(self._mean_square.copy()),
            "estimator_state": self._estimator.state_dict(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a snapshot, its settings included; what is pending is dropped.

        :raises StateError: the state is of another version, damaged or for other shapes; nothing is changed
        """
        numbers: dict[Any, Any] = dict.fromkeys(GLOBAL_AVERAGES, 0.0)
        saved = fit(
            state, {**self.state_dict(), **numbers, "grad_max_ema": None}, "state of the gradient scaler", _RULES
        )
        try:
            settings = ScalerSettings(**{name: saved[name] for name in ScalerSettings.model_fields})
        except SettingError as error:
            raise StateError(f"The state of the gradient scaler holds an unusable setting: {error}") from error
        steps, observed = saved["step_count"], saved["global_observations"]
        averages = [saved[name] for name in GLOBAL_AVERAGES]
        if any((average is None) != (observed == 0) for average in averages):
            raise misfit("global_observations", "0 where the averages are None, and only there", observed)
        if observed > steps or bool((saved["observations"] > steps).any()):
            raise StateError(f"observations exceeds step_count={steps}, the state is damaged; nothing was changed.")
        estimator = ESTIMATORS[settings.estimator](self._layouts)
        estimator.load_state_dict(saved["estimator_state"])
        self._settings, self._estimator, self._step_count, self._pending = settings, estimator, steps, None
        self._observations, self._mean, self._mean_square = (
            np.array(saved[name].cpu().numpy()) for name in ("observations", "mean", "mean_square")
        )
        self._global_observations, self._global_averages = observed, np.array([average or 0.0 for average in averages])

    def __getstate__(self) -> dict[str, Any]:
        """Leave the parameters out: copies of them are not what an optimizer trains, so a copy must be linked again."""
        return {**self.__dict__, "_parameters": None, "_observable": [], "_pending": None}

    def _link(self, names: tuple[str | None, ...], parameters: tuple[nn.Parameter, ...]) -> None:
        self._names = names
        self._parameters: tuple[nn.Parameter, ...] | None = parameters
        self._observable = [(i, parameter) for i, parameter in enumerate(parameters) if parameter.numel() > 0]
        self._layouts = tuple(map(TensorLayout.of, parameters))

    def _measure(self) -> None:
        self._pending = None
        if self._parameters is None:
            raise StateError(
                "This scaler was copied or unpickled and is linked to no parameters, so it cannot scale the gradients "
                "of any; call update_parameters(model.parameters()) first."
            )
        found = {i: p.grad.detach() for i, p in self._observable if p.grad is not None}
        gradients = list(found.values())
        positions = np.array(list(found), dtype=np.int64)
        moments = gradient_variance.measure(gradients)
        if not np.isfinite(moments.mean_square).all():
            self._refuse_non_finite(found)
        self._estimator.observe(positions, gradients)
        self._pending = Pending(positions, gradients, moments)

    def _refuse_non_finite(self, gradients: dict[int, Tensor]) -> NoReturn:
        position, gradient = next((i, each) for i, each in gradients.items() if not each.isfinite().all())
        count = int((~gradient.isfinite()).sum())
        raise NonFiniteGradientError(
            self._names[position] or self._describe(position),
            f"The gradient of {self._describe(position)} holds NaN or infinity in {count} of {gradient.numel()} "
            "elements; nothing was measured or scaled. Skip this update (zero_grad) and look for the loss term that is "
            "not finite.",
        )

    def _apply(self, factor: float) -> None:
        if self._pending is not None and factor != 1.0:
            gradient_variance.scale(self._pending.gradients, factor)

    def _commit(self, pending: Pending) -> None:
        observed, moments = pending.positions, pending.moments
        self._step_count += 1
        if not len(observed):
            return
        self._observations[observed] += 1
        weights = _newest_weight(self._settings.beta, self._observations[observed].astype(np.float64))
        self._mean[observed] += weights * (moments.mean - self._mean[observed])
        self._mean_square[observed] += weights * (moments.mean_square - self._mean_square[observed])
        self._estimator.commit(observed, moments, weights)
        self._commit_global(moments)

    def _commit_global(self, moments: Moments) -> None:
        elements, power = moments.size.sum(), moments.power
        mean = float(moments.size @ moments.mean) / elements
        measures = np.array([mean, max(0.0, power / elements - mean * mean), math.sqrt(power)])
        self._global_observations += 1
        weight = _newest_weight(self._settings.beta, self._global_observations)
        self._global_averages = self._global_averages + weight * (measures - self._global_averages)

    def _normalized_variances(self) -> Floats:
        """Return variance / denominator per tensor, float64 ``[N]``, in [0, max_normalized_variance]."""
        ratio = self._estimator.variance() / (self._denominators() + self._settings.eps)
        return np.minimum(ratio, self._settings.max_normalized_variance)

    def _denominators(self) -> Floats:
        return np.square(self._mean) if self._settings.normalization == "squared_mean" else self._mean_square

    def _global_average(self, name: str) -> float | None:
        return float(self._global_averages[GLOBAL_AVERAGES.index(name)]) if self._global_observations else None

    def _describe(self, position: int) -> str:
        name = "" if self._names[position] is None else f" ({self._names[position]!r})"
        return f"parameter {position}{name}, shape {self._layouts[position].shape}"


def _newest_weight(beta: float, observations: Count) -> Count:
    """Weight of the newest of ``observations`` in a bias-corrected average: (1 - beta) / (1 - beta^t)."""
    decayed: Count = beta**observations
    return (1.0 - beta) / (1.0 - decayed)


def _percentile(values: Floats) -> float:
    """Return ``np.percentile(values, 90)``, which itself takes as long as all else that is done in a step."""
    ordered = np.sort(values)
    rank = PERCENTILE * (len(ordered) - 1)
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (rank - below) * (ordered[above] - ordered[below]))


def _checked_parameters(parameters: ScalableParameters) -> tuple[tuple[str | None, ...], tuple[nn.Parameter, ...]]:
    """Return names (None where there is none) and parameters, or raise :class:`SettingError`."""
    pairs = [each if isinstance(each, tuple) and len(each) == 2 else (None, each) for each in parameters]
    problem = "holds a parameter more than once" if pairs else "is empty; was a generator used up before?"
    for position, (_, tensor) in enumerate(pairs):
        if not isinstance(tensor, nn.Parameter) or not tensor.is_floating_point():
            kind = tensor.dtype if isinstance(tensor, nn.Parameter) else type(tensor).__name__
            raise SettingError("parameters", f"parameters[{position}] is a {kind}; pass module.parameters().")
    if not pairs or len({id(tensor) for _, tensor in pairs}) != len(pairs):
        raise SettingError("parameters", f"parameters {problem}, so its gradients cannot be scaled.")
    return tuple(name for name, _ in pairs), tuple(tensor for _, tensor in pairs)
