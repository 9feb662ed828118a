"""The losses of a minibatch against hand-worked numbers."""

from __future__ import annotations

import pytest
import torch

from rlcore.ppo import losses
from rlcore.ppo.losses import QuantileValues


def value_loss(
    quantiles: torch.Tensor,
    returns: torch.Tensor,
    old_values: torch.Tensor,
    clip_range_vf: float | None,
    huber_kappa: float,
) -> torch.Tensor:
    values = QuantileValues(quantiles.shape[-1], huber_kappa)
    return values.loss(quantiles, returns, old_values, clip_range_vf)


def test_the_larger_loss_is_taken_per_critic_before_the_critics_are_averaged() -> None:
    loss = value_loss(torch.tensor([[[9.0], [2.0]]]), torch.tensor([2.0]), torch.tensor([[4.0, -4.0]]), 1.0, 0.0)
    # critic 0: unclipped |2-9|, clipped to 5: |2-5|; critic 1: unclipped |2-2|, clipped to -3: |2+3|; each times 1/2
    assert loss.item() == pytest.approx((7.0 + 5.0) / 2 / 2)


def test_a_critic_is_not_clipped_against_the_smallest_old_value() -> None:
    quantiles = torch.tensor([[[0.0], [10.0]]])
    loss = value_loss(quantiles, torch.tensor([10.0]), torch.tensor([[0.0, 3.0]]), 1.0, 0.0)
    # critic 0: unclipped |10-0|; critic 1: clipped to 4 (against its own 3), |10-4|; each times 1/2
    assert loss.item() == pytest.approx((10.0 + 6.0) / 2 / 2)


def test_advantages_are_normalised_but_a_single_one_is_left_alone() -> None:
    normalised = losses.normalize_advantages(torch.tensor([1.0, 2.0, 6.0]))
    assert normalised.mean().item() == pytest.approx(0.0, abs=1e-6)
    assert normalised.std().item() == pytest.approx(1.0, rel=1e-5)
    assert losses.normalize_advantages(torch.tensor([3.0])).tolist() == [3.0]


def test_kl_estimate_is_zero_without_change_and_positive_with_any() -> None:
    assert losses.approximate_kl(torch.zeros(4)).item() == 0.0
    assert losses.approximate_kl(torch.tensor([0.5, -0.5])).item() == pytest.approx(0.1276, abs=1e-4)


def make_batch() -> tuple[losses.Predictions, losses.Targets]:
    generator = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    predictions = losses.Predictions(draw(5, 2, 4), draw(5), draw(5).abs())
    return predictions, losses.Targets(draw(5), draw(5), draw(5), draw(5, 2))


def total(predictions: losses.Predictions, targets: losses.Targets, **changes: float) -> losses.MinibatchLosses:
    settings = {"clip_range": 0.2, "ent_coef": 0.0, "vf_coef": 0.5, **changes}
    return losses.minibatch_losses(
        predictions,
        targets,
        QuantileValues(4),
        clip_range_vf=None,
        normalize_advantage=False,
        **settings,  # type: ignore[arg-type]
    )


def test_total_weighs_its_three_terms() -> None:
    predictions, targets = make_batch()
    result = total(predictions, targets, ent_coef=0.3, vf_coef=0.7)
    assert result.entropy.item() == pytest.approx(-predictions.entropy.mean().item())  # type: ignore[union-attr]
    expected = result.policy + 0.3 * result.entropy + 0.7 * result.value
    assert result.total.item() == pytest.approx(expected.item(), rel=1e-6)


def test_without_a_closed_form_the_entropy_is_estimated_from_log_prob() -> None:
    predictions, targets = make_batch()
    result = total(predictions._replace(entropy=None), targets, ent_coef=1.0)
    assert result.entropy.item() == pytest.approx(predictions.log_prob.mean().item())


def test_clip_fraction_counts_ratios_outside_the_range() -> None:
    predictions, targets = make_batch()
    shifted = predictions._replace(log_prob=targets.old_log_prob + torch.tensor([0.0, 0.1, 0.5, -0.5, 0.0]))
    assert total(shifted, targets).clip_fraction.item() == pytest.approx(2 / 5)


def test_policy_loss_is_minus_the_surrogate_of_new_over_old_probability() -> None:
    predictions, targets = make_batch()
    ratio = torch.tensor([1.5, 0.5, 1.5, 0.5, 1.0])
    targets = targets._replace(advantages=torch.tensor([1.0, 1.0, -1.0, -1.0, 0.0]))
    moved = predictions._replace(log_prob=targets.old_log_prob + ratio.log())
    # the smaller objectives: 1.2, 0.5, -1.5, -0.8, 0
    assert total(moved, targets).policy.item() == pytest.approx(0.6 / 5, rel=1e-5)


@pytest.mark.parametrize("normalize", [True, False])
def test_advantages_are_normalised_only_when_asked(normalize: bool) -> None:
    predictions, targets = make_batch()
    expected = losses.normalize_advantages(targets.advantages) if normalize else targets.advantages
    unmoved = predictions._replace(log_prob=targets.old_log_prob)
    shifted = targets._replace(advantages=targets.advantages + 5.0)
    result = losses.minibatch_losses(
        unmoved,
        shifted,
        QuantileValues(4),
        clip_range=0.2,
        clip_range_vf=None,
        ent_coef=0.0,
        vf_coef=0.5,
        normalize_advantage=normalize,
    )
    shift = 0.0 if normalize else 5.0
    assert result.policy.item() == pytest.approx(-expected.mean().item() - shift, abs=1e-6)


def test_value_loss_has_its_own_clipping_and_its_own_kappa() -> None:
    predictions, targets = make_batch()
    result = losses.minibatch_losses(
        predictions,
        targets,
        QuantileValues(4, huber_kappa=0.3),
        clip_range=0.2,
        clip_range_vf=0.05,
        ent_coef=0.0,
        vf_coef=0.5,
        normalize_advantage=False,
    )
    expected = value_loss(predictions.value_outputs, targets.returns, targets.old_values, 0.05, 0.3)
    assert result.value.item() == pytest.approx(expected.item(), rel=1e-6)


def test_only_the_total_carries_a_gradient() -> None:
    predictions, targets = make_batch()
    leaves = losses.Predictions(*(part.requires_grad_() for part in predictions))  # type: ignore[union-attr]
    carrying = {name for name, value in total(leaves, targets)._asdict().items() if value.requires_grad}
    assert carrying == {"total"}
