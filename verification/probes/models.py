"""Helpers that several probes share."""

from __future__ import annotations

import io
import warnings
from contextlib import suppress

from torch import Tensor

from rlcore import DistributionalPPO, NonFiniteGradientError, ResumeWarning, VarianceGradientScaler
from verification.probes.make import Make


def scaler_of(model: DistributionalPPO) -> VarianceGradientScaler:
    """Return the model's scaler, which must exist."""
    scaler = model.variance_gradient_scaler
    assert scaler is not None, "the model under test was made with variance gradient scaling"
    return scaler


def saved_and_loaded(make: Make, model: DistributionalPPO, seed: int, *, with_env: bool = True) -> DistributionalPPO:
    """Save and load the model, without warnings about state that starts fresh."""
    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    envs = make.envs(seed, n_envs=model.n_envs) if with_env else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)
        return type(model).load(file, env=envs, device="cpu")


def step_or_refusal(model: DistributionalPPO, loss: Tensor) -> None:
    """Take one step, or none if the norm of the gradients exceeds float32."""
    with suppress(NonFiniteGradientError):
        model._optimize(loss)
