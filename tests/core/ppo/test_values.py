"""The two value distributions: one interface, and models of both kinds that train, save and go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlcore import (
    CategoricalValues,
    CheckpointError,
    DistributionalPPO,
    QuantileValues,
    ValueDistribution,
)
from rlcore.ppo.adaptive import ReturnScale
from tests.support.training import make_model

CATEGORICAL: dict[str, Any] = {"value_distribution": "categorical", "v_min": 0.0, "v_max": 60.0, "num_atoms": 13}
KINDS = {"quantile": QuantileValues(13), "categorical": CategoricalValues(13, -6.0, 6.0)}


def categorical_model(**settings: Any) -> DistributionalPPO:
    envs = settings.pop("env", None)
    return make_model(envs, **{"n_quantiles": 32, **CATEGORICAL, **settings})


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(6)
    outputs = 2 * torch.randn(40, 2, 13, generator=generator, dtype=torch.float64)
    returns = 4 * torch.randn(40, generator=generator, dtype=torch.float64)
    return outputs, returns, 3 * torch.randn(40, 2, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("values", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("clip_range_vf", [None, 0.3, 100.0])
def test_the_loss_of_twins_is_the_mean_of_what_each_would_have_alone(
    values: ValueDistribution, clip_range_vf: float | None
) -> None:
    outputs, returns, old = batch()
    alone = [values.loss(outputs[:, [i]], returns, old[:, [i]], clip_range_vf).item() for i in range(2)]
    assert values.loss(outputs, returns, old, clip_range_vf).item() == pytest.approx(sum(alone) / 2)


@pytest.mark.parametrize("values", KINDS.values(), ids=KINDS)
def test_the_maximum_is_taken_sample_by_sample(values: ValueDistribution) -> None:
    outputs, returns, old = batch()
    each = [values.loss(outputs[[i]], returns[[i]], old[[i]], 0.3).item() for i in range(len(returns))]
    assert values.loss(outputs, returns, old, 0.3).item() == pytest.approx(np.mean(each))


def test_the_maximum_is_taken_before_the_critics_are_averaged() -> None:
    values = QuantileValues(3, huber_kappa=0.0)
    outputs = torch.tensor([[[20.0] * 3, [10.0] * 3]])
    # critic 0 loses 20 / 2, clipped to 10 it would lose 10 / 2; critic 1 loses 10 / 2, clipped to 20 it loses 20 / 2
    loss = values.loss(outputs, torch.tensor([0.0]), torch.tensor([[9.0, 21.0]]), 1.0)
    assert loss.item() == pytest.approx(10.0)


def test_the_clip_range_is_in_units_of_the_return_under_a_scale() -> None:
    scale = ReturnScale("zero_lag")
    scale.update(np.array([-4.0, 4.0]))  # mean 0, standard deviation 4
    scale.activate()
    values = QuantileValues(3, huber_kappa=0.0, scale=scale)
    # next to an old value of 4, the critic's 8 counts as 4 + 2, which is 1.5 z; the return of 16 is 4 z
    loss = values.loss(torch.full((1, 1, 3), 2.0), torch.tensor([16.0]), torch.tensor([[4.0]]), 2.0)
    assert loss.item() == pytest.approx((4.0 - 1.5) / 2)


def test_an_update_brings_atoms_closer_to_the_returns_of_its_rollout() -> None:
    model = categorical_model(n_epochs=10, learning_rate=1e-2, optimizer_class="adam", max_grad_norm=10.0)
    before = model.get_parameters()
    model.learn(48)
    after, losses = model.get_parameters(), {}
    for name, state in (("before", before), ("after", after)):
        model.set_parameters(state, exact_match=False)
        (samples,) = model.rollout_buffer.get(48)
        losses[name] = model._minibatch_losses(samples).value.item()
    assert losses["after"] < 0.85 * losses["before"]
    assert model.value_scale.snapshot == (0.0, 1.0)


ATOMS: dict[str, Any] = {"value_distribution": "categorical", "num_atoms": 8, "v_min": 0.0, "v_max": 60.0}
QUANTILES = {"value_distribution": "quantile", "n_quantiles": 8, "num_atoms": None, "v_min": None, "v_max": None}


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        (ATOMS, {"v_max": 600.0}),
        (ATOMS, {"v_min": -1.0}),
        (ATOMS, QUANTILES),
        ({}, {"return_scale": None}),
    ],
)
def test_a_loaded_model_cannot_read_its_critics_as_other_returns(
    settings: dict[str, Any], changes: dict[str, Any], tmp_path: Path
) -> None:
    make_model(**{"n_quantiles": 32, **settings}).save(tmp_path / "model.zip")
    with pytest.raises(CheckpointError, match=r"model\.zip: (policy|the critics learnt)"):
        DistributionalPPO.load(tmp_path / "model.zip", device="cpu", **changes)
    DistributionalPPO.load(tmp_path / "model.zip", device="cpu", **settings)
