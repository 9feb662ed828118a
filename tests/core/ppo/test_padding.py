"""Padding of unequal sequences counts in no loss: neither in what is predicted nor in what it is compared with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sb3_contrib.common.recurrent.buffers import RecurrentRolloutBuffer
from sb3_contrib.common.recurrent.type_aliases import RecurrentRolloutBufferSamples

from rlcore import DistributionalPPO
from rlcore.ppo import losses
from rlcore.ppo.policy import TwinCriticRolloutBuffer
from tests.support.training import make_model


def padded_minibatch(model: DistributionalPPO) -> RecurrentRolloutBufferSamples:
    """A minibatch of a real rollout whose sequences have unequal lengths."""
    for samples in model.rollout_buffer.get(24):
        if int((samples.mask < 0.5).sum()) > 0:
            return samples
    raise AssertionError("the rollout gave no sequences of unequal length")


@pytest.fixture
def model() -> DistributionalPPO:
    """CartPole under a fresh policy: episodes of 10 to 40 steps, so sequences of unequal length; nothing is trained."""
    fresh = make_model()
    fresh.train = lambda: None  # type: ignore[method-assign]
    fresh.learn(144)
    return fresh


def test_a_minibatch_is_laid_out_as_sb3_contrib_lays_it_out(model: DistributionalPPO) -> None:
    buffer, shape = model.rollout_buffer, (model.rollout_buffer.buffer_size, model.n_envs)
    padded_minibatch(model)  # makes one row of the environments
    begins = buffer.swap_and_flatten(np.tile(np.arange(shape[0])[:, None] == 0, shape[1]).astype(np.float32))
    starts = buffer.episode_starts.reshape(-1)[begins.ravel() == 1.0]
    assert not starts.all(), "an environment is in the middle of an episode"
    for first in (0, 5, shape[0] - 3):
        rows = np.roll(np.arange(shape[0] * shape[1]), -first)[:40]
        ours, theirs = (
            kind._get_samples(buffer, rows, begins)._asdict()
            for kind in (TwinCriticRolloutBuffer, RecurrentRolloutBuffer)
        )
        critics = ours.pop("old_values")
        assert critics.shape == (*theirs.pop("old_values").shape, 2)
        torch.testing.assert_close(ours, theirs, rtol=0.0, atol=0.0, check_dtype=False)
        dtypes = [each.dtype for each in (critics, ours["observations"], ours["actions"], ours["mask"])]
        assert dtypes == [torch.float32, torch.float32, torch.int64, torch.float32]


@pytest.mark.parametrize("n_critics", [1, 2])
def test_sequences_of_unequal_length_train(n_critics: int) -> None:
    trained = make_model(n_critics=n_critics)
    trained.learn(144)
    padded_minibatch(trained)
    assert trained._n_updates == 6


def test_what_stands_on_padding_changes_no_loss(model: DistributionalPPO) -> None:
    samples = padded_minibatch(model)
    mask = samples.mask > 0.5
    before = model._minibatch_losses(samples)

    def spoil(values: torch.Tensor) -> torch.Tensor:
        spoilt = values.clone()
        spoilt[~mask] = 1e3
        return spoilt

    spoilt = samples._replace(
        returns=spoil(samples.returns),
        advantages=spoil(samples.advantages),
        old_log_prob=spoil(samples.old_log_prob),
        old_values=spoil(samples.old_values),
        observations=spoil(samples.observations),
    )
    after = model._minibatch_losses(spoilt)
    for name, value in before._asdict().items():
        assert getattr(after, name).item() == pytest.approx(value.item(), rel=1e-5, abs=1e-7), name


def test_both_sides_keep_as_many_samples_as_are_real(model: DistributionalPPO) -> None:
    samples = padded_minibatch(model)
    valid = (samples.mask > 0.5).nonzero().flatten()
    predictions = losses.Predictions(
        *model.policy.evaluate_actions(
            samples.observations, samples.actions.long().flatten(), samples.lstm_states, samples.episode_starts
        )
    )
    kept = {len(field) for field in losses.valid_predictions(predictions, valid) if field is not None}
    kept |= {len(field) for field in losses.valid_targets(samples, valid)}
    assert kept == {len(valid)}
    assert len(samples.mask) > len(valid)
