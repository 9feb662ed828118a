"""The scaler's state: saving, restoring, copying, and linking to other parameters."""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rlcore.errors import CallOrderError, ResumeWarning, StateError
from rlcore.optim.gradient_variance import ESTIMATORS as ESTIMATOR_CLASSES
from rlcore.optim.scaler import VarianceGradientScaler

SHAPES = ((3, 2), (4,), (1,), (0,))
EVERY_ESTIMATOR = pytest.mark.parametrize("estimator", ESTIMATOR_CLASSES)


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


def trained(estimator: Any = "mean", steps: int = 20, dtype: Any = torch.float32, **given: Any) -> Any:
    settings = {"warmup_steps": 5, "beta": 0.9, **given}
    scaler = VarianceGradientScaler(parameters_of(*SHAPES, dtype=dtype), estimator=estimator, **settings)
    train(scaler, steps, seed=1)
    return scaler


def through_file(scaler: VarianceGradientScaler) -> VarianceGradientScaler:
    file = BytesIO()
    torch.save(scaler.state_dict(), file)
    file.seek(0)
    restored = VarianceGradientScaler([nn.Parameter(parameter.detach().clone()) for parameter in scaler.parameters])
    restored.load_state_dict(torch.load(file, weights_only=True))
    return restored


def linked(twin: Any) -> Any:
    twin.update_parameters(parameters_of(*SHAPES))
    return twin


def pickled(scaler: VarianceGradientScaler) -> Any:
    return pickle.loads(pickle.dumps(scaler))  # noqa: S301 - written one call earlier


COPIES: dict[str, Callable[[Any], Any]] = {"deepcopy": copy.deepcopy, "copy": copy.copy, "pickle": pickled}
EVERY_COPY = pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)


