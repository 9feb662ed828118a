"""UPGD and AdaptiveUPGD: what they are given (settings, groups, gradients)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlcore.errors import NonFiniteGradientError, SettingError
from rlcore.optim import upgd as settings
from rlcore.optim.upgd import UPGD, AdaptiveUPGD
from tests.unit.optim.upgd_steps import BOTH, assert_same, make_parameters, parameters_of, snapshot, take_steps

NUMBERS = ["lr", "weight_decay", "sigma", "min_noise_std"]
DECAYS = ["beta_utility", "noise_beta"]


BAD = [
    *((name, value) for name in NUMBERS for value in (-1e-9, float("nan"), float("inf"), True, "0.1", None, 1e300)),
    *((name, value) for name in DECAYS for value in (-0.1, 1.0, 1.5, float("nan"), True, "0.9", None)),
    *(("adaptive_noise", value) for value in ("false", 1, 0, None)),
    *(("seed", value) for value in (-1, 2**64, 1.5, True, "1", float("nan"))),
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
        [
            ("lr", 0),
            ("lr", 1),
            ("weight_decay", 0),
            ("sigma", 0),
            ("beta_utility", 0),
            ("lr", np.float32(0.5)),
            ("min_noise_std", torch.finfo(torch.float32).max),
        ],
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
            **{name: settings.AdaptiveSettings.model_fields[name].default for name in optimizer_class._settings},
            "seed": defaults["seed"],
        }
        assert type(defaults["seed"]) is int
        assert defaults["lr"] == 1e-5
        assert defaults["beta_utility"] == 0.999

    @pytest.mark.parametrize("dtype", [torch.complex64, torch.int64])
    @pytest.mark.parametrize("wrap", [list, lambda tensors: [("name", tensors[0])]])
    def test_parameters_that_are_not_real_are_refused(
        self, dtype: torch.dtype, wrap: Callable[[list[Tensor]], Any]
    ) -> None:
        tensor = torch.zeros(2, dtype=dtype)
        with pytest.raises(SettingError, match=rf"\['params'\]\[0\] has the dtype {dtype}") as caught:
            UPGD(wrap([tensor]))
        assert caught.value.setting == "param_groups[0]['params']"
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
        model.get_parameter("1.weight").grad = torch.full((1, 2), float("nan"))
        with pytest.raises(NonFiniteGradientError) as caught:
            optimizer.step()
        assert caught.value.parameter == "1.weight"

    def test_non_finite_gradient_is_counted_within_its_group(self) -> None:
        parameters = make_parameters(count=5)
        optimizer = UPGD([{"params": parameters[:3]}, {"params": parameters[3:]}])
        take_steps(optimizer, 0, 1)
        parameters[4].grad = torch.full((3, 2), float("nan"))
        with pytest.raises(NonFiniteGradientError) as caught:
            optimizer.step()
        assert caught.value.parameter == "parameter 1 of group 1, shape (3, 2)"

    def test_step_after_a_refused_one_is_as_if_there_had_been_none(self) -> None:
        ends = []
        for refused in (False, True):
            optimizer = AdaptiveUPGD(make_parameters(), lr=0.1, seed=1)
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
        with pytest.raises(
            SettingError, match=r"parameter 2 of group 0, shape \(4, 2\) is sparse.* with sparse=False\.$"
        ) as caught:
            optimizer.step()
        assert caught.value.setting == "sparse"
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
            torch.autograd.backward(loss)
            return loss.item()

        losses = [optimizer.step(closure) for _ in range(3)]
        assert losses[0] == 9.0
        assert losses[0] > losses[1] > losses[2]


class TestGroups:
    def test_added_group_takes_defaults_keeps_extras_and_moves(self) -> None:
        optimizer = AdaptiveUPGD(make_parameters(), lr=0.1, sigma=0.2, betas=(0.5, 0.6))
        take_steps(optimizer, 0, 2)
        added = make_parameters()
        given = {"params": iter(added), "lr": 0.3, "lr_multiplier": 4, "note": "critic", "layers": [1, 2]}
        optimizer.add_param_group(given)
        before = parameters_of(optimizer)
        take_steps(optimizer, 2, 1)
        group = optimizer.param_groups[1]
        assert (group["lr"], group["sigma"], group["betas"]) == (0.3, 0.2, (0.5, 0.6))
        assert_same([group["lr_multiplier"], group["note"], group["layers"]], [4, "critic", [1, 2]])
        assert not any(torch.equal(old, new) for old, new in zip(before, parameters_of(optimizer), strict=True))
        assert optimizer.state[added[0]]["step"] == 1
        assert optimizer.state[optimizer.param_groups[0]["params"][0]]["step"] == 3

    @BOTH
    def test_a_group_may_be_a_single_parameter_without_dimensions(self, optimizer_class: Any) -> None:
        optimizer = optimizer_class(make_parameters(), lr=0.1)
        temperature = nn.Parameter(torch.tensor(1.0))
        optimizer.add_param_group({"params": temperature})
        take_steps(optimizer, 0, 1)
        assert temperature.item() != 1.0

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
