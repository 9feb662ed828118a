"""The scaler's state: saving, restoring, copying, and linking to other parameters."""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlcore.errors import CallOrderError, ResumeWarning, SettingError, StateError
from rlcore.optim.gradient_variance import ESTIMATORS as ESTIMATOR_CLASSES
from rlcore.optim.gradient_variance import TensorLayout
from rlcore.optim.scaler import VarianceGradientScaler
from rlcore.optim.scaler import GLOBAL_AVERAGES

SHAPES = ((3, 2), (4,), (1,))
ESTIMATORS = list(ESTIMATOR_CLASSES)


def parameters_of(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in shapes]


def train(scaler: VarianceGradientScaler, steps: int, seed: int) -> list[float]:
    """Run ``steps`` steps on random gradients; return the factors."""
    generator = torch.Generator().manual_seed(seed)
    factors = []
    for _ in range(steps):
        for parameter in scaler.parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype) + 0.5
        factors.append(scaler.scale_gradients())
        scaler.step()
    return factors


def trained(estimator: Any = "mean", steps: int = 20, **settings: Any) -> VarianceGradientScaler:
    scaler = VarianceGradientScaler(
        parameters_of(*SHAPES), estimator=estimator, **{"warmup_steps": 5, "beta": 0.9, **settings}
    )
    train(scaler, steps, seed=1)
    return scaler


def pickled(scaler: VarianceGradientScaler) -> VarianceGradientScaler:
    twin = pickle.loads(pickle.dumps(scaler))  # noqa: S301 - written one call earlier
    assert isinstance(twin, VarianceGradientScaler)
    return twin


