"""Errors arrive whole from another process."""

from __future__ import annotations

import copy

import pytest

from rlcore import CheckpointError, ConfigFileError, NonFiniteGradientError, RLCoreError, SettingError, StateError


@pytest.mark.parametrize(
    "error",
    [
        SettingError("gamma", "gamma=2 cannot be used"),
        CheckpointError("model.zip", "is damaged"),
        ConfigFileError("run.yaml", 3, "is no YAML"),
        NonFiniteGradientError("actor.weight", "holds NaN"),
        StateError("does not fit"),
    ],
)
def test_a_rebuilt_error_has_its_type_its_message_and_its_fields(error: RLCoreError) -> None:
    found = copy.copy(error)  # by what pickle asks for, too
    assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))
