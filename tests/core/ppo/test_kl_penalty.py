"""The KL penalty: how its coefficient moves, what it adds to the loss, and what it does to training."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from stable_baselines3.common.logger import Logger

from rlcore import DistributionalPPO, ResumeWarning, StateError
from rlcore.ppo import losses
from rlcore.ppo.adaptive import KLPenalty
from rlcore.ppo.losses import QuantileValues
from tests.support.training import make_model


@dataclass
class Settings:
    kl_penalty_target: float | None = 0.01
    kl_penalty_coef: float = 1.0
    kl_penalty_min_coef: float = 0.3
    kl_penalty_max_coef: float = 3.0


@pytest.mark.parametrize(("kl", "coefficient"), [(0.016, 2.0), (0.014, 1.0), (0.007, 1.0), (0.006, 0.5)])
def test_the_coefficient_doubles_and_halves_beyond_one_and_a_half_times_the_target(
    kl: float, coefficient: float
) -> None:
    """Schulman et al. 2017, section 4."""
    penalty = KLPenalty(Settings())
    penalty.adapt(kl)
    assert penalty.coefficient == coefficient


@pytest.mark.parametrize("kl", [float("inf"), float("nan")])
def test_a_divergence_beyond_all_numbers_counts_as_the_largest(kl: float) -> None:
    penalty, other = KLPenalty(Settings()), KLPenalty(Settings())
    penalty.adapt(kl)
    state = penalty.capture()
    assert state == {"coefficient": 2.0, "last_kl": sys.float_info.max}
    other.restore(state)
    assert other.capture() == state


@pytest.mark.parametrize("reached_by", ["adapting", "restoring"])
def test_wider_bounds_bring_nothing_back_from_beyond_the_old_ones(reached_by: str) -> None:
    settings = Settings(kl_penalty_max_coef=1.5)
    penalty = KLPenalty(settings)
    penalty.adapt(1.0) if reached_by == "adapting" else penalty.restore({"coefficient": 9.0, "last_kl": 1.0})
    copy = KLPenalty(settings)
    copy.restore(penalty.capture() or {})
    settings.kl_penalty_max_coef = 100.0
    assert (penalty.coefficient, copy.coefficient) == (1.5, 1.5)


@pytest.mark.parametrize("kl", [-1e-9, -math.inf])
def test_an_estimate_below_0_counts_as_0_and_can_be_restored(kl: float) -> None:
    penalty = KLPenalty(Settings())
    penalty.adapt(kl)
    state = penalty.capture()
    assert state is not None
    assert state["last_kl"] == 0.0
    penalty.restore(state)


def test_without_a_target_nothing_is_penalised_and_nothing_is_kept() -> None:
    penalty = KLPenalty(Settings(kl_penalty_target=None))
    penalty.adapt(1.0)
    assert (penalty.coefficient, penalty.capture()) == (0.0, None)


@pytest.mark.parametrize(
    "damage",
    [
        {"coefficient": float("nan")},
        {"coefficient": -1.0},
        {"coefficient": None},
        {"coefficient": True},
        {"last_kl": "x"},
        {"last_kl": float("inf")},
        {"other": 1.0},
    ],
)
def test_a_state_that_is_none_is_refused_and_nothing_changes(damage: dict[str, Any]) -> None:
    penalty = KLPenalty(Settings())
    with pytest.raises(StateError, match="kl_penalty_state"):
        penalty.restore({"coefficient": 2.0, "last_kl": None, **damage})
    assert penalty.coefficient == 1.0


def minibatch(log_prob: torch.Tensor, kl_penalty_coef: float, advantages: torch.Tensor) -> losses.MinibatchLosses:
    batch = len(log_prob)
    predictions = losses.Predictions(torch.zeros(batch, 2, 4), log_prob, torch.zeros(batch))
    targets = losses.Targets(torch.zeros(batch), advantages, torch.zeros(batch), torch.zeros(batch, 2))
    return losses.minibatch_losses(
        predictions,
        targets,
        QuantileValues(4),
        clip_range=0.2,
        clip_range_vf=None,
        ent_coef=0.0,
        vf_coef=0.5,
        normalize_advantage=False,
        kl_penalty_coef=kl_penalty_coef,
    )


def test_the_loss_grows_by_the_coefficient_times_the_divergence_and_so_does_its_gradient() -> None:
    log_prob = torch.tensor([0.3, -0.2, 0.0], requires_grad=True)
    result = minibatch(log_prob, 0.5, torch.zeros(3))
    ratio = log_prob.detach().exp()
    assert result.total.item() == pytest.approx(0.5 * (ratio - 1 - log_prob.detach()).mean().item())
    result.total.backward()  # type: ignore[no-untyped-call]
    assert log_prob.grad is not None
    assert log_prob.grad.tolist() == pytest.approx((0.5 * (ratio - 1) / 3).tolist())
    assert not result.approx_kl.requires_grad


def test_without_a_penalty_an_infinite_divergence_does_not_reach_the_loss() -> None:
    result = minibatch(torch.tensor([100.0, 0.0]), 0.0, torch.tensor([1.0, 0.0]))
    assert result.approx_kl.item() == float("inf")
    assert result.total.item() == pytest.approx(-0.6)


def test_the_coefficient_moves_once_an_update_and_both_are_logged() -> None:
    model = make_model(kl_penalty_target=1e-9, kl_penalty_coef=0.25)
    model.set_logger(Logger(None, []))
    model.learn(96, log_interval=1000)
    logged = model.logger.name_to_value
    assert logged["train/kl_penalty_coef"] == 0.5
    assert logged["train/kl_penalty"] == pytest.approx(0.5 * logged["train/approx_kl"])
    assert model.kl_penalty.capture() == {"coefficient": 1.0, "last_kl": logged["train/kl_last_epoch"]}
    assert logged["train/kl_last_epoch"] > 0


def test_the_coefficient_moves_by_the_divergence_of_the_last_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    original, seen = losses.minibatch_losses, []

    def recorded(*args: Any, **kwargs: Any) -> losses.MinibatchLosses:
        result = original(*args, **kwargs)
        seen.append(result.approx_kl.item())
        return result

    monkeypatch.setattr(losses, "minibatch_losses", recorded)
    model = make_model(kl_penalty_target=0.01, n_epochs=3)
    model.learn(48)
    assert len(seen) == 6
    assert model.kl_penalty.last_kl == pytest.approx(sum(seen[-2:]) / 2)
    assert model.kl_penalty.last_kl != pytest.approx(sum(seen) / 6)


def test_parameters_without_the_state_start_the_penalty_fresh_and_say_so() -> None:
    giver, taker = make_model(), make_model(kl_penalty_target=1e-9)
    taker.learn(48)
    with pytest.warns(ResumeWarning, match="kl_penalty_state"):
        taker.set_parameters(giver.get_parameters())
    assert taker.kl_penalty.capture() == {"coefficient": 0.2, "last_kl": None}


def test_models_exchange_parameters_under_the_receivers_settings(tmp_path: Any) -> None:
    giver, plain = make_model(kl_penalty_target=1e-9), make_model()
    giver.learn(48)
    plain.set_parameters(giver.get_parameters())
    assert plain.kl_penalty.coefficient == 0.0
    giver.save(tmp_path / "model.zip")
    loaded = DistributionalPPO.load(tmp_path / "model.zip", device="cpu", kl_penalty_target=None)
    assert loaded.get_parameters()["kl_penalty_state"] is None
    same = DistributionalPPO.load(tmp_path / "model.zip", device="cpu")
    assert same.kl_penalty.capture() == giver.kl_penalty.capture() != KLPenalty(giver).capture()


def test_a_coefficient_asked_for_on_loading_rules_over_the_file(tmp_path: Any) -> None:
    model = make_model(kl_penalty_target=1e-9)
    model.learn(48)
    model.save(tmp_path / "model.zip")
    loaded = DistributionalPPO.load(tmp_path / "model.zip", device="cpu", kl_penalty_coef=3.0)
    assert loaded.kl_penalty.capture() == {"coefficient": 3.0, "last_kl": model.kl_penalty.last_kl}
