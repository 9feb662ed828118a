"""One trained model, its file and its spaces, for all tests of acting from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlcore import DistributionalPPO
from tests.support.training import make_envs, make_model


@pytest.fixture(scope="package")
def model() -> DistributionalPPO:
    """A model of Pendulum whose normaliser has statistics that matter."""
    trained = make_model(make_envs("Pendulum-v1", normalize=True))
    trained.learn(48)
    statistics = trained.get_vec_normalize_env().obs_rms  # type: ignore[union-attr]
    statistics.mean, statistics.var = np.array([1.0, -19.0, 290.0]), np.array([0.02, 30.0, 1500.0])
    return trained


@pytest.fixture(scope="package")
def file(model: DistributionalPPO, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inference") / "model.zip"
    model.save(path)
    return path
