"""Short ways to get at what several probes look at."""

from __future__ import annotations

import io
import warnings
from contextlib import suppress

from torch import Tensor

from rlcore import DistributionalPPO, NonFiniteGradientError, ResumeWarning, VarianceGradientScaler
from verification.probes.make import Make


def scaler_of(model: DistributionalPPO) -> VarianceGradientScaler:
    """The model's scaler, which must be there."""
    scaler = model.variance_gradient_scaler
    assert scaler is not None, "the model under test was made with variance gradient scaling"
    return scaler


def saved_and_loaded(make: Make, model: DistributionalPPO, seed: int, *, with_env: bool = True) -> DistributionalPPO:
    """The model after save() and load(), which say nothing of what they start fresh."""
    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    envs = make.envs(seed, n_envs=model.n_envs) if with_env else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)
        return type(model).load(file, env=envs, device="cpu")


def step_or_refusal(model: DistributionalPPO, loss: Tensor) -> None:
    """One step, or none where the norm of the gradients is more than float32 holds."""
    with suppress(NonFiniteGradientError):
        model._optimize(loss)
