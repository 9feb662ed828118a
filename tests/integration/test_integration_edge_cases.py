"""The twelve edge cases of document 002: ten that it names, and two that it leaves unnamed, chosen here
(`TestInterruptedTraining`, `TestReplacedModules`)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from stable_baselines3.common.utils import LinearSchedule
from torch import Tensor, nn

from rlcore import DistributionalPPO, NonFiniteGradientError, VarianceGradientScaler
from tests.support.gradients import watched
from tests.support.steps import UNCLIPPED, all_finite, logged, scaler_of, tiny, train, weights_of
from tests.support.training import differing, make_envs, make_model


def load(path: Path) -> DistributionalPPO:
    return DistributionalPPO.load(path, env=make_envs(), device="cpu")


def observe(scaler: VarianceGradientScaler, gradients: Callable[[], list[Tensor | None]], steps: int) -> list[float]:
    """Give every parameter its gradient, scale and commit; the factors."""
    factors = []
    for _ in range(steps):
        for parameter, gradient in zip(scaler.parameters, gradients(), strict=True):
            parameter.grad = gradient
        factors.append(scaler.scale_gradients())
        scaler.step()
    return factors


def norm_of(gradients: dict[str, Tensor]) -> float:
    """Of all parameters together."""
    return math.sqrt(sum(float(each.double().square().sum()) for each in gradients.values()))


def average(values: list[float], decay: float = 0.99) -> float:
    """Exponential and bias-corrected."""
    weights = [decay**age for age in reversed(range(len(values)))]
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)


class TestVGSWithSchedules:
    def test_vgs_with_lr_scheduler(self) -> None:
        """The rate in the optimizer is the schedule's, however much the gradients are scaled."""
        model = tiny(learning_rate=LinearSchedule(1e-3, 1e-4, 1.0), vgs_alpha=1e9, vgs_warmup_steps=1)
        rates: list[set[float]] = []
        model.policy.optimizer.register_step_pre_hook(
            lambda optimizer, *_: rates.append({group["lr"] for group in optimizer.param_groups})
        )
        model.learn(5 * 24, log_interval=10**9)
        assert logged(model, "vgs/scaling_factor") == pytest.approx(0.1)
        assert [len(each) for each in rates] == [1] * 5
        expected = [1e-3 - 9e-4 * done / 5 for done in (1, 2, 3, 4, 5)]
        assert [each.pop() for each in rates] == pytest.approx(expected)


class TestVGSScaling:
    def test_scaling_factor_stability(self) -> None:
        """Under noise that stays as it is, the factor stays near 1 / (1 + alpha Var / mean^2) and does not drift."""
        generator = torch.Generator().manual_seed(0)
        scaler = VarianceGradientScaler([nn.Parameter(torch.zeros(4))], warmup_steps=10, alpha=1.0)
        factors = observe(scaler, lambda: [1.0 + torch.randn(4, generator=generator)], 1500)
        expected = 1.0 / (1.0 + (1.0 / 4) / 1.0**2)
        for start in (300, 900, 1200):
            window = factors[start : start + 300]
            assert abs(sum(window) / len(window) - expected) < 0.06
            assert min(window) > 0.6

    def test_extremely_high_variance(self) -> None:
        """Gradients that only change sign, of any size: the factor is the floor, statistics and gradients finite."""
        for size in (1.0, 1e6, 1e30):
            weight = nn.Parameter(torch.zeros(3))
            scaler = VarianceGradientScaler([weight], warmup_steps=2)
            signs = iter([1.0, -1.0] * 30)
            factors = observe(scaler, lambda: [torch.full((3,), size * next(signs))], 60)  # noqa: B023
            assert factors[20:] == [0.1] * 40
            assert all_finite(scaler.state_dict())
            assert weight.grad is not None
            assert weight.grad.tolist() == pytest.approx([-0.1 * size] * 3)


class TestVGSOrdering:
    def test_operation_ordering(self) -> None:
        """Scaled first, then clipped: what the optimizer gets has the largest norm allowed, after the scaling."""
        model = tiny(vgs_alpha=1e9, vgs_warmup_steps=1, max_grad_norm=0.05)
        with watched(model) as steps:
            train(model, 4)
        scaled = [step.promised * norm_of(step.raw) for step in steps]
        assert min(scaled) < 0.05 < max(scaled)
        assert [norm_of(step.used) for step in steps] == pytest.approx([min(each, 0.05) for each in scaled], rel=1e-3)
        assert scaler_of(model).grad_norm_ema == pytest.approx(average([norm_of(each.raw) for each in steps]), rel=1e-4)

    def test_vgs_step_after_optimizer_step(self) -> None:
        """Statistics of a step are committed once the optimizer has made it, and not if it fails."""
        model = tiny()
        counted: list[int] = []
        hook = model.policy.optimizer.register_step_post_hook(lambda *_: counted.append(scaler_of(model).step_count))
        train(model, 3)
        assert counted == [0, 1, 2]
        hook.remove()
        before = scaler_of(model).state_dict()
        losses = model._minibatch_losses(next(iter(model.rollout_buffer.get(24))))

        def fail(*_: Any) -> None:
            raise NonFiniteGradientError("weight", "as if one gradient had overflowed")

        model.policy.optimizer.register_step_pre_hook(fail)
        with pytest.raises(NonFiniteGradientError):
            model._optimize(losses.total)
        assert differing(scaler_of(model).state_dict(), before) == []


