"""Going on with a saved model: settings that hold arrays are compared, what no file holds is today's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.torch_layers import FlattenExtractor

from rlcore import DistributionalPPO, SettingError
from rlcore.ppo.continuing import continued
from tests.support.training import make_model


class Scaled(FlattenExtractor):
    """Takes an array among its settings."""

    def __init__(self, space: spaces.Space[Any], scale: Any) -> None:
        super().__init__(space)
        self.scale = scale


def built(scale: Any, rate: Any = 1e-3) -> DistributionalPPO:
    extractor = {"features_extractor_class": Scaled, "features_extractor_kwargs": {"scale": scale}}
    return make_model(learning_rate=rate, policy_kwargs={"lstm_hidden_size": 8, **extractor})


def test_arrays_among_the_settings_are_compared(tmp_path: Path) -> None:
    built(np.arange(3.0)).save(tmp_path / "model.zip")
    same = continued(tmp_path / "model.zip", built(np.arange(3.0)))
    np.testing.assert_array_equal(same.policy_kwargs["features_extractor_kwargs"]["scale"], np.arange(3.0))
    with pytest.raises(SettingError, match="is asked for") as caught:
        continued(tmp_path / "model.zip", built(np.arange(4.0)))
    assert caught.value.setting == "policy_kwargs"


def test_a_function_that_no_file_holds_is_the_one_of_today(tmp_path: Path) -> None:
    def rate(remaining: float) -> float:
        return 1e-3 * remaining

    built(1.0, rate).save(tmp_path / "model.zip")
    assert continued(tmp_path / "model.zip", built(1.0, rate)).learning_rate is rate
    with pytest.raises(SettingError, match=r"learning_rate=0\.5 is asked for"):
        continued(tmp_path / "model.zip", built(1.0, 0.5))
