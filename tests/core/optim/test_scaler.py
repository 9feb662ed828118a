"""The variance gradient scaler: its statistics, its rule, and what a step commits."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from rlcore.errors import CallOrderError, NonFiniteGradientError, ResumeWarning, SettingError
from rlcore.optim.gradient_variance import ESTIMATORS, Moments, ScalerSettings, measure, scale
from rlcore.optim.scaler import VarianceGradientScaler
from rlcore.ppo.settings import PPOSettings
from tests.reference import variance_reference as reference

PATTERN = torch.tensor([0.5, -0.5, 0.5, -0.5])


def parameters_of(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in shapes]


def observe(scaler: VarianceGradientScaler, gradients: Sequence[Tensor | None]) -> None:
    for parameter, gradient in zip(scaler.parameters, gradients, strict=True):
        parameter.grad = None if gradient is None else gradient.clone().to(parameter.dtype)
    scaler.update_statistics()


def observed_scaler(history: Iterable[Tensor], **settings: Any) -> VarianceGradientScaler:
    """Return a scaler of one tensor that has seen ``history``, past its warm-up."""
    gradients = list(history)
    scaler = VarianceGradientScaler(parameters_of(tuple(gradients[0].shape)), **{"warmup_steps": 0, **settings})
    for gradient in gradients:
        observe(scaler, [gradient])
    return scaler


def variance_of(history: Iterable[Tensor], estimator: str) -> float:
    """Read the variance itself: with denominators far below eps = 1 and a high cap it is the normalized variance."""
    settings = {"normalization": "squared_mean", "eps": 1.0, "max_normalized_variance": 1e9}
    return observed_scaler(history, estimator=estimator, **settings).get_normalized_variance()


def random_history(rng: np.random.Generator, shape: tuple[int, ...], steps: int) -> Tensor:
    return torch.as_tensor(rng.normal(0.3, 0.5, (steps, *shape)))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("normalization", ["squared_mean", "second_moment"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_equals_the_float64_reference_over_random_histories(
    estimator: Any, normalization: Any, dtype: torch.dtype, tolerance: float
) -> None:
    rng = np.random.default_rng(7)
    shapes = [(4, 3), (5,), (2, 2, 3)]
    settings = {"beta": 0.9, "eps": 1e-6, "estimator": estimator, "normalization": normalization}
    scaler = VarianceGradientScaler(parameters_of(*shapes, dtype=dtype), warmup_steps=0, alpha=0.7, **settings)
    histories = [random_history(rng, shape, 30) for shape in shapes]
    for step in range(30):
        observe(scaler, [history[step] for history in histories])
        seen = [history[: step + 1].reshape(step + 1, -1).to(dtype).double().numpy() for history in histories]
        expected = reference.normalized_variance(seen, **settings)
        assert scaler.get_normalized_variance() == pytest.approx(expected, rel=tolerance, abs=1e-12)
        assert scaler.get_scaling_factor() == pytest.approx(
            reference.scaling_factor(expected, alpha=0.7), rel=tolerance
        )


def test_the_norm_is_known_between_the_measurement_and_its_commit() -> None:
    scaler = VarianceGradientScaler(parameters_of((2,), (), dtype=torch.float64), warmup_steps=0)
    found = [scaler.measured_norm]
    for size in (1.0, 1e200):  # a mean square is taken for no larger than 1e150
        for parameter in scaler.parameters:
            parameter.grad = torch.full_like(parameter, size)
        scaler.scale_gradients()
        found.append(scaler.measured_norm)
        scaler.step()
        found.append(scaler.measured_norm)
    assert found == [math.inf, pytest.approx(math.sqrt(3)), math.inf, math.inf, math.inf]


def test_global_averages_equal_the_reference() -> None:
    rng = np.random.default_rng(3)
    scaler = VarianceGradientScaler(parameters_of((4, 3), (5,), dtype=torch.float64), beta=0.8)
    assert (scaler.grad_mean_ema, scaler.grad_var_ema, scaler.grad_norm_ema) == (None,) * 3
    first, second = random_history(rng, (4, 3), 25), random_history(rng, (5,), 25)
    for pair in zip(first, second, strict=True):
        observe(scaler, pair)
    elements = np.concatenate([first.reshape(25, -1).numpy(), second.numpy()], axis=1)
    expected = [elements.mean(axis=1), elements.var(axis=1), np.linalg.norm(elements, axis=1)]
    measured = [scaler.grad_mean_ema, scaler.grad_var_ema, scaler.grad_norm_ema]
    assert measured == pytest.approx([float(reference.time_mean(series, 0.8)) for series in expected], rel=1e-12)


@pytest.mark.parametrize(
    ("estimator", "expected"), [("mean", 0.0), ("element", 0.0), ("spatial", 0.25), ("total", 0.25)]
)
def test_a_constant_pattern_of_opposite_signs_varies_in_space_and_not_in_time(estimator: str, expected: float) -> None:
    assert variance_of([PATTERN] * 50, estimator) == expected


def test_noise_of_opposite_signs_is_seen_by_element_and_not_by_mean() -> None:
    signs = torch.randint(0, 2, (400,), generator=torch.Generator().manual_seed(0)) * 2.0 - 1.0
    history = [sign * PATTERN for sign in signs]
    assert variance_of(history, "mean") == 0.0
    # The mean sign has a standard error of sqrt((1 - beta) / (1 + beta)) = 0.07; three of them lower .25 by 0.011.
    assert variance_of(history, "element") == pytest.approx(0.25, abs=0.011)


def test_independent_noise_is_averaged_out_by_mean_only() -> None:
    noise = torch.randn(2000, 4, generator=torch.Generator().manual_seed(1)) * 0.5
    # The weighted average over about 200 steps of a squared normal number has a relative error of sqrt(2 / 200) = 0.1.
    assert variance_of(noise, "element") == pytest.approx(0.25, rel=0.2)
    assert variance_of(noise, "mean") == pytest.approx(0.25 / 4, rel=0.35)


def test_the_cap_holds_for_each_tensor_and_the_floor_for_the_factor() -> None:
    history = [torch.tensor([1.0]), torch.tensor([-1.0])] * 20
    assert observed_scaler(history, max_normalized_variance=7.0).get_normalized_variance() == 7.0
    assert observed_scaler(history, max_normalized_variance=50.0).get_scaling_factor() == pytest.approx(1 / 6)
    assert observed_scaler(history, alpha=1e6).get_scaling_factor() == 0.1
    assert observed_scaler(history).get_scaling_factor() == 0.1  # the default cap is high enough for the floor
    assert observed_scaler(history, alpha=1e6, min_scaling_factor=0.25).get_scaling_factor() == 0.25


@pytest.mark.parametrize("count", [1, 2, 11, 12, 25])
def test_the_percentile_is_that_of_numpy_over_observed_tensors_only(count: int) -> None:
    scaler = VarianceGradientScaler(parameters_of(*[(1,)] * (count + 1)), beta=0.5, eps=1.0, warmup_steps=0)
    amplitudes = np.arange(count)[::-1]
    for sign in (1.0, -1.0):
        observe(scaler, [*torch.as_tensor(sign * amplitudes[:, None]), None])
    # Weights of 1/3 and 2/3 give an amplitude a the mean -a/3 and the variance 8/9 a^2.
    ratios = 8 / 9 * amplitudes**2 / (amplitudes**2 / 9 + 1.0)
    assert scaler.get_normalized_variance() == pytest.approx(np.percentile(ratios, 90), rel=1e-6)


def test_the_factor_is_one_for_exactly_the_warm_up() -> None:
    (parameter,) = parameters_of((1,))
    scaler = VarianceGradientScaler([parameter], warmup_steps=4)
    factors, warming = [], []
    for step in range(6):
        parameter.grad = torch.tensor([float((-1) ** step)])
        warming.append(scaler.is_warming_up)
        factors.append(scaler.scale_gradients())
        scaler.step()
    assert factors[:4] == [1.0] * 4
    assert max(factors[4:]) < 0.5
    assert warming == [True] * 4 + [False] * 2


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_what_is_committed_is_the_raw_gradient(estimator: Any) -> None:
    generator = torch.Generator().manual_seed(5)
    history = torch.randn(12, 3, generator=generator)
    watching = observed_scaler(history, estimator=estimator)
    (parameter,) = parameters_of((3,))
    scaling = VarianceGradientScaler([parameter], warmup_steps=0, estimator=estimator)
    factors = []
    for gradient in history:
        parameter.grad = gradient.clone()
        factors.append(scaling.scale_gradients())
        parameter.grad.mul_(1e-3)
        scaling.step()
    assert min(factors) < 0.9
    assert scaling.get_normalized_variance() == watching.get_normalized_variance()
    assert scaling.grad_norm_ema == watching.grad_norm_ema


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_step_that_is_never_committed_leaves_no_trace(estimator: Any) -> None:
    scaler = observed_scaler([torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])], estimator=estimator)
    before = (scaler.step_count, scaler.get_normalized_variance(), scaler.grad_mean_ema)
    scaler.parameters[0].grad = torch.tensor([100.0, -3.0])
    scaler.scale_gradients()
    assert (scaler.step_count, scaler.get_normalized_variance(), scaler.grad_mean_ema) == before
    observe(scaler, [torch.tensor([3.0, 0.0])])
    expected = observed_scaler(
        [torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0]), torch.tensor([3.0, 0.0])], estimator=estimator
    )
    assert scaler.get_normalized_variance() == expected.get_normalized_variance()


def test_step_without_a_measurement_is_an_error() -> None:
    scaler = VarianceGradientScaler(parameters_of((2,)))
    with pytest.raises(CallOrderError, match="scale_gradients"):
        scaler.step()
    observe(scaler, [torch.ones(2)])
    with pytest.raises(CallOrderError, match="nothing to commit"):
        scaler.step()
    assert scaler.step_count == 1


def test_a_step_without_any_gradient_counts_and_changes_no_statistic() -> None:
    scaler = observed_scaler([torch.tensor([1.0]), torch.tensor([3.0])])
    before = (scaler.get_normalized_variance(), scaler.grad_norm_ema)
    scaler.parameters[0].grad = None
    assert scaler.scale_gradients() < 1.0
    scaler.step()
    assert (scaler.get_normalized_variance(), scaler.grad_norm_ema) == before
    assert scaler.step_count == 3
    observe(scaler, [torch.tensor([2.0])])
    expected = observed_scaler([torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([2.0])])
    assert scaler.grad_norm_ema == expected.grad_norm_ema
    assert scaler.get_normalized_variance() == expected.get_normalized_variance()


@pytest.mark.parametrize("normalization", ["squared_mean", "second_moment"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_zero_gradients_give_the_factor_one(estimator: Any, normalization: Any) -> None:
    scaler = observed_scaler([torch.zeros(3)] * 5, estimator=estimator, normalization=normalization)
    assert scaler.get_normalized_variance() == 0.0
    assert scaler.scale_gradients() == 1.0
    assert (scaler.grad_norm_ema, scaler.grad_var_ema) == (0.0, 0.0)


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e30), (torch.float32, 3e38), (torch.float64, 1e300)])
@pytest.mark.parametrize("normalization", ["squared_mean", "second_moment"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_very_large_gradients_stay_finite(estimator: Any, normalization: Any, dtype: torch.dtype, size: float) -> None:
    settings = {"estimator": estimator, "normalization": normalization}
    scaler = VarianceGradientScaler(parameters_of((5,), dtype=dtype), warmup_steps=0, **settings)
    for sign in (1.0, -1.0, 1.0, 1.0, 1e-30, -1.0):
        observe(scaler, [torch.full((5,), sign * size, dtype=dtype)])
        averages = [scaler.grad_mean_ema, scaler.grad_var_ema, scaler.grad_norm_ema]
        assert all(value is not None and np.isfinite(value) for value in averages)
        assert 0.0 <= scaler.get_normalized_variance() <= 100.0
        assert 0.1 <= scaler.get_scaling_factor() <= 1.0
    state: dict[Any, Any] = scaler.state_dict()
    statistics = [values if isinstance(values, list) else [values] for values in state["estimator_state"].values()]
    assert all(bool(tensor.isfinite().all()) for tensors in statistics for tensor in tensors)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("named", [True, False])
def test_a_non_finite_gradient_is_named_and_changes_nothing(bad: float, named: bool) -> None:
    first, second = parameters_of((2,), (2, 3))
    scaler = VarianceGradientScaler(
        [("a.weight", first), ("b.bias", second)] if named else [first, second], warmup_steps=1
    )
    observe(scaler, [torch.ones(2), torch.ones(2, 3)])
    observe(scaler, [-torch.ones(2), torch.ones(2, 3)])
    assert scaler.get_scaling_factor() < 1.0
    first.grad, second.grad = torch.ones(2), torch.ones(2, 3)
    scaler.scale_gradients()
    before = scaler.state_dict()
    first.grad, second.grad = torch.ones(2), torch.full((2, 3), 4.0)
    second.grad[1, 2] = bad
    with pytest.raises(NonFiniteGradientError, match=r"parameter 1.*\(2, 3\).*1 of 6 elements") as caught:
        scaler.scale_gradients()
    assert caught.value.parameter == ("b.bias" if named else "parameter 1, shape (2, 3)")
    assert first.grad.tolist() == [1.0, 1.0]
    assert second.grad[0].tolist() == [4.0, 4.0, 4.0]
    after = scaler.state_dict()
    assert repr(after) == repr(before)
    with pytest.raises(CallOrderError):
        scaler.step()


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        *(("enabled", value, "boolean") for value in ("false", 1, None)),
        ("beta", 1.0, "less than 1"), ("beta", 1.5, "less than or equal to 1"), ("beta", -0.1, "or equal to 0"),
        *(("beta", value, "number") for value in (True, "0.9")), ("beta", float("nan"), "greater than or equal to 0"),
        ("alpha", -1.0, "greater than or equal to 0"), *(("alpha", value, "number") for value in (np.inf, None, True)),
        *(("eps", value, "greater than 0") for value in (0.0, -1e-8)),
        ("warmup_steps", -1, "greater than or equal to 0"),
        *(("warmup_steps", value, "integer") for value in (1.5, True, "10")),
        *(("estimator", value, "'mean', 'spatial', 'total' or 'element'") for value in ("variance", None)),
        *(("normalization", value, "'squared_mean' or 'second_moment'") for value in ("mean", 2)),
        ("min_scaling_factor", 1.1, "less than or equal to 1"), ("min_scaling_factor", -0.1, "equal to 0"),
        ("max_normalized_variance", 0.0, "greater than 0"), ("max_normalized_variance", float("nan"), "greater than 0"),
    ],
)  # fmt: skip
def test_an_unusable_setting_is_refused_by_name_value_and_range(setting: str, value: Any, message: str) -> None:
    with pytest.raises(SettingError, match=f"^{setting}={re.escape(repr(value))} cannot .*{message}") as caught:
        VarianceGradientScaler(parameters_of((2,)), **{setting: value})
    assert caught.value.setting == setting


GOOD: list[tuple[str, Any, Any]] = [
    ("enabled", False, False), ("beta", 0, 0.0), ("beta", np.float32(0.5), 0.5), ("alpha", 0, 0.0), ("eps", 1, 1.0),
    ("alpha", Fraction(1, 4), 0.25), ("eps", 1e-300, 1e-300), ("warmup_steps", 0, 0), ("warmup_steps", np.int64(7), 7),
    ("min_scaling_factor", 0, 0.0), ("min_scaling_factor", np.int64(1), 1.0), ("max_normalized_variance", 90, 90.0),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "value", "plain"), GOOD)
def test_a_setting_may_lie_anywhere_in_its_range_with_its_ends(setting: str, value: Any, plain: Any) -> None:
    kept = getattr(VarianceGradientScaler(parameters_of((2,)), **{setting: value}).settings, setting)
    assert (kept, type(kept)) == (plain, type(plain))


def test_scaler_and_model_have_the_same_defaults() -> None:
    settings = VarianceGradientScaler(parameters_of((1,))).settings
    assert settings == ScalerSettings()
    of_model = {name: PPOSettings.model_fields[f"vgs_{name}"].default for name, _ in settings if name != "enabled"}
    assert {"enabled": True, **of_model} == dict(settings)


A, B = parameters_of((2,), (2,))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ([], "parameters is empty"),
        (iter([]), "parameters is empty"),
        ([A, B, A], "parameters holds a parameter more than once"),
        ([("a", A), ("b", A)], "parameters holds a parameter more than once"),
        ([A, torch.zeros(2)], "parameters[1] is a Tensor;"),
        (A, "parameters[0] is a Tensor;"),
        ([A, ("b", 3.0)], "parameters[1] is a float;"),
        ([("a", "b", A)], "parameters[0] is a tuple;"),
        ([{"params": [A]}], "parameters[0] is a dict;"),
        ([nn.Parameter(torch.zeros(2, dtype=torch.complex64))], "parameters[0] is a torch.complex64;"),
        ([nn.Parameter(torch.zeros(2, dtype=torch.int32), requires_grad=False)], "parameters[0] is a torch.int32;"),
    ],
)
def test_unusable_parameters_are_refused_and_leave_a_scaler_as_it_was(parameters: Any, message: str) -> None:
    scaler = observed_scaler([torch.ones(2)])
    before, linked = repr(scaler.state_dict()), scaler.parameters
    given = list(parameters) if parameters is not A else A
    for take in (VarianceGradientScaler, scaler.update_parameters):
        with pytest.raises(SettingError, match=f"^{re.escape(message)}") as caught:
            take(given)  # type: ignore[operator]
        assert caught.value.setting == "parameters"
    assert repr(scaler.state_dict()) == before
    assert scaler.parameters is linked


def test_reset_forgets_statistics_and_what_is_pending() -> None:
    scaler = observed_scaler([torch.tensor([1.0]), torch.tensor([-1.0])])
    scaler.scale_gradients()
    with pytest.warns(ResumeWarning, match="statistics of 2 steps are reset") as caught:
        scaler.reset_statistics()
    assert [warning.filename for warning in caught] == [__file__]
    fresh = VarianceGradientScaler(parameters_of((1,)), warmup_steps=0)
    assert repr(scaler.state_dict()) == repr(fresh.state_dict())
    with pytest.raises(CallOrderError):
        scaler.step()
    scaler.reset_statistics()  # nothing to lose, so nothing is said
    assert scaler.step_count == 0


def test_a_factor_of_one_leaves_the_gradients_to_whoever_differentiates_them() -> None:
    (parameter,) = parameters_of((2,))
    scaler = VarianceGradientScaler([parameter], warmup_steps=1)
    (gradient,) = torch.autograd.grad(((parameter + 1.0) ** 3).sum(), parameter, create_graph=True)
    penalty = (gradient**2).sum()
    parameter.grad = gradient
    assert scaler.scale_gradients() == 1.0
    # d/dw (3 (w + 1)^2)^2 = 36 (w + 1)^3
    torch.testing.assert_close(torch.autograd.grad(penalty, parameter)[0], torch.tensor([36.0, 36.0]))


SHAPES = [(7, 5), (1,), (3, 4, 2), (1300,), (9, 9)]
WAYS = pytest.mark.parametrize("way", ["compiled", "by torch"])


def in_way(tensor: Tensor, way: str) -> Tensor:
    """The same numbers, next to others that keep the kernel away."""
    return tensor if way == "compiled" else torch.stack([tensor, torch.full_like(tensor, 77.0)], dim=-1)[..., 0]


def gradients(
    seed: int = 0, offset: float = 0.3, factor: float = 1.0, dtype: torch.dtype = torch.float32, way: str = "compiled"
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = [factor * (offset + torch.randn(shape, generator=generator)) for shape in SHAPES]
    return [in_way(each.to(dtype), way) for each in drawn]


def assert_right(moments: Moments, tensors: list[Tensor], factor: float = 1.0) -> None:
    expected = [tensor.double().numpy() for tensor in tensors]
    assert {each.dtype for each in moments} == {np.dtype(np.float64)}
    assert moments.size.tolist() == [each.size for each in expected]
    assert moments.mean == pytest.approx([each.mean() for each in expected], rel=1e-6, abs=1e-7 * factor)
    assert moments.variance == pytest.approx([each.var() for each in expected], rel=1e-6, abs=0.0)
    assert moments.mean_square == pytest.approx([np.square(each).mean() for each in expected], rel=1e-6)


def test_gradients_of_several_kinds_are_measured_and_scaled_together() -> None:
    dtypes = [torch.float32, torch.bfloat16, torch.float64, torch.float32, torch.float32]
    tensors = [tensor.to(dtype) for tensor, dtype in zip(gradients(), dtypes, strict=True)]
    tensors[4] = tensors[4].T
    before = [each.clone() for each in tensors]
    assert_right(measure(tensors), tensors)
    scale(tensors, 2.0)
    assert all(torch.equal(scaled, 2.0 * old) for scaled, old in zip(tensors, before, strict=True))


@given(
    st.integers(1, 3000),
    st.integers(0, 2**16),
    st.sampled_from([0.0, 1.0, -300.0, 1e5]),
    st.sampled_from([1e-42, 1e-25, 1.0, 1e15, 1e30]),
    st.sampled_from([None, 0.0, 1e3, 1e8]),
)
def test_both_ways_have_the_moments_of_float64_next_to_any_mean(
    size: int, seed: int, offset: float, factor: float, outlier: float | None
) -> None:
    """At the ends of float32 too, and with one element far from the others, or an element 0 among large ones."""
    tensor = factor * (offset + torch.randn(size, generator=torch.Generator().manual_seed(seed)))
    if outlier is not None:
        tensor[seed % size] = factor * outlier
    numbers = tensor.double().numpy()
    for way in ("compiled", "by torch"):
        found = measure([in_way(tensor, way)])
        assert found.mean == pytest.approx([numbers.mean()], rel=1e-7, abs=1e-6 * numbers.std())
        assert found.variance == pytest.approx([numbers.var()], rel=1e-5, abs=0.0)
        assert found.mean_square == pytest.approx([np.square(numbers).mean()], rel=1e-6, abs=0.0)


@pytest.mark.parametrize("draw", [
    lambda generator: torch.rand(10_000_000, generator=generator) * 0.9 + 1.0,
    lambda generator: 10.0 + 1e-3 * torch.randn(1_000_000, generator=generator),
])  # fmt: skip
def test_the_variance_of_a_large_tensor_next_to_a_large_mean(draw: Any) -> None:
    tensor = draw(torch.Generator().manual_seed(0))
    expected = tensor.numpy().var(dtype=np.float64)
    assert measure([tensor]).variance == pytest.approx([expected], rel=1e-6)


@pytest.mark.parametrize(("negative", "positive", "mean"), [(1, 1, 0.0), (1, 2, 1e150), (100, 50, -1e150)])
def test_the_moments_of_the_largest_numbers_are_limited_and_finite(negative: int, positive: int, mean: float) -> None:
    gradient = torch.tensor([-1.7e308] * negative + [1.7e308] * positive, dtype=torch.float64)
    moments = measure([gradient])
    assert (moments.mean.tolist(), moments.variance.tolist()) == ([mean], [1e150])
    assert moments.mean_square.tolist() == [1e150]


@WAYS
@pytest.mark.parametrize("bad", [[math.nan], [math.inf], [-math.inf], [math.inf, -math.inf], [math.inf] * 24])
def test_a_gradient_that_is_no_number_has_no_moments_and_the_others_keep_theirs(bad: list[float], way: str) -> None:
    clean, tensors = measure(gradients(way=way)), gradients(way=way)
    spoilt = tensors[2].reshape(-1).clone()
    spoilt[-len(bad) :] = torch.tensor(bad)
    tensors[2].copy_(spoilt.view(3, 4, 2))
    moments = measure(tensors)
    kept = [0, 1, 3, 4]
    for found, expected in ((moments.mean, clean.mean), (moments.mean_square, clean.mean_square)):
        assert np.isnan(found).tolist() == [False, False, True, False, False]
        assert found[kept].tolist() == expected[kept].tolist()


@WAYS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scaling_multiplies_every_element_in_place_and_autograd_hears_of_it(dtype: torch.dtype, way: str) -> None:
    tensors = gradients(dtype=dtype, way=way)
    expected = [each * 0.37 for each in tensors]
    scale(tensors, 0.37)
    assert all(torch.equal(scaled, wanted) for scaled, wanted in zip(tensors, expected, strict=True))
    weight = torch.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
    (gradient,) = torch.autograd.grad((weight**3).sum(), weight, create_graph=True)
    penalty = (gradient**2).sum()
    scale([gradient.detach()], 0.5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(penalty, weight)
