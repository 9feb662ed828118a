"""A file of an interrupted training, which tests damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore.resume import save_exact
from tests.core.resume.small_models import ppo


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = ppo()
    model.learn(16)
    path = tmp_path_factory.mktemp("saved") / "ppo.zip"
    save_exact(model, path)
    return path
