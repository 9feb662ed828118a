"""What an exploit hands over, asked of a model that is none: whatever it is given, it takes."""

from __future__ import annotations

from unittest.mock import MagicMock

from rlcore.pbt.turns import transferred_parts


def test_an_exploit_hands_over_the_statistics_of_the_source() -> None:
    source = {"policy": {"weight": 1.0}, "vgs_state": {"step_count": 10}}
    model = MagicMock()
    model.get_parameters.return_value = {"policy": {"weight": 0.0}, "vgs_state": {"step_count": 4}}
    model.get_parameters.return_value |= {"policy.optimizer": {}, "return_scale_state": None}
    model.set_parameters(transferred_parts(model, source, "reset"))
    (handed_over,) = model.set_parameters.call_args.args
    assert "policy" in handed_over
    assert handed_over["vgs_state"] == {"step_count": 10}