def leaves(value: Any) -> list[Any]:
    """Every value of a nested state, in order, with tensors as (dtype, numbers)."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value, key=str) for leaf in [key, *leaves(value[key])]]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    return [(value.dtype, value.tolist())] if isinstance(value, Tensor) else [value]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_restored_scaler_continues_bit_for_bit(estimator: Any, dtype: torch.dtype) -> None:
    settings: dict[str, Any] = {"estimator": estimator, "warmup_steps": 5, "beta": 0.9, "alpha": 0.3}
    settings |= {
        "normalization": "second_moment",
        "eps": 1e-3,
        "min_scaling_factor": 0.2,
        "max_normalized_variance": 9.0,
    }
    original = VarianceGradientScaler(parameters_of(*SHAPES, dtype=dtype), **settings)
    train(original, 20, seed=1)
    file = BytesIO()
    torch.save(original.state_dict(), file)
    file.seek(0)
    restored = VarianceGradientScaler(parameters_of(*SHAPES, dtype=dtype))
    restored.load_state_dict(torch.load(file, weights_only=True))
    assert restored.settings == original.settings
    assert leaves(restored.state_dict()) == leaves(original.state_dict())
    assert train(restored, 10, seed=2) == train(original, 10, seed=2)
    assert leaves(restored.state_dict()) == leaves(original.state_dict())
    assert restored.step_count == 30


def test_a_fresh_state_restores_as_fresh() -> None:
    fresh, other = VarianceGradientScaler(parameters_of(*SHAPES)), trained()
    other.load_state_dict(fresh.state_dict())
    assert (other.step_count, other.grad_mean_ema, other.get_normalized_variance()) == (0, None, 0.0)
    for scaler in (fresh, other):
        for parameter in scaler.parameters:
            parameter.grad = torch.full_like(parameter, 1e-20)
        scaler.update_statistics()
    assert leaves(other.state_dict()) == leaves(fresh.state_dict())


@pytest.mark.parametrize("steps", [0, 1])
def test_a_scaler_restored_before_or_after_its_first_step_goes_on_as_the_original(steps: int) -> None:
    original, restored = trained(steps=steps), trained(steps=3)
    restored.load_state_dict(original.state_dict())
    assert train(restored, 10, seed=2) == train(original, 10, seed=2)
    assert leaves(restored.state_dict()) == leaves(original.state_dict())


def test_a_restored_disabled_scaler_keeps_its_statistics_and_scales_nothing() -> None:
    state = trained().state_dict()
    scaler = VarianceGradientScaler(parameters_of(*SHAPES))
    scaler.load_state_dict({**state, "enabled": False})
    assert scaler.get_normalized_variance() > 0.0
    assert scaler.get_scaling_factor() == 1.0
    assert train(scaler, 2, seed=0) == [1.0, 1.0]
    assert scaler.step_count == 20


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_state_is_a_snapshot_in_both_directions(estimator: Any) -> None:
    scaler = trained(estimator)
    state = scaler.state_dict()
    before = leaves(state)
    other = trained(estimator, steps=2)
    other.load_state_dict(state)
    train(other, 3, seed=4)
    train(scaler, 3, seed=5)
    assert leaves(state) == before


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_state_holds_only_tensors_and_plain_values(estimator: Any) -> None:
    def kinds(value: Any) -> set[type]:
        if isinstance(value, dict):
            return {kind for item in value.values() for kind in kinds(item)}
        if isinstance(value, list):
            return {kind for item in value for kind in kinds(item)}
        return {type(value)}

    assert kinds(trained(estimator, beta=0.5).state_dict()) <= {Tensor, bool, int, float, str, type(None)}


def test_loading_drops_what_is_pending() -> None:
    scaler = trained()
    state = scaler.state_dict()
    scaler.scale_gradients()
    scaler.load_state_dict(state)
    with pytest.raises(CallOrderError):
        scaler.step()


def without(key: str) -> Callable[[dict[Any, Any]], None]:
    return lambda state: state.pop(key)


def with_value(key: str, value: Any) -> Callable[[dict[Any, Any]], None]:
    return lambda state: state.__setitem__(key, value)


def in_estimator(key: str, value: Any) -> Callable[[dict[Any, Any]], None]:
    return lambda state: state["estimator_state"].__setitem__(key, value)


def first_mean(value: Any) -> Callable[[dict[Any, Any]], None]:
    return lambda state: state["estimator_state"]["means"].__setitem__(0, value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without("mean"), "missing keys.*mean"),
        (without("version"), "version None"),
        (with_value("version", 2), "version 2"),
        (with_value("version", True), "version True"),
        (with_value("surplus", 1), "unknown keys.*surplus"),
        (with_value("beta", 1.5), "beta=1.5"),
        (with_value("enabled", 1), "enabled=1"),
        (with_value("estimator", "none"), "estimator='none'"),
        (with_value("estimator", "mean"), "estimator 'mean'"),
        (with_value("step_count", -1), "step_count"),
        (with_value("step_count", True), "step_count"),
        (with_value("step_count", 20.0), "step_count"),
        (with_value("step_count", 3), "from 0 to 3"),
        (with_value("global_observations", 21), "global_observations"),
        (with_value("grad_mean_ema", None), "grad_mean_ema"),
        (with_value("grad_norm_ema", float("nan")), "grad_norm_ema"),
        (with_value("shapes", [[3, 2], [4]]), "for 2 tensors"),
        (with_value("shapes", [[3, 2], [5], [1]]), r"\[5\].*position 1"),
        (with_value("shapes", None), "None"),
        (with_value("observations", torch.tensor([20, 20, 21])), "observations exceeds"),
        (with_value("observations", torch.tensor([-1, 20, 20])), "observations"),
        (with_value("observations", torch.tensor([20.0, 20.0, 20.0])), "torch.int64"),
        (with_value("mean", torch.zeros(4, dtype=torch.float64)), r"mean.*\(4,\)"),
        (with_value("mean", torch.tensor([0.0, float("inf"), 0.0], dtype=torch.float64)), "NaN or infinity"),
        (with_value("mean_square", -torch.ones(3, dtype=torch.float64)), "a number below 0;"),
        (with_value("mean_square", [0.0, 0.0, 0.0]), "list"),
        (with_value("estimator_state", None), "None"),
        (in_estimator("surplus", 1), "surplus"),
        (in_estimator("means", []), "a list of 3 entries"),
        (in_estimator("variances", [-torch.ones(3, 2), torch.zeros(4), torch.zeros(1)]), "a number below 0;"),
        (first_mean(torch.zeros(2, 3)), r"\(2, 3\)"),
        (first_mean(torch.full((3, 2), float("nan"))), "NaN"),
        (first_mean(torch.zeros(3, 2, dtype=torch.int64)), "int64"),
    ],
)
def test_a_damaged_state_is_refused_and_nothing_changes(damage: Callable[[dict[Any, Any]], None], message: str) -> None:
    state = copy.deepcopy(trained("element").state_dict())
    damage(state)
    scaler = trained("element", steps=7, beta=0.8)
    before = leaves(scaler.state_dict())
    with pytest.raises(StateError, match=message):
        scaler.load_state_dict(state)
    assert leaves(scaler.state_dict()) == before


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("version", 3, "The state of the gradient scaler has version 3, and this program reads version 1;"),
        ("surplus", 1, "state of the gradient scaler does not fit: missing keys [], unknown keys ['surplus'];"),
        ("eps", 0.0, "The state of the gradient scaler holds an unusable setting: eps=0.0: the variance"),
        ("shapes", [[3, 2]], "The state is for 1 tensors and the scaler has 3 parameters;"),
        ("shapes", {}, "shapes must be a list, and is a dict of 0 entries;"),
        ("shapes", [[3, 2], [4], [2]], "The state is for a tensor of shape [2] at position 2, where the scaler "
         "has a parameter of shape (1,);"),
        ("shapes", [[3, 2], [4], [1] * 99], f"The state is for a tensor of shape [{'1, ' * 19}1, at position 2,"),
        ("step_count", -1, "step_count must be an integer from 0 to 9007199254740992, and is -1;"),
        ("global_observations", 21, "global_observations must be an integer from 0 to 20, and is 21;"),
        ("observations", torch.tensor([20, 21, 20]), "observations exceeds step_count=20,"),
        ("observations", None, "observations must be a tensor of torch.int64 with shape (3,), and is None"),
        ("mean", None, "mean must be a tensor of torch.float64 with shape (3,), and is None"),
        ("mean_square", None, "mean_square must be a tensor of torch.float64 with shape (3,), and is None"),
        *((name, value, f"{name} must be a finite number, and is {value};")
          for name in GLOBAL_AVERAGES
          for value in (None, True, float("inf"))),
    ],
)  # fmt: skip
def test_a_damaged_state_is_refused_with_what_is_wrong_where(key: str, value: Any, message: str) -> None:
    scaler = trained()
    with pytest.raises(StateError, match=f"^{re.escape(message)}"):
        scaler.load_state_dict({**scaler.state_dict(), key: value})


def test_a_state_without_observations_that_has_an_average_is_refused() -> None:
    scaler = VarianceGradientScaler(parameters_of(*SHAPES))
    with pytest.raises(StateError, match=r"^grad_max_ema must be None after 0 observations, and is 0\.5;"):
        scaler.load_state_dict({**scaler.state_dict(), "grad_max_ema": 0.5})


@pytest.mark.parametrize("state", [None, [], {}, {"version": 1}])
def test_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(StateError):
        trained().load_state_dict(state)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, pickled])
def test_a_copy_is_unlinked_until_it_gets_parameters(copied: Callable[[Any], VarianceGradientScaler]) -> None:
    original = trained("element")
    original.scale_gradients()
    twin = copied(original)
    assert twin.parameters == ()
    assert leaves(twin.state_dict()) == leaves(original.state_dict())
    with pytest.raises(CallOrderError):
        twin.step()
    for call in (twin.scale_gradients, twin.update_statistics):
        with pytest.raises(StateError, match="update_parameters"):
            call()
    parameters = parameters_of(*SHAPES)
    twin.update_parameters(parameters)
    assert all(twin.parameters[i] is parameter for i, parameter in enumerate(parameters))
    assert all(twin.parameters[i] is not parameter for i, parameter in enumerate(original.parameters))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_an_unpickled_scaler_continues_bit_for_bit_once_linked(estimator: Any) -> None:
    original = trained(estimator)
    twin = pickled(original)
    twin.update_parameters(parameters_of(*SHAPES))
    assert train(twin, 10, seed=6) == train(original, 10, seed=6)


def test_training_a_linked_shallow_copy_leaves_the_original_alone() -> None:
    original = trained("element")
    before = leaves(original.state_dict())
    twin = copy.copy(original)
    twin.update_parameters(parameters_of(*SHAPES))
    train(twin, 3, seed=8)
    assert leaves(original.state_dict()) == before


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_an_estimators_variance_is_finite_and_a_copy(estimator: str) -> None:
    layouts = [TensorLayout.of(parameter) for parameter in parameters_of((4,), (0,))]
    subject = ESTIMATOR_CLASSES[estimator](layouts)
    for sign in (1.0, -1.0, 1.0, -1.0):
        first_of_all, weights = np.array([0]), np.array([0.5])
        _, moments = subject.measure(first_of_all, [sign * torch.tensor([3e38, 3e38, 3e38, -3e38])], weights)
        subject.commit(first_of_all, moments, weights)
    first = subject.variance()
    assert np.isfinite(first).all()
    assert first[0] > (1e29 if estimator == "element" else 1e37)
    assert first[1] == 0.0
    first.fill(0.0)
    assert subject.variance()[0] > (1e29 if estimator == "element" else 1e37)


def test_a_pickle_holds_no_workspace() -> None:
    """Two numbers an element are state."""
    big = nn.Parameter(torch.zeros(100_000))
    assert len(pickle.dumps(VarianceGradientScaler([big], estimator="element"))) < 2.1 * 4 * 100_000


def test_a_pickle_holds_no_parameter() -> None:
    big = nn.Parameter(torch.zeros(100_000))
    assert len(pickle.dumps(VarianceGradientScaler([big]))) < 10_000


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_relinking_keeps_averages_counts_and_step_count(estimator: Any) -> None:
    scaler, twin = trained(estimator), trained(estimator)
    before = leaves(scaler.state_dict())
    fresh = parameters_of(*SHAPES)
    scaler.update_parameters(fresh)
    assert leaves(scaler.state_dict()) == before
    assert [id(parameter) for parameter in scaler.parameters] == [id(parameter) for parameter in fresh]
    factors = train(scaler, 10, seed=3)
    assert factors == train(twin, 10, seed=3)
    assert min(factors) < 1.0


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_relinking_warns_of_what_does_not_fit_and_keeps_the_rest(estimator: Any) -> None:
    scaler = trained(estimator)
    before: dict[Any, Any] = scaler.state_dict()
    names = ["body.weight", "head.weight", "head.bias", "extra"]
    parameters = parameters_of((3, 2), (5,), (1,), (2,))
    with pytest.warns(ResumeWarning) as caught:
        scaler.update_parameters(zip(names, parameters, strict=True))
    message = str(caught[0].message)
    assert len(caught) == 1
    assert "head.weight" in message
    assert "extra" in message
    assert "body.weight" not in message
    assert "head.bias" not in message
    after: dict[Any, Any] = scaler.state_dict()
    assert after["observations"].tolist() == [20, 0, 20, 0]
    for key in ("mean", "mean_square"):
        assert after[key][[0, 2]].tolist() == before[key][[0, 2]].tolist()
        assert after[key][[1, 3]].tolist() == [0.0, 0.0]
    coordinates = after["estimator_state"].pop("coordinates", None)
    assert coordinates is None or [len(drawn) for drawn in coordinates] == [6, 5, 1, 2]
    for key, values in after["estimator_state"].items():
        old = before["estimator_state"][key]
        assert leaves([values[0], values[2]]) == leaves([old[0], old[2]])
        assert float(values[1].abs().sum() + values[3].abs().sum()) == 0.0
    assert scaler.step_count == 20
    assert train(scaler, 1, seed=0)[0] < 1.0


def test_relinking_to_fewer_parameters_warns_that_statistics_were_dropped() -> None:
    scaler = trained()
    with pytest.warns(ResumeWarning, match="1 earlier"):
        scaler.update_parameters(parameters_of(*SHAPES[:2]))
    assert len(scaler.parameters) == 2


def test_relinking_before_the_first_step_loses_nothing_and_is_silent() -> None:
    scaler = VarianceGradientScaler(parameters_of(*SHAPES))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaler.update_parameters(parameters_of((9,)))
    assert len(scaler.parameters) == 1


def test_relinking_drops_what_is_pending() -> None:
    scaler = trained()
    scaler.scale_gradients()
    scaler.update_parameters(parameters_of(*SHAPES))
    with pytest.raises(CallOrderError):
        scaler.step()


def test_relinking_refuses_unusable_parameters_and_stays_linked() -> None:
    scaler = trained()
    before, linked = leaves(scaler.state_dict()), scaler.parameters
    for parameters in ([], [linked[0], linked[0]], [torch.zeros(2)]):
        with pytest.raises(SettingError):
            scaler.update_parameters(parameters)  # type: ignore[arg-type]
    assert leaves(scaler.state_dict()) == before
    assert scaler.parameters is linked


def test_relinking_to_another_precision_keeps_the_statistics() -> None:
    scaler = trained("element")
    before = scaler.get_normalized_variance()
    scaler.update_parameters(parameters_of(*SHAPES, dtype=torch.float64))
    state: dict[Any, Any] = scaler.state_dict()
    assert {mean.dtype for mean in state["estimator_state"]["means"]} == {torch.float64}
    assert scaler.get_normalized_variance() == pytest.approx(before, rel=1e-6)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("first_device", ["cpu", "cuda"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_cuda_and_mixed_devices_agree_with_the_cpu(estimator: Any, first_device: str) -> None:
    reference = VarianceGradientScaler(parameters_of(*SHAPES), estimator=estimator, warmup_steps=2)
    devices = (first_device, "cuda", "cuda")
    tensors = [nn.Parameter(p.detach().to(where)) for p, where in zip(parameters_of(*SHAPES), devices, strict=True)]
    scaler = VarianceGradientScaler(tensors, estimator=estimator, warmup_steps=2)
    generator = torch.Generator().manual_seed(0)
    factors = []
    for _ in range(10):
        for cpu, other in zip(reference.parameters, scaler.parameters, strict=True):
            cpu.grad = 3.0 + torch.randn(cpu.shape, generator=generator)
            other.grad = cpu.grad.to(other.device, copy=True)
        factors.append(scaler.scale_gradients())
        assert factors[-1] == pytest.approx(reference.scale_gradients(), rel=1e-5)
        for cpu, other in zip(reference.parameters, scaler.parameters, strict=True):
            torch.testing.assert_close(other.grad.cpu(), cpu.grad, rtol=1e-5, atol=0)  # type: ignore[union-attr]
        scaler.step()
        reference.step()
    assert len(set(factors)) == 9, "the factor stood at a limit, so the comparison is empty"
    restored = VarianceGradientScaler(tensors, estimator=estimator)
    restored.load_state_dict(reference.state_dict())
    assert restored.get_scaling_factor() == pytest.approx(reference.get_scaling_factor(), rel=1e-6)


@pytest.mark.parametrize("way", ["relinked", "loaded"])
def test_statistics_beyond_the_range_of_a_narrower_precision_stay_finite_and_load_again(way: str) -> None:
    wide, narrow = nn.Parameter(torch.ones(2, dtype=torch.float64)), nn.Parameter(torch.ones(2))
    scaler = VarianceGradientScaler([wide], estimator="element", warmup_steps=0)
    for size in (1e30, 2e30):
        wide.grad = torch.tensor([size, -size], dtype=torch.float64)
        scaler.scale_gradients()
        scaler.step()
    if way == "relinked":
        scaler.update_parameters([narrow])
    else:
        saved = scaler.state_dict()
        scaler = VarianceGradientScaler([narrow], estimator="element", warmup_steps=0)
        scaler.load_state_dict(saved)
    for _ in range(3):
        narrow.grad = torch.ones(2)
        scaler.scale_gradients()
        scaler.step()
    state: Any = scaler.state_dict()["estimator_state"]
    assert all(torch.isfinite(each).all() for each in (*state["means"], *state["variances"]))
    VarianceGradientScaler([narrow], estimator="element").load_state_dict(scaler.state_dict())