def leaves(value: Any) -> list[Any]:
    """Every value of a nested state, in order, with tensors as (dtype, numbers)."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value, key=str) for leaf in [key, *leaves(value[key])]]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    return [(value.dtype, value.tolist())] if isinstance(value, Tensor) else [value]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@EVERY_ESTIMATOR
def test_a_restored_scaler_continues_bit_for_bit(estimator: Any, dtype: torch.dtype) -> None:
    settings: dict[str, Any] = {"alpha": 0.3, "normalization": "second_moment", "eps": 1e-3}
    settings |= {"min_scaling_factor": 0.2, "max_normalized_variance": 9.0}
    original = trained(estimator, dtype=dtype, **settings)
    state, loaded = original.state_dict(), VarianceGradientScaler(parameters_of(*SHAPES, dtype=dtype))
    loaded.load_state_dict(state)
    restored, before = through_file(original), leaves(state)
    assert restored.settings == original.settings
    assert leaves(restored.state_dict()) == before
    assert train(restored, 10, seed=2) == train(loaded, 10, seed=2) == train(original, 10, seed=2)
    assert leaves(state) == before, "it is a snapshot"
    assert leaves(restored.state_dict()) == leaves(original.state_dict())
    assert restored.step_count == 30


@EVERY_COPY
@EVERY_ESTIMATOR
def test_a_copy_is_unlinked_until_it_gets_parameters_and_then_goes_on(
    estimator: Any, copied: Callable[[Any], Any]
) -> None:
    original = trained(estimator)
    original.scale_gradients()
    twin = copied(original)
    assert twin.parameters == ()
    assert leaves(twin.state_dict()) == leaves(original.state_dict())
    with pytest.raises(CallOrderError):
        twin.step()
    for call in (twin.scale_gradients, twin.update_statistics):
        with pytest.raises(StateError, match="update_parameters"):
            call()
    assert all(a is not b for a, b in zip(linked(twin).parameters, original.parameters, strict=True))
    before = leaves(original.state_dict())
    factors = train(twin, 10, seed=6)
    assert leaves(original.state_dict()) == before
    assert factors == train(original, 10, seed=6)


@pytest.mark.parametrize(
    "drop",
    [lambda scaler: scaler.load_state_dict(scaler.state_dict()), linked, lambda scaler: scaler.reset_statistics()],
)
def test_what_is_pending_is_dropped(drop: Callable[[Any], Any]) -> None:
    scaler = trained(steps=0)
    train(scaler, 0, seed=0)
    for parameter in scaler.parameters:
        parameter.grad = torch.ones_like(parameter)
    scaler.scale_gradients()
    drop(scaler)
    with pytest.raises(CallOrderError):
        scaler.step()


FEW = torch.zeros(4).double()
DAMAGES: list[tuple[str, str, Any, str]] = [
    *(("", "version", value, r"\['version'\] must be ") for value in (2, True, None)),
    ("", "surplus", 1, r"missing keys \[\], unknown keys \['surplus'\]"),
    ("", "beta", 1.5, "unusable setting: beta=1.5"),
    ("", "enabled", 1, "enabled=1"),
    ("", "estimator", "none", "estimator='none'"),
    ("", "estimator", "mean", "estimator 'mean'"),
    *(("", "step_count", value, r"\['step_count'\] must be an integer") for value in (-1, True, 20.0, None, 2**53 + 1)),
    ("", "step_count", 3, "exceeds step_count=3"),
    ("", "global_observations", 21, "exceeds step_count=20"),
    ("", "global_observations", 0, "0 where the averages are None"),
    *(("", f"grad_{name}_ema", value, message) for name in ("mean", "var", "norm") for value, message in (
        (None, "0 where the averages are None"), (True, "a finite number"), (float("nan"), "a finite number"),
        (torch.zeros(3), "a finite number"))),
    *(("", "shapes", value, r"\['shapes'\].* must be")
      for value in ([[3, 2], [4]], [[3, 2], [5], [1], [0]], None, {}, [[3, 2], [4], [1] * 99, [0]])),
    ("", "observations", torch.tensor([20, 20, 21, 0]), "observations exceeds step_count=20"),
    ("", "observations", torch.tensor([-1, 20, 20, 0]), "observations"),
    ("", "grad_var_ema", -1.0, "grad_var_ema"),
    ("", "grad_norm_ema", -1.0, "grad_norm_ema"),
    ("", "observations", torch.tensor([20.0, 20.0, 20.0, 0.0]), "torch.int64"),
    *(("", name, value, rf"\['{name}'\] must be a tensor of torch.float64")
      for name in ("mean", "mean_square") for value in (torch.zeros(3).double(), torch.zeros(4).long(), [0.0] * 4)),
    ("", "mean", torch.full_like(FEW, torch.inf), "NaN, infinity"),
    ("", "mean_square", FEW - 1, "a number below 0;"),
    ("", "estimator_state", None, "None"),
    *((name, "surplus", 1, f"estimator '{name}'.*surplus") for name in ESTIMATOR_CLASSES),
    *((name, "variance", value, message) for name in ("mean", "total")
      for value, message in ((FEW - 1, "below 0"), (torch.zeros(3).double(), r"\(4,\)"), (None, "float64"))),
    *((name, "spatial_variance", FEW - 1, "below 0") for name in ("spatial", "total")),
    ("mean", "mean", torch.full_like(FEW, torch.nan), "NaN"),
    ("element", "means", [], "a list of 4 entries"),
    *(("element", "means", [bad, torch.zeros(4), torch.zeros(1), torch.zeros(0)], message) for bad, message in (
        (torch.zeros(2, 3), r"\['means'\]\[0\].*\(3, 2\)"), (torch.full((3, 2), torch.nan), "NaN"),
        (torch.zeros(3, 2).long(), "int64"), (None, r"\['means'\]\[0\]"))),
    ("element", "variances", [torch.zeros(3, 2), -torch.ones(4), torch.zeros(1), torch.zeros(0)], "a number below 0;"),
]  # fmt: skip


@pytest.mark.parametrize(("estimator", "key", "value", "message"), DAMAGES)
def test_a_damaged_state_is_refused_with_what_is_wrong_and_nothing_changes(
    estimator: str, key: str, value: Any, message: str
) -> None:
    """``estimator`` says whose own state is damaged, if it is not that of the scaler."""
    state = copy.deepcopy(trained(estimator or "element").state_dict())
    (state["estimator_state"] if estimator else state)[key] = value
    scaler = trained(estimator or "element", steps=7, beta=0.8)
    before = leaves(scaler.state_dict())
    with pytest.raises(StateError, match=message):
        scaler.load_state_dict(state)
    assert leaves(scaler.state_dict()) == before


@pytest.mark.parametrize("missing", [*trained().state_dict()])
def test_a_state_without_an_entry_is_refused(missing: str) -> None:
    scaler = trained()
    state = scaler.state_dict()
    del state[missing]
    with pytest.raises(StateError, match=re.escape(f"missing keys ['{missing}']")):
        scaler.load_state_dict(state)


def test_relinking_to_other_shapes_starts_fresh_with_a_warning_and_before_the_first_step_is_silent() -> None:
    scaler = trained()
    with pytest.warns(ResumeWarning, match="of 20 steps are reset") as caught:
        scaler.update_parameters(parameters_of((3, 2), (5,), (1,)))
    assert len(caught) == 1
    assert [tuple(each.shape) for each in scaler.parameters] == [(3, 2), (5,), (1,)]
    assert scaler.step_count == 0
    assert train(scaler, 1, seed=0)[0] == 1.0
    fresh = VarianceGradientScaler(parameters_of(*SHAPES))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fresh.update_parameters(parameters_of((9,)))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("first_device", ["cpu", "cuda"])
@EVERY_ESTIMATOR
def test_cuda_and_mixed_devices_agree_with_the_cpu(estimator: Any, first_device: str) -> None:
    reference = VarianceGradientScaler(parameters_of(*SHAPES), estimator=estimator, warmup_steps=2)
    devices = (first_device, "cuda", "cuda", "cuda")
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
