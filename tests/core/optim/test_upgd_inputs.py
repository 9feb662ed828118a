"""UPGD and AdaptiveUPGD: what they are given (settings, seeds, groups, gradients)."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlcore.errors import NonFiniteGradientError, SettingError, StateError
from rlcore.optim.upgd import UPGD, AdaptiveUPGD
from tests.core.optim.upgd_steps import (
    BOTH,
    EVERY_PATH,
    SETTINGS,
    assert_same,
    every_parameter,
    make,
    make_parameters,
    parameters_of,
    snapshot,
    states_of,
    take_steps,
)  # fmt: skip

NUMBERS = ["lr", "weight_decay", "sigma", "min_noise_std"]
BAD = [
    *((name, value) for name in NUMBERS for value in (-1e-9, float("nan"), float("inf"), True, "0.1", None, 1e300)),
    *((name, x) for name in ("beta_utility", "noise_beta") for x in (-0.1, 1.0, 1.5, float("nan"), True, "0.9", None)),
    *(("adaptive_noise", value) for value in ("false", 1, 0, None)),
    *(("seed", value) for value in (-1, 2**64, 1.5, True, "1", float("nan"))),
    *(("betas", value) for value in ((0.9,), (0.9, 1.0), (-0.1, 0.9), (True, 0.9), (0.9, 0.9, 0.9), "ab", 0.9, None)),
    *(("eps", value) for value in (0.0, -1e-8, 1e-45, float("nan"), True, "1e-8")),
]
GOOD: list[tuple[str, Any, Any]] = [
    *((name, value, float(value)) for name in NUMBERS for value in (0, 1, np.float32(0.5), torch.finfo().max)),
    *((name, value, float(value)) for name in ("beta_utility", "noise_beta") for value in (0, 0.9999)),
    *(("seed", value, int(value)) for value in (0, np.int64(5), 2**64 - 1)),
    *(("betas", value, (0.0, 0.5)) for value in ((0, 0.5), [np.float64(0), 0.5])),
    ("eps", 1, 1.0),
    ("eps", torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).tiny),
]


class TestSettings:
    @pytest.mark.parametrize(("name", "value"), BAD)
    def test_unusable_setting_is_named_with_its_value_wherever_it_is_given(self, name: str, value: Any) -> None:
        def refused(where: str, make: Any) -> None:
            with pytest.raises(SettingError) as caught:
                make()
            assert caught.value.setting == where
            assert str(caught.value).startswith(f"{where}={value!r}: ")
            assert "Give " in str(caught.value)

        refused(name, lambda: AdaptiveUPGD(make_parameters(), **{name: value}))
        optimizer = AdaptiveUPGD([{"params": make_parameters()}, {"params": make_parameters()}])
        refused(f"param_groups[2]['{name}']", lambda: optimizer.add_param_group({"params": [], name: value}))
        assert len(optimizer.param_groups) == 2
        take_steps(optimizer, 0, 1)
        before = parameters_of(optimizer)
        unchanged = optimizer.param_groups[1][name] == value  # 0 for False
        optimizer.param_groups[1][name] = value
        if unchanged:
            return
        refused(f"param_groups[1]['{name}']", optimizer.step)
        assert_same(parameters_of(optimizer), before)

    @pytest.mark.parametrize(("name", "value", "plain"), GOOD)
    def test_limits_and_other_number_types_are_accepted_as_plain_numbers(
        self, name: str, value: Any, plain: Any
    ) -> None:
        optimizer = AdaptiveUPGD(make_parameters(), **{name: value})
        take_steps(optimizer, 0, 2)
        assert_same(optimizer.param_groups[0][name], plain)

    @BOTH
    def test_defaults(self, optimizer_class: Any) -> None:
        defaults = optimizer_class(make_parameters(), seed=3).defaults
        adam = {"betas": (0.9, 0.999), "eps": 1e-8} if optimizer_class is AdaptiveUPGD else {}
        shared = {"lr": 1e-5, "weight_decay": 1e-3, "beta_utility": 0.999, "sigma": 1e-3, "adaptive_noise": False}
        assert defaults == {**shared, "noise_beta": 0.999, "min_noise_std": 1e-6, **adam, "seed": 3}

    @pytest.mark.parametrize("dtype", [torch.complex64, torch.int64])
    @pytest.mark.parametrize("as_given", [lambda each: each, lambda each: [each]])
    def test_parameters_that_are_not_real_are_refused(self, dtype: torch.dtype, as_given: Any) -> None:
        optimizer = UPGD(make_parameters())
        with pytest.raises(SettingError, match=rf"param_groups\[1\]\['params'\] .* dtype {dtype}") as caught:
            optimizer.add_param_group({"params": as_given(torch.zeros(2, dtype=dtype))})
        assert caught.value.setting == "param_groups[1]['params']"
        assert len(optimizer.param_groups) == 1


class TestSeeds:
    @BOTH
    def test_a_seed_is_one_draw_from_the_global_generator_below_2_to_the_63(self, optimizer_class: Any) -> None:
        """When it is not given, and when the noise gets another; one for all groups, on any default device."""
        parameters = make_parameters()
        optimizer = optimizer_class([{"params": make_parameters()}, {"params": make_parameters(), "seed": 5}], seed=4)
        found = set()
        for global_seed in range(4):
            torch.manual_seed(global_seed)
            expected = torch.randint(2**63 - 1, ()).item()
            after = torch.get_rng_state()
            for device in ("cpu", "meta"):
                torch.manual_seed(global_seed)
                with torch.device(device):
                    drawn = optimizer_class(parameters).defaults["seed"]
                assert_same(drawn, expected)
                assert torch.equal(torch.get_rng_state(), after)
            torch.manual_seed(global_seed)
            optimizer.reseed()
            assert [group["seed"] for group in optimizer.param_groups] == [expected] * 2
            found.add(expected)
        assert len(found) == 4


class TestGradients:
    @pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
    @pytest.mark.parametrize("steps_before", [0, 2])
    @BOTH
    def test_single_non_finite_gradient_changes_nothing(
        self, optimizer_class: Any, bad: float, steps_before: int
    ) -> None:
        """Also nothing of what follows."""
        optimizer, other = (
            optimizer_class(make_parameters(), lr=0.1, sigma=0.1, adaptive_noise=True, seed=1) for _ in range(2)
        )
        for each in (optimizer, other):
            take_steps(each, 0, steps_before)
        before = snapshot(optimizer)
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.grad = torch.ones(3, 2)
        parameter.grad[2, 1] = bad
        with pytest.raises(NonFiniteGradientError, match="look at the loss"):
            optimizer.step()
        assert_same(snapshot(optimizer), before)
        for each in (optimizer, other):
            take_steps(each, steps_before, 2)
        assert_same(snapshot(optimizer), snapshot(other))

    @pytest.mark.parametrize("named", [True, False])
    def test_the_parameter_of_a_bad_gradient_is_named(self, named: bool) -> None:
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        given: list[Any] = list(model.named_parameters() if named else model.parameters())
        optimizer = UPGD([{"params": given[:1]}, {"params": given[1:]}])
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        parameters = list(model.parameters())
        parameters[2].grad = torch.full((1, 2), float("nan"))
        with pytest.raises(NonFiniteGradientError) as caught:
            optimizer.step()
        assert caught.value.parameter == ("1.weight" if named else "parameter 1 of group 1, shape (1, 2)")

    def test_sparse_gradient_is_refused_before_any_change(self) -> None:
        dense, embedding = nn.Linear(2, 1), nn.Embedding(4, 2, sparse=True)
        optimizer = UPGD([*dense.parameters(), embedding.weight])
        dense(embedding(torch.tensor([1, 2]))).sum().backward()
        before = snapshot(optimizer)
        with pytest.raises(SettingError, match=r"2 of group 0, shape \(4, 2\) is sparse.*sparse=False\.$") as caught:
            optimizer.step()
        assert caught.value.setting == "sparse"
        assert_same(snapshot(optimizer), before)

    @BOTH
    def test_a_step_leaves_empty_parameters_gradients_and_graph_alone(self, optimizer_class: Any) -> None:
        empty, other = nn.Parameter(torch.zeros(0, 3)), nn.Parameter(torch.ones(2))
        empty.grad, other.grad = torch.zeros(0, 3), torch.tensor([1.0, -2.0])
        optimizer_class([empty, other], lr=0.1, adaptive_noise=True).step()
        assert torch.isfinite(other).all()
        assert not torch.equal(other.detach(), torch.ones(2))
        assert other.grad.tolist() == [1.0, -2.0]
        assert (other.requires_grad, other.is_leaf) == (True, True)


class TestGroups:
    def test_added_group_takes_defaults_keeps_extras_and_moves(self) -> None:
        optimizer = AdaptiveUPGD(make_parameters(), lr=0.1, sigma=0.2, betas=(0.5, 0.6))
        take_steps(optimizer, 0, 2)
        added = make_parameters()
        optimizer.add_param_group({"params": iter(added), "lr": 0.3, "lr_multiplier": 4, "layers": [1, 2]})
        before = parameters_of(optimizer)
        take_steps(optimizer, 2, 1)
        group = optimizer.param_groups[1]
        assert (group["lr"], group["sigma"], group["betas"]) == (0.3, 0.2, (0.5, 0.6))
        assert (group["lr_multiplier"], group["layers"]) == (4, [1, 2])
        assert not any(torch.equal(old, new) for old, new in zip(before, parameters_of(optimizer), strict=True))
        assert optimizer.state[added[0]]["step"] == 1
        assert optimizer.state[optimizer.param_groups[0]["params"][0]]["step"] == 3
        restored = AdaptiveUPGD([{"params": make_parameters()}, {"params": make_parameters()}])
        restored.load_state_dict(optimizer.state_dict())
        assert restored.param_groups[1]["lr_multiplier"] == 4


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


@BOTH
@EVERY_PATH
def test_a_gradient_beyond_the_limit_is_limited_where_it_is_read_and_stays_as_it_was(
    optimizer_class: Any, path: str
) -> None:
    optimizer = make(optimizer_class, path, lr=1e-30, sigma=0.0)
    parameter = every_parameter(optimizer)[1]
    parameter.grad = torch.full_like(parameter, 3e38)
    optimizer.step()
    assert float(parameter.grad.amin()) > 2e38
    state = states_of(optimizer)[1]
    assert all(bool(each.isfinite().all()) for each in state.values())
    if optimizer_class is AdaptiveUPGD:
        assert float(state["first_moment"].amax()) == pytest.approx(0.1 * 8.5e37, rel=0.01)
