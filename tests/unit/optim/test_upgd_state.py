"""UPGD and AdaptiveUPGD: the precision of their state, and what they save and restore."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from rlcore.errors import SettingError, StateError
from rlcore.optim import UPGD, AdaptiveUPGD
from tests.unit.optim.upgd_steps import (
    BOTH,
    SETTINGS,
    assert_same,
    every_parameter,
    make_parameters,
    parameters_of,
    snapshot,
    take_steps,
)  # fmt: skip

COUNTERS = {"step": ("utility",), "moment_step": ("first_moment", "second_moment"), "noise_step": ("direction_rms",)}


def restored(optimizer: Any, how: str) -> Any:
    if how == "deepcopy":
        return copy.deepcopy(optimizer)
    if how == "pickle":
        return pickle.loads(pickle.dumps(optimizer))  # noqa: S301 - its own bytes
    fresh = type(optimizer)([nn.Parameter(tensor) for tensor in parameters_of(optimizer)])
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    fresh.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    return fresh


def stepped(optimizer_class: Any = UPGD, steps: int = 3, **settings: Any) -> Any:
    optimizer = optimizer_class(make_parameters(), **{**SETTINGS, **settings})
    take_steps(optimizer, 0, steps)
    return optimizer


class TestState:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("how", ["state_dict", "deepcopy", "pickle"])
    @BOTH
    def test_restored_optimizer_continues_to_the_bit(self, optimizer_class: Any, how: str, dtype: torch.dtype) -> None:
        """With the noise of the source, and as a copy."""
        optimizer = optimizer_class(make_parameters(dtype), **SETTINGS, seed=2**64 - 1)
        take_steps(optimizer, 0, 5)
        other = restored(optimizer, how)
        assert_same(other.state_dict(), optimizer.state_dict())
        before = snapshot(other)[:2]
        take_steps(optimizer, 5, 5)
        assert_same(snapshot(other)[:2], before)
        take_steps(other, 5, 5)
        assert_same(snapshot(other)[:2], snapshot(optimizer)[:2])

    def test_a_state_has_these_keys_and_dtypes(self) -> None:
        entries = stepped(AdaptiveUPGD).state_dict()["state"]
        names = [name for counter, names in COUNTERS.items() for name in (counter, *names)]
        assert [set(entry) for entry in entries.values()] == [set(names)] * 2
        assert {name: type(entries[0][name]) for name in COUNTERS} == dict.fromkeys(COUNTERS, int)
        shapes = {name: tuple(entries[0][name].shape) for name in names if name not in COUNTERS}
        assert shapes == {"direction_rms": (), **dict.fromkeys(("utility", "first_moment", "second_moment"), (3, 2))}

    @pytest.mark.parametrize(
        ("saved", "wanted", "device"),
        [
            (torch.float64, torch.float32, "cpu"),
            (torch.float32, torch.float64, "cpu"),
            (torch.float32, torch.float32, "meta"),
        ],
    )
    def test_a_state_takes_precision_and_device_of_its_parameters(
        self, saved: torch.dtype, wanted: torch.dtype, device: str
    ) -> None:
        source = UPGD(make_parameters(saved))
        optimizer = UPGD([nn.Parameter(parameter.detach().to(device)) for parameter in make_parameters(wanted)])
        take_steps(source, 0, 1)
        optimizer.load_state_dict(source.state_dict())
        for given, taken in zip(source.state.values(), optimizer.state.values(), strict=True):
            assert (taken["utility"].dtype, taken["utility"].device.type) == (wanted, device)
            assert device == "meta" or torch.equal(taken["utility"], given["utility"].to(wanted))

    @BOTH
    def test_groups_saved_before_a_setting_existed_take_the_constructors_value(self, optimizer_class: Any) -> None:
        saved = optimizer_class(make_parameters()).state_dict()
        for name in ("adaptive_noise", "noise_beta", "min_noise_std", "sigma"):
            del saved["param_groups"][0][name]
        optimizer = optimizer_class(make_parameters(), sigma=0.5, adaptive_noise=True)
        optimizer.load_state_dict(saved)
        take_steps(optimizer, 0, 1)
        group = optimizer.param_groups[0]
        assert (group["sigma"], group["adaptive_noise"], group["noise_beta"]) == (0.5, True, 0.999)

    def test_state_of_another_optimizer_starts_fresh(self) -> None:
        adam = torch.optim.Adam(make_parameters())
        take_steps(adam, 0, 7)
        saved = adam.state_dict()
        for group in saved["param_groups"]:
            group.pop("betas")
        optimizer = UPGD(make_parameters())
        optimizer.load_state_dict(saved)
        take_steps(optimizer, 7, 1)
        state = optimizer.state[every_parameter(optimizer)[0]]
        assert (state.keys(), state["step"]) == ({"step", "utility"}, 1)

    @pytest.mark.parametrize("value", [4.0, torch.tensor(4.0)])
    def test_step_counters_saved_as_other_numbers_are_read(self, value: Any) -> None:
        optimizer = stepped(steps=4)
        saved = copy.deepcopy(optimizer.state_dict())
        for entries in saved["state"].values():
            entries["step"] = value
        optimizer.load_state_dict(saved)
        assert_same(optimizer.state[every_parameter(optimizer)[0]]["step"], 4)

    @pytest.mark.parametrize(
        ("keys", "value", "error", "message"),
        [
            *((("state", 1, "step"), value, StateError, r"state\[1\]\['step'\]")
              for value in (True, "4", None, (4,), float("nan"), float("inf"), torch.ones(2), -1, 1.5, 2**53 + 1)),
            *((("state", 1, "utility"), value, StateError, r"state\[1\]\['utility'\].*\(3, 2\)")
              for value in (torch.zeros(2, 3), torch.zeros(3, 2).long(), None)),
            (("state", 1, "utility"), torch.full((3, 2), torch.nan), StateError, r"state\[1\]\['utility'\] holds NaN"),
            (("state", 1, "direction_rms"), "1.0", StateError, r"state\[1\]\['direction_rms'\].*'1.0'"),
            (("param_groups", 0, "params"), [0], StateError, r"groups of \[1\] parameters, the optimizer has \[2\]"),
            (("param_groups", 0, "lr"), float("nan"), SettingError, r"param_groups\[0\]\['lr'\]=nan"),
            (("param_groups",), None, StateError, "missing keys.*param_groups"),
        ],
    )  # fmt: skip
    def test_state_that_does_not_fit_changes_nothing(
        self, keys: tuple[Any, ...], value: Any, error: type[Exception], message: str
    ) -> None:
        optimizer = stepped()
        saved = copy.deepcopy(optimizer.state_dict())
        place: Any = saved
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value
        if keys == ("param_groups",):
            del saved["param_groups"]
        before = snapshot(optimizer)
        with pytest.raises(error, match=message):
            optimizer.load_state_dict(saved)
        assert_same(snapshot(optimizer), before)