class TestVGSGradients:
    def test_zero_gradients(self) -> None:
        """Gradients of zero are no noise: factor 1, and what follows them is measured."""
        scaler = VarianceGradientScaler([nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2, 2))], warmup_steps=0)
        assert observe(scaler, lambda: [torch.zeros(3), torch.zeros(2, 2)], 20) == [1.0] * 20
        assert (scaler.step_count, scaler.get_normalized_variance()) == (20, 0.0)
        assert (scaler.grad_mean_ema, scaler.grad_var_ema, scaler.grad_norm_ema) == (0.0, 0.0, 0.0)
        observe(scaler, lambda: [torch.ones(3), torch.zeros(2, 2)], 1)
        assert scaler.get_scaling_factor() < 1.0

    def test_mixed_zero_and_nonzero_gradients(self) -> None:
        """A tensor of zeros and one without gradient change neither themselves nor what is measured of the others."""
        generator = torch.Generator().manual_seed(0)
        draws = [1.0 + torch.randn(5, generator=generator) for _ in range(30)]
        mixed = VarianceGradientScaler([nn.Parameter(torch.ones(n)) for n in (5, 5, 5, 4, 3)], warmup_steps=0)
        alone = VarianceGradientScaler([nn.Parameter(torch.ones(5)) for _ in range(3)], warmup_steps=0)
        for draw in draws:
            observe(mixed, lambda: [*(draw.clone() for _ in range(3)), torch.zeros(4), None], 1)  # noqa: B023
            observe(alone, lambda: [draw.clone() for _ in range(3)], 1)  # noqa: B023
            assert mixed.get_scaling_factor() == pytest.approx(alone.get_scaling_factor(), rel=1e-9)
        assert mixed.get_scaling_factor() < 1.0
        *_, of_zeros, without = mixed.parameters
        assert of_zeros.grad is not None
        assert of_zeros.grad.tolist() == [0.0] * 4
        assert without.grad is None
        state = mixed.state_dict()
        assert state["observations"].tolist() == [30, 30, 30, 30, 0]  # type: ignore[union-attr]
        assert differing(state["mean"][:3], alone.state_dict()["mean"]) == []  # type: ignore[index]


class TestFullIntegrationSaveLoad:
    def test_vgs_state_preserved_across_save_load(self, tmp_path: Path) -> None:
        """The 16 steps of the document, which were 0 after loading."""
        model = make_model()
        train(model, 4)
        assert scaler_of(model).step_count == 16
        model.save(tmp_path / "model.zip")
        loaded = scaler_of(load(tmp_path / "model.zip"))
        assert loaded.step_count == 16
        for name in ("grad_mean_ema", "grad_var_ema", "grad_norm_ema"):
            assert getattr(loaded, name) == getattr(scaler_of(model), name) is not None
        assert differing(loaded.state_dict(), scaler_of(model).state_dict()) == []

    def test_save_load_multiple_cycles(self, tmp_path: Path) -> None:
        """Saved and loaded after every update, a run is the run that was never interrupted."""
        whole = tiny(vgs_warmup_steps=1)
        train(whole, 4)
        model = tiny(vgs_warmup_steps=1)
        for cycle in range(4):
            train(model, 1)
            assert scaler_of(model).step_count == cycle + 1
            model.save(tmp_path / "model.zip")
            model = load(tmp_path / "model.zip")
        assert differing(model.get_parameters(), whole.get_parameters()) == []

    def test_vgs_tracks_new_parameters_after_load(self, tmp_path: Path) -> None:
        """What the loaded model trains is what its scaler measures and scales."""
        model = tiny(vgs_warmup_steps=1, vgs_alpha=1e9)
        train(model, 3)
        model.save(tmp_path / "model.zip")
        loaded = load(tmp_path / "model.zip")
        own, old = ({id(each) for each in each_model.policy.parameters()} for each_model in (loaded, model))
        assert {id(each) for each in scaler_of(loaded).parameters} == own
        assert own.isdisjoint(old)
        with watched(loaded) as steps:
            train(loaded, 1)
        assert differing(steps[0].used, {name: raw * steps[0].promised for name, raw in steps[0].raw.items()}) == []
        assert steps[0].promised == 0.1


class TestInterruptedTraining:
    def test_refused_gradient_leaves_no_trace(self) -> None:
        """An update that meets a gradient of infinity undoes the steps that it had made, those of the scaler too."""
        model = make_model(vgs_warmup_steps=0)
        train(model, 1)
        before = copy.deepcopy(model.get_parameters())
        calls: list[Tensor] = []

        def spoil(gradient: Tensor) -> Tensor:
            calls.append(gradient)
            return gradient * math.inf if len(calls) == 3 else gradient

        bias: Any = model.policy.action_net.bias
        hook = bias.register_hook(spoil)
        with pytest.raises(NonFiniteGradientError, match=r"action_net\.bias"):
            train(model, 1)
        assert len(calls) == 3
        assert differing(model.get_parameters(), before) == []
        hook.remove()
        train(model, 1)
        assert scaler_of(model).step_count == 8
        assert all_finite(model.get_parameters())


class TestReplacedModules:
    def test_vgs_tracks_a_replaced_module(self) -> None:
        """After a module was replaced and the optimizer rebuilt, the new weights are scaled, measured and trained."""
        model = tiny(vgs_warmup_steps=0, max_grad_norm=UNCLIPPED)
        train(model, 2)
        model.policy.action_net = nn.Linear(8, 2)
        model.rebuild_optimizer()
        assert scaler_of(model).step_count == 2
        assert {id(each) for each in scaler_of(model).parameters} == {id(each) for each in model.policy.parameters()}
        before = weights_of(model)
        with watched(model) as steps:
            train(model, 1)
        for name in ("action_net.weight", "action_net.bias"):
            assert differing(steps[0].used[name], steps[0].raw[name] * steps[0].promised) == []
            assert (weights_of(model)[name] != before[name]).any()
        assert steps[0].promised < 1.0
