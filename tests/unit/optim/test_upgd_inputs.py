"""UPGD and AdaptiveUPGD: what they are given (settings, groups, gradients) and what they save and restore."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlcore.errors import NonFiniteGradientError, SettingError, StateError
from rlcore.optim import upgd_settings
from rlcore.optim.upgd import UPGD, AdaptiveUPGD

BOTH = pytest.mark.parametrize("optimizer_class", [UPGD, AdaptiveUPGD])
NUMBERS = ["lr", "weight_decay", "sigma", "min_noise_std"]
DECAYS = ["beta_utility", "noise_beta"]


def make_parameters(dtype: torch.dtype = torch.float32, count: int = 2) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn((3, 2), generator=generator).to(dtype)) for _ in range(count)]


def take_steps(optimizer: torch.optim.Optimizer, first: int, count: int) -> None:
    """Steps whose gradients and noise depend on the step index alone."""
    for step in range(first, first + count):
        generator = torch.Generator().manual_seed(100 + step)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
        torch.manual_seed(step)
        optimizer.step()


def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter.detach().clone() for group in optimizer.param_groups for parameter in group["params"]]


def snapshot(optimizer: torch.optim.Optimizer) -> tuple[list[Tensor], Any, Tensor]:
    return parameters_of(optimizer), copy.deepcopy(optimizer.state_dict()), torch.get_rng_state()


def assert_same(left: Any, right: Any) -> None:
    """Equal to the bit, through all containers."""
    assert type(left) is type(right)
    if isinstance(left, Tensor):
        assert left.dtype == right.dtype
        assert torch.equal(left, right)
    elif isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    else:
        assert left == right


SETTINGS = {"lr": 0.1, "sigma": 0.1, "adaptive_noise": True, "beta_utility": 0.99}
BAD = [
    *((name, value) for name in NUMBERS for value in (-1e-9, float("nan"), float("inf"), True, "0.1", None, 1e300)),
    *((name, value) for name in DECAYS for value in (-0.1, 1.0, 1.5, float("nan"), True, "0.9", None)),
    *(("adaptive_noise", value) for value in ("false", 1, 0, None)),
]
BAD_ADAPTIVE = [
    *(("betas", value) for value in ((0.9,), (0.9, 1.0), (-0.1, 0.9), (True, 0.9), "ab", 0.9, None)),
    *(("eps", value) for value in (0.0, -1e-8, 1e-45, float("nan"), True, "1e-8")),
]


class TestSettings:
    @pytest.mark.parametrize(("name", "value"), BAD)
    @BOTH
    def test_unusable_setting_is_named_with_its_value(self, optimizer_class: Any, name: str, value: Any) -> None:
        with pytest.raises(SettingError) as caught:
            optimizer_class(make_parameters(), **{name: value})
        assert caught.value.setting == name
        assert str(caught.value).startswith(f"{name}={value!r}: ")
        assert "Give " in str(caught.value)

    @pytest.mark.parametrize(("name", "value"), BAD_ADAPTIVE)
    def test_unusable_setting_of_the_adaptive_direction(self, name: str, value: Any) -> None:
        with pytest.raises(SettingError) as caught:
            AdaptiveUPGD(make_parameters(), **{name: value})
        assert caught.value.setting == name

    @pytest.mark.parametrize(("name", "value"), BAD)
    def test_unusable_setting_of_a_group_adds_no_group(self, name: str, value: Any) -> None:
        optimizer = UPGD(make_parameters())
        with pytest.raises(SettingError) as caught:
            optimizer.add_param_group({"params": make_parameters(), name: value})
        assert caught.value.setting == f"param_groups[1]['{name}']"
        assert len(optimizer.param_groups) == 1

    @pytest.mark.parametrize(("name", "value"), [("lr", float("nan")), ("beta_utility", 1.0), ("sigma", -1.0)])
    @BOTH
    def test_setting_that_was_spoilt_later_stops_the_step_unchanged(
        self, optimizer_class: Any, name: str, value: float
    ) -> None:
        optimizer = optimizer_class([{"params": make_parameters()}, {"params": make_parameters()}])
        take_steps(optimizer, 0, 1)
        optimizer.param_groups[1][name] = value
        before = parameters_of(optimizer)
        with pytest.raises(SettingError, match=rf"param_groups\[1\]\['{name}'\]="):
            optimizer.step()
        assert_same(parameters_of(optimizer), before)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("lr", 0), ("lr", 1), ("weight_decay", 0), ("sigma", 0), ("beta_utility", 0), ("lr", np.float32(0.5))],
    )
    def test_limits_and_other_number_types_are_accepted_as_floats(self, name: str, value: Any) -> None:
        optimizer = UPGD(make_parameters(), **{name: value})
        take_steps(optimizer, 0, 2)
        assert type(optimizer.param_groups[0][name]) is float
        assert optimizer.param_groups[0][name] == value

    @BOTH
    def test_defaults_of_the_signature_are_those_of_the_rules(self, optimizer_class: Any) -> None:
        defaults = optimizer_class(make_parameters()).defaults
        assert {name: defaults[name] for name in optimizer_class._settings} == {
            name: upgd_settings.RULES[name].default for name in optimizer_class._settings
        }
        assert defaults["lr"] == 1e-5
        assert defaults["beta_utility"] == 0.999

    @pytest.mark.parametrize("dtype", [torch.complex64, torch.int64])
    @pytest.mark.parametrize("wrap", [list, lambda tensors: [("name", tensors[0])]])
    def test_parameters_that_are_not_real_are_refused(
        self, dtype: torch.dtype, wrap: Callable[[list[Tensor]], Any]
    ) -> None:
        tensor = torch.zeros(2, dtype=dtype)
        with pytest.raises(SettingError, match=rf"\['params'\]\[0\] has the dtype {dtype}"):
            UPGD(wrap([tensor]))
        optimizer = UPGD(make_parameters())
        with pytest.raises(SettingError, match=r"param_groups\[1\]"):
            optimizer.add_param_group({"params": tensor})
        assert len(optimizer.param_groups) == 1

    def test_what_torch_refuses_is_still_refused_by_torch(self) -> None:
        with pytest.raises(ValueError, match="empty parameter list"):
            UPGD([])
        with pytest.raises(TypeError, match="ordered collections"):
            UPGD(make_parameters()).add_param_group({"params": set(make_parameters())})
        with pytest.raises(TypeError, match="learning_rate"):
            UPGD(make_parameters(), learning_rate=0.1)  # type: ignore[call-arg]


class TestGradients:
    @pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
    @pytest.mark.parametrize("steps_before", [0, 2])
    @BOTH
    def test_single_non_finite_gradient_changes_nothing(
        self, optimizer_class: Any, bad: float, steps_before: int
    ) -> None:
        optimizer = optimizer_class(make_parameters(), lr=0.1, sigma=0.1, adaptive_noise=True)
        take_steps(optimizer, 0, steps_before)
        first, second = optimizer.param_groups[0]["params"]
        first.grad, second.grad = torch.ones(3, 2), torch.ones(3, 2)
        second.grad[1, 0] = bad
        before = snapshot(optimizer)
        with pytest.raises(NonFiniteGradientError) as caught:
            optimizer.step()
        assert_same(snapshot(optimizer), before)
        assert caught.value.parameter == "parameter 1 of group 0, shape (3, 2)"
        assert caught.value.parameter in str(caught.value)

    def test_non_finite_gradient_names_the_parameter_where_names_were_given(self) -> None:
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        optimizer = UPGD(model.named_parameters())
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        model[1].weight.grad[0, 0] = float("nan")
        with pytest.raises(NonFiniteGradientError) as caught:
            optimizer.step()
        assert caught.value.parameter == "1.weight"

    def test_step_after_a_refused_one_is_as_if_there_had_been_none(self) -> None:
        ends = []
        for refused in (False, True):
            optimizer = AdaptiveUPGD(make_parameters(), lr=0.1)
            take_steps(optimizer, 0, 2)
            if refused:
                optimizer.param_groups[0]["params"][0].grad = torch.full((3, 2), float("nan"))
                with pytest.raises(NonFiniteGradientError):
                    optimizer.step()
            take_steps(optimizer, 2, 2)
            ends.append(snapshot(optimizer))
        assert_same(ends[0], ends[1])

    def test_sparse_gradient_is_refused_before_any_change(self) -> None:
        dense, embedding = nn.Linear(2, 1), nn.Embedding(4, 2, sparse=True)
        optimizer = UPGD([*dense.parameters(), embedding.weight])
        dense(embedding(torch.tensor([1, 2]))).sum().backward()
        before = snapshot(optimizer)
        with pytest.raises(SettingError, match=r"parameter 2 of group 0, shape \(4, 2\) is sparse.*sparse=False"):
            optimizer.step()
        assert_same(snapshot(optimizer), before)

    @BOTH
    def test_no_gradient_at_all_is_no_step(self, optimizer_class: Any) -> None:
        optimizer = optimizer_class(make_parameters())
        before = snapshot(optimizer)
        assert optimizer.step() is None
        assert_same(snapshot(optimizer), before)

    @BOTH
    def test_parameter_without_elements_is_left_alone(self, optimizer_class: Any) -> None:
        empty, other = nn.Parameter(torch.zeros(0, 3)), nn.Parameter(torch.ones(2))
        empty.grad, other.grad = torch.zeros(0, 3), torch.ones(2)
        optimizer_class([empty, other], lr=0.1, adaptive_noise=True).step()
        assert torch.isfinite(other).all()
        assert not torch.equal(other.detach(), torch.ones(2))

    def test_step_leaves_gradients_and_graph_alone(self) -> None:
        parameter = nn.Parameter(torch.ones(3))
        gradient = torch.tensor([1.0, -2.0, 3.0])
        parameter.grad = gradient
        AdaptiveUPGD([parameter], lr=0.1, adaptive_noise=True).step()
        assert gradient.tolist() == [1.0, -2.0, 3.0]
        assert parameter.requires_grad
        assert parameter.is_leaf

    def test_closure_is_evaluated_with_gradients_and_its_loss_returned(self) -> None:
        parameter = nn.Parameter(torch.tensor([3.0]))
        optimizer = UPGD([parameter], lr=0.1, sigma=0.0)

        def closure() -> float:
            optimizer.zero_grad()
            loss = parameter.square().sum()
            loss.backward()
            return loss.item()

        losses = [optimizer.step(closure) for _ in range(3)]
        assert losses[0] == 9.0
        assert losses[0] > losses[1] > losses[2]


class TestGroups:
    def test_added_group_takes_defaults_keeps_extras_and_moves(self) -> None:
        optimizer = AdaptiveUPGD(make_parameters(), lr=0.1, sigma=0.2, betas=(0.5, 0.6))
        take_steps(optimizer, 0, 2)
        added = make_parameters()
        given = {"params": iter(added), "lr": 0.3, "lr_multiplier": 4, "note": "critic"}
        optimizer.add_param_group(given)
        before = parameters_of(optimizer)
        take_steps(optimizer, 2, 1)
        group = optimizer.param_groups[1]
        assert (group["lr"], group["sigma"], group["betas"]) == (0.3, 0.2, (0.5, 0.6))
        assert (group["lr_multiplier"], group["note"]) == (4, "critic")
        assert not any(torch.equal(old, new) for old, new in zip(before, parameters_of(optimizer), strict=True))
        assert optimizer.state[added[0]]["step"] == 1
        assert optimizer.state[optimizer.param_groups[0]["params"][0]]["step"] == 3

    def test_extra_keys_survive_a_round_trip(self) -> None:
        optimizer = UPGD([{"params": make_parameters(), "lr_multiplier": 0.5}])
        restored = UPGD(make_parameters())
        restored.load_state_dict(optimizer.state_dict())
        assert restored.param_groups[0]["lr_multiplier"] == 0.5

    def test_single_tensor_and_learning_rate_schedulers_work(self) -> None:
        parameter = make_parameters()[0]
        optimizer = UPGD([{"params": parameter}], lr=0.1, sigma=0.0)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        take_steps(optimizer, 0, 1)
        scheduler.step()
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


def through_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)


class TestState:
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
