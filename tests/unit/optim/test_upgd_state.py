"""UPGD and AdaptiveUPGD: the precision of their state, and what they save and restore."""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlcore.errors import ResumeWarning, SettingError, StateError
from rlcore.optim.upgd import UPGD, AdaptiveUPGD
from tests.unit.optim.upgd_steps import (
    BOTH,
    SETTINGS,
    assert_same,
    make_parameters,
    parameters_of,
    snapshot,
    take_steps,
)


def through_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)


class TestState:
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    @BOTH
    def test_low_precision_parameters_have_float32_state(self, optimizer_class: Any, dtype: torch.dtype) -> None:
        parameter = nn.Parameter(torch.ones(4, dtype=dtype))
        optimizer = optimizer_class([parameter], lr=0.1, sigma=0.1, adaptive_noise=True, weight_decay=0.0)
        for _ in range(500):
            parameter.data.fill_(1.0)
            parameter.grad = torch.full((4,), -1.0, dtype=dtype)
            optimizer.step()
        state = optimizer.state[parameter]
        dtypes = {name: entry.dtype for name, entry in state.items() if isinstance(entry, Tensor)}
        assert dtypes.keys() >= {"utility", "direction_rms"}
        assert set(dtypes.values()) == {torch.float32}
        # In bfloat16 an average with decay 0.999 stops where its step falls below half a spacing, at about 0.25.
        assert state["utility"].tolist() == pytest.approx([1 - 0.999**500] * 4, rel=1e-4)
        assert parameter.dtype == dtype
        assert torch.isfinite(parameter).all()

    def restored(self, optimizer: Any, how: str) -> Any:
        if how == "deepcopy":
            return copy.deepcopy(optimizer)
        if how == "pickle":
            return pickle.loads(pickle.dumps(optimizer))  # noqa: S301 - its own bytes
        parameters = [nn.Parameter(tensor) for tensor in parameters_of(optimizer)]
        fresh = type(optimizer)(parameters)
        fresh.load_state_dict(through_file(optimizer.state_dict()))
        return fresh

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("how", ["state_dict", "deepcopy", "pickle"])
    @BOTH
    def test_restored_optimizer_continues_to_the_bit(self, optimizer_class: Any, how: str, dtype: torch.dtype) -> None:
        optimizer = optimizer_class(make_parameters(dtype), **SETTINGS)
        take_steps(optimizer, 0, 5)
        other = self.restored(optimizer, how)
        assert_same(other.state_dict()["state"], optimizer.state_dict()["state"])
        take_steps(optimizer, 5, 5)
        take_steps(other, 5, 5)
        assert_same(snapshot(other)[:2], snapshot(optimizer)[:2])

    def test_restored_state_is_a_copy(self) -> None:
        optimizer = UPGD(make_parameters())
        take_steps(optimizer, 0, 1)
        other = UPGD(make_parameters())
        other.load_state_dict(optimizer.state_dict())
        before = copy.deepcopy(optimizer.state_dict())
        take_steps(other, 1, 1)
        assert_same(optimizer.state_dict(), before)

    @pytest.mark.parametrize(
        ("saved", "wanted"), [(torch.float64, torch.float32), (torch.float32, torch.float64)], ids=["less", "more"]
    )
    def test_a_state_saved_in_another_precision_takes_that_of_its_parameters(
        self, saved: torch.dtype, wanted: torch.dtype
    ) -> None:
        source, optimizer = UPGD(make_parameters(saved)), UPGD(make_parameters(wanted))
        take_steps(source, 0, 1)
        optimizer.load_state_dict(source.state_dict())
        for given, taken in zip(source.state.values(), optimizer.state.values(), strict=True):
            assert_same(taken["utility"], given["utility"].to(wanted))
        take_steps(optimizer, 1, 1)

    def test_a_state_goes_to_the_device_of_its_parameters(self) -> None:
        source = UPGD(make_parameters())
        take_steps(source, 0, 1)
        optimizer = UPGD([nn.Parameter(parameter.to("meta")) for parameter in make_parameters()])
        optimizer.load_state_dict(source.state_dict())
        assert [state["utility"].device.type for state in optimizer.state.values()] == ["meta", "meta"]

    def test_hooks_of_others_see_and_change_the_state_that_is_restored(self) -> None:
        optimizer = UPGD(make_parameters(torch.bfloat16))
        take_steps(optimizer, 0, 3)
        other = UPGD(make_parameters(torch.bfloat16))
        seen: list[torch.dtype] = []

        def forget_second(_: Any, state: dict[str, Any]) -> dict[str, Any]:
            return {**state, "state": {0: state["state"][0]}}

        other.register_load_state_dict_pre_hook(forget_second)
        other.register_load_state_dict_post_hook(
            lambda loaded: seen.extend(entry["utility"].dtype for entry in loaded.state.values())
        )
        other.load_state_dict(optimizer.state_dict())
        assert len(other.state) == 1
        assert seen == [torch.float32]
        assert len(other._optimizer_load_state_dict_pre_hooks) == 1
        assert len(other._optimizer_load_state_dict_post_hooks) == 1

    @BOTH
    def test_adaptive_noise_switched_on_over_existing_state(self, optimizer_class: Any) -> None:
        optimizer = optimizer_class(make_parameters(torch.float64), lr=0.1, sigma=0.1)
        take_steps(optimizer, 0, 50)
        optimizer.param_groups[0]["adaptive_noise"] = True
        take_steps(optimizer, 50, 1)
        state = optimizer.state[optimizer.param_groups[0]["params"][0]]
        assert (state["step"], state["noise_step"]) == (51, 1)
        # One observation with its full weight of 1 - noise_beta: the RMS of a standard normal gradient of six elements.
        assert 0.2 < float(state["direction_rms"]) / (1 - 0.999) < 3

    @BOTH
    def test_groups_saved_before_a_setting_existed_take_the_constructors_value(self, optimizer_class: Any) -> None:
        saved = optimizer_class(make_parameters()).state_dict()
        for name in ("adaptive_noise", "noise_beta", "min_noise_std", "sigma"):
            del saved["param_groups"][0][name]
        optimizer = optimizer_class(make_parameters(), sigma=0.5, adaptive_noise=True)
        optimizer.load_state_dict(saved)
        take_steps(optimizer, 0, 1)
        assert optimizer.param_groups[0]["sigma"] == 0.5
        assert optimizer.param_groups[0]["adaptive_noise"] is True
        assert optimizer.param_groups[0]["noise_beta"] == 0.999

    @staticmethod
    def _without_seeds(optimizer: Any) -> dict[str, Any]:
        """The state as it was saved before noise had a seed."""
        saved: dict[str, Any] = copy.deepcopy(optimizer.state_dict())
        for group in saved["param_groups"]:
            del group["seed"]
        return saved

    @BOTH
    def test_a_state_without_a_seed_is_loaded_with_one_warning_and_the_constructors_seed(
        self, optimizer_class: Any
    ) -> None:
        optimizer, other = (
            optimizer_class([{"params": make_parameters()}, {"params": make_parameters()}], **SETTINGS, seed=seed)
            for seed in (1, 2)
        )
        take_steps(optimizer, 0, 3)
        remedy = r"to choose it, .* or optimizer_kwargs=\{\"seed\": \.\.\.\} to DistributionalPPO\.$"
        with pytest.warns(ResumeWarning, match=f"no noise seed.*{remedy}") as caught:
            other.load_state_dict(self._without_seeds(optimizer))
        assert len(caught) == 1
        assert [group["seed"] for group in other.param_groups] == [2, 2]
        assert_same(other.state_dict()["state"], optimizer.state_dict()["state"])
        take_steps(other, 3, 1)

    def test_the_warning_of_a_missing_seed_points_at_who_loads_the_state(self) -> None:
        optimizer, other = (UPGD(make_parameters(), **SETTINGS) for _ in range(2))
        take_steps(optimizer, 0, 1)
        with pytest.warns(ResumeWarning, match="no noise seed") as caught:
            other.load_state_dict(self._without_seeds(optimizer))
        assert [warning.filename for warning in caught] == [__file__]

    @pytest.mark.parametrize("sigma", [0.0, 0.5])
    def test_where_a_state_has_no_sigma_either_the_constructors_tells_whether_a_seed_is_missed(
        self, sigma: float
    ) -> None:
        optimizer, other = UPGD(make_parameters(), sigma=0.1), UPGD(make_parameters(), sigma=sigma)
        take_steps(optimizer, 0, 3)
        saved = self._without_seeds(optimizer)
        del saved["param_groups"][0]["sigma"]
        with pytest.warns(ResumeWarning, match="no noise seed") if sigma else contextlib.nullcontext():
            other.load_state_dict(saved)
        assert other.param_groups[0]["sigma"] == sigma

    def test_a_state_without_a_seed_changes_nothing_where_warnings_are_errors(self) -> None:
        optimizer, other = UPGD(make_parameters(), **SETTINGS), UPGD(make_parameters(), **SETTINGS)
        take_steps(optimizer, 0, 3)
        before = snapshot(other)
        with pytest.raises(ResumeWarning):
            other.load_state_dict(self._without_seeds(optimizer))
        assert_same(snapshot(other), before)

    @pytest.mark.parametrize(("sigma", "steps"), [(0.0, 3), (0.1, 0)])
    def test_where_no_noise_was_drawn_no_seed_is_missed(self, sigma: float, steps: int) -> None:
        optimizer, other = UPGD(make_parameters(), sigma=sigma), UPGD(make_parameters(), sigma=0.5)
        take_steps(optimizer, 0, steps)
        other.load_state_dict(self._without_seeds(optimizer))

    @BOTH
    def test_a_loaded_seed_gives_the_noise_of_the_source(self, optimizer_class: Any) -> None:
        source, other = (optimizer_class(make_parameters(), lr=0.1, sigma=0.5, seed=seed) for seed in (2**64 - 1, 5))
        take_steps(source, 0, 2)
        other.load_state_dict(through_file(source.state_dict()))
        for mine, theirs in zip(other.param_groups[0]["params"], parameters_of(source), strict=True):
            mine.data = theirs
        take_steps(source, 2, 3)
        take_steps(other, 2, 3)
        assert other.param_groups[0]["seed"] == 2**64 - 1
        assert_same(parameters_of(other), parameters_of(source))

    def test_an_optimizer_pickled_before_noise_had_a_seed_draws_one(self) -> None:
        content = UPGD(make_parameters()).__getstate__()
        for settings in (content["defaults"], *content["param_groups"]):
            del settings["seed"]
        revived = UPGD.__new__(UPGD)
        revived.__setstate__(content)
        take_steps(revived, 0, 1)
        assert type(revived.defaults["seed"]) is int
        assert revived.param_groups[0]["seed"] == revived.defaults["seed"]
        assert revived.skipped_steps == 0

    def test_optimizer_pickled_before_a_setting_existed_takes_the_default(self) -> None:
        optimizer = UPGD(make_parameters())
        content = optimizer.__getstate__()
        for settings in (content["defaults"], *content["param_groups"]):
            del settings["noise_beta"]
        revived = UPGD.__new__(UPGD)
        revived.__setstate__(content)
        take_steps(revived, 0, 1)
        revived.add_param_group({"params": make_parameters()})
        assert [group["noise_beta"] for group in revived.param_groups] == [0.999, 0.999]

    @pytest.mark.parametrize("missing", ["utility", "step", "first_moment", "moment_step", "direction_rms"])
    def test_missing_average_starts_fresh_and_is_corrected_by_its_own_steps(self, missing: str) -> None:
        """Compared with an optimizer that really starts that average at the same place."""
        optimizer = AdaptiveUPGD(make_parameters(), **SETTINGS)
        take_steps(optimizer, 0, 30)
        saved = copy.deepcopy(optimizer.state_dict())
        for entries in saved["state"].values():
            del entries[missing]
        optimizer.load_state_dict(saved)
        take_steps(optimizer, 30, 1)
        state = optimizer.state[optimizer.param_groups[0]["params"][0]]
        families = {"step": ("utility",), "moment_step": ("first_moment",), "noise_step": ("direction_rms",)}
        fresh = next(counter for counter, names in families.items() if missing in (counter, *names))
        assert {counter: state[counter] for counter in families} == {
            counter: 1 if counter == fresh else 31 for counter in families
        }
        assert all(torch.isfinite(entry).all() for entry in state.values() if isinstance(entry, Tensor))

    def test_restored_settings_are_plain_numbers_and_the_given_state_is_left_alone(self) -> None:
        optimizer = AdaptiveUPGD([nn.Parameter(torch.ones(2))])
        state = optimizer.state_dict()
        state["param_groups"][0] |= {"sigma": np.float64(0.1), "betas": [np.float64(0.5), np.float32(0.25)]}
        optimizer.load_state_dict(state)
        sigma, betas = (optimizer.param_groups[0][name] for name in ("sigma", "betas"))
        assert (sigma, betas) == (0.1, (0.5, 0.25))
        assert {type(value) for value in (sigma, *betas)} == {float}
        assert type(state["param_groups"][0]["sigma"]) is np.float64

    def test_state_of_another_optimizer_starts_fresh(self) -> None:
        adam = torch.optim.Adam(make_parameters())
        take_steps(adam, 0, 7)
        optimizer = UPGD(make_parameters())
        saved = adam.state_dict()
        for group in saved["param_groups"]:
            group.pop("betas")
        optimizer.load_state_dict(saved)
        take_steps(optimizer, 7, 1)
        assert optimizer.state[optimizer.param_groups[0]["params"][0]]["step"] == 1

    def test_step_counters_saved_as_tensors_are_read(self) -> None:
        optimizer = UPGD(make_parameters())
        take_steps(optimizer, 0, 4)
        saved = copy.deepcopy(optimizer.state_dict())
        for entries in saved["state"].values():
            entries["step"] = torch.tensor(4.0)
        optimizer.load_state_dict(saved)
        take_steps(optimizer, 4, 1)
        step = optimizer.state[optimizer.param_groups[0]["params"][0]]["step"]
        assert type(step) is int
        assert step == 5

    @pytest.mark.parametrize("value", [True, "4", None, (4,), float("nan"), float("inf"), torch.ones(2)])
    def test_a_counter_that_is_no_whole_number_is_refused(self, value: Any) -> None:
        optimizer = UPGD(make_parameters())
        take_steps(optimizer, 0, 1)
        saved = copy.deepcopy(optimizer.state_dict())
        saved["state"][1]["step"] = value
        with pytest.raises(StateError, match=r"state\[1\]\['step'\] is .*whole number"):
            optimizer.load_state_dict(saved)

    @staticmethod
    def _swap_shape(saved: dict[str, Any]) -> None:
        saved["state"][1]["utility"] = torch.zeros(2, 3)

    @staticmethod
    def _poison(saved: dict[str, Any]) -> None:
        saved["state"][1]["utility"][0, 0] = float("nan")

    @staticmethod
    def _negative_step(saved: dict[str, Any]) -> None:
        saved["state"][1]["step"] = -1

    @staticmethod
    def _half_step(saved: dict[str, Any]) -> None:
        saved["state"][1]["step"] = 1.5

    @staticmethod
    def _not_a_tensor(saved: dict[str, Any]) -> None:
        saved["state"][1]["direction_rms"] = "1.0"

    @staticmethod
    def _one_parameter_less(saved: dict[str, Any]) -> None:
        saved["param_groups"][0]["params"].pop()

    @staticmethod
    def _no_groups(saved: dict[str, Any]) -> None:
        del saved["param_groups"]

    @staticmethod
    def _bad_setting(saved: dict[str, Any]) -> None:
        saved["param_groups"][0]["lr"] = float("nan")

    @pytest.mark.parametrize(
        ("damage", "error", "message"),
        [
            ("_swap_shape", StateError, r"state\[1\]\['utility'\] is torch.float32 of shape \(2, 3\).*\(3, 2\)"),
            ("_poison", StateError, r"state\[1\]\['utility'\] holds NaN"),
            ("_negative_step", StateError, r"state\[1\]\['step'\] is -1"),
            ("_half_step", StateError, r"state\[1\]\['step'\] is 1.5"),
            ("_not_a_tensor", StateError, r"state\[1\]\['direction_rms'\] is '1.0'"),
            ("_one_parameter_less", StateError, r"groups of \[1\] parameters, the optimizer has \[2\]"),
            ("_no_groups", StateError, r"entries \['state'\]"),
            ("_bad_setting", SettingError, r"param_groups\[0\]\['lr'\]=nan"),
        ],
    )
    def test_state_that_does_not_fit_changes_nothing(self, damage: str, error: type[Exception], message: str) -> None:
        optimizer = UPGD(make_parameters(), **SETTINGS)
        take_steps(optimizer, 0, 2)
        saved = copy.deepcopy(optimizer.state_dict())
        getattr(self, damage)(saved)
        before = snapshot(optimizer)
        with pytest.raises(error, match=message):
            optimizer.load_state_dict(saved)
        assert_same(snapshot(optimizer), before)
        assert not optimizer._optimizer_load_state_dict_pre_hooks
        assert not optimizer._optimizer_load_state_dict_post_hooks
