"""UPGD's noise with scaled gradients: document 000's problem, and every proposed fix."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcore.optim.upgd_step import Scalar, Update
from rlcore.ppo import losses
from rlverify import fault, healthy


def _step(self: Any, loss: Tensor, factor: float | None = None) -> float:
    """Step in the documented order, with noise of a fixed size: backward, scale, optimizer with noise, scaler.

    :param factor: replaces the scaler's own factor
    """
    scaler = self.variance_gradient_scaler
    _fix_noise(self)
    self.policy.optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    if scaler is not None:
        own = scaler.get_scaling_factor()
        applied = scaler.scale_gradients()
        if factor is not None and own > 0:
            for parameter in self.policy.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(factor / own)
            applied = factor
    losses.clip_norm(self.policy.named_parameters(), self.max_grad_norm)
    self.policy.optimizer.step()
    if scaler is not None:
        scaler.step()
        return float(applied)
    return 1.0


def _fix_noise(self: Any) -> None:
    for group in self.policy.optimizer.param_groups:
        group["adaptive_noise"] = False


@fault(
    "int-04-noise-of-fixed-size",
    target="rlcore.ppo.algorithm:DistributionalPPO._optimize",
    pins="a156c4d88ff49d55",
    area="optimizers",
)
def noise_of_fixed_size(self: Any, loss: Tensor) -> float:
    """Add noise of a fixed size, whatever the scaling of the gradient."""
    return _step(self, loss)


@fault(
    "int-04-option-1-variance-with-noise",
    target="rlcore.ppo.algorithm:DistributionalPPO._optimize",
    pins="a156c4d88ff49d55",
    area="optimizers",
)
def variance_with_noise(self: Any, loss: Tensor) -> float:
    """Apply document 000's option 1: effective_variance = observed_variance + sigma^2."""
    scaler = self.variance_gradient_scaler
    if scaler is None or scaler.is_warming_up:
        return _step(self, loss)
    (sigma,) = {group["sigma"] for group in self.policy.optimizer.param_groups}
    settings = scaler.settings
    effective = scaler._estimator.variance() + sigma**2
    normalized = np.minimum(effective / (scaler._denominators() + settings.eps), settings.max_normalized_variance)
    factor = 1.0 / (1.0 + settings.alpha * float(np.percentile(normalized[scaler._observations > 0], 90)))
    return _step(self, loss, max(settings.min_scaling_factor, factor))


@fault(
    "int-04-option-2-scaled-after-the-step",
    target="rlcore.ppo.algorithm:DistributionalPPO._optimize",
    pins="a156c4d88ff49d55",
    area="optimizers",
)
def scaled_after_the_step(self: Any, loss: Tensor) -> float:
    """Apply document 000's option 2: backward, optimizer.step(), vgs.scale_gradients(), vgs.step()."""
    scaler = self.variance_gradient_scaler
    _fix_noise(self)
    self.policy.optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    losses.clip_norm(self.policy.named_parameters(), self.max_grad_norm)
    self.policy.optimizer.step()
    if scaler is None:
        return 1.0
    factor: float = scaler.scale_gradients()
    scaler.step()
    return factor


@fault(
    "int-04-option-3-weaker-scaling",
    target="rlcore.ppo.algorithm:DistributionalPPO._optimize",
    pins="a156c4d88ff49d55",
    area="optimizers",
)
def weaker_scaling(self: Any, loss: Tensor) -> float:
    """Apply document 000's option 3: half the alpha (0.05, not 0.1) and twice the warm-up (200, not 100)."""
    scaler = self.variance_gradient_scaler
    if scaler is not None and scaler.step_count == 0:
        state = scaler.state_dict()
        scaler.load_state_dict({**state, "alpha": state["alpha"] / 2, "warmup_steps": 2 * state["warmup_steps"]})
    return _step(self, loss)


@fault(
    "int-04-fix-noise-follows-the-norm-of-the-gradient",
    target="rlcore.optim.upgd:UPGD._noise_std",
    pins="6d0f820dd28f71f4",
    area="optimizers",
)
def noise_follows_the_norm_of_the_gradient(self: Any, update: Update, rms: Tensor) -> Scalar:  # noqa: ARG001
    """Scale noise as document 001 does: sigma times the averaged gradient norm, in both optimizers."""
    norm = torch.linalg.vector_norm(update.gradient)
    std: Scalar = healthy("int-04-fix-noise-follows-the-norm-of-the-gradient")(self, update, norm)
    return std


@fault(
    "asr-05-adaptive-noise-that-does-not-adapt",
    target="rlcore.optim.upgd:UPGD._noise_std",
    pins="6d0f820dd28f71f4",
    area="optimizers",
)
def adaptive_noise_that_does_not_adapt(self: Any, update: Update, rms: Tensor) -> Scalar:  # noqa: ARG001
    """Use sigma as the size of the noise, even where it should follow the step."""
    return float(update.group["sigma"])
