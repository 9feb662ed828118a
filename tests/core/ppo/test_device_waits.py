"""How often the CPU waits for a device while it trains on a minibatch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributions import Distribution
from torch.utils._pytree import tree_leaves

from rlcore import DistributionalPPO
from tests.support.meta_device import META, Crossings, crossings_of_a_minibatch
from tests.support.training import make_envs, make_model

PLAIN = {"variance_gradient_scaling": False, "n_epochs": 1}
SCALED = {**PLAIN, "variance_gradient_scaling": True, "vgs_warmup_steps": 1}
CATEGORICAL = {"value_distribution": "categorical", "v_min": 0.0, "v_max": 9.0, "clip_range_vf": 0.2, "n_quantiles": 32}


def rolled_out(settings: dict[str, Any], env_id: str = "CartPole-v1") -> DistributionalPPO:
    """A model with a rollout to train on."""
    model = make_model(make_envs(env_id), **settings)
    _, callback = model._setup_learn(10**9)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
    return model


@pytest.mark.parametrize(
    ("settings", "env_id", "reads"),
    [
        pytest.param({**PLAIN, "optimizer_class": "adam"}, "CartPole-v1", 1, id="the norm"),
        pytest.param({**PLAIN, **CATEGORICAL}, "Pendulum-v1", 1, id="the norm, other distributions"),
        pytest.param(SCALED, "CartPole-v1", 1, id="the moments"),
        pytest.param({**SCALED, "vgs_estimator": "element"}, "CartPole-v1", 2, id="the moments and the averages"),
    ],
)
def test_a_minibatch_waits_for_what_decides(settings: dict[str, Any], env_id: str, reads: int) -> None:
    """It sends ten fields, which of them are real, and where episodes start, once for each LSTM."""
    assert crossings_of_a_minibatch(rolled_out(settings, env_id)) == (reads, 13)


def test_a_minibatch_of_many_sequences_comes_to_the_device_in_one_copy_a_field() -> None:
    """The CPU keeps what it decides by."""
    buffer = rolled_out(PLAIN).rollout_buffer
    buffer.device = META
    with Crossings() as crossings:
        samples = next(buffer.get())
    assert samples.lstm_states.pi[0].shape[1] >= 3
    moved = tree_leaves(samples._replace(mask=None, episode_starts=None))
    assert {field.is_meta for field in moved if field is not None} == {True}
    assert (samples.mask.is_cpu, samples.episode_starts.is_cpu) == (True, True)
    assert (crossings.reads, crossings.sent) == (0, 10)


@pytest.mark.parametrize(("device", "checked"), [("cpu", True), ("meta", False)])
def test_distributions_check_their_numbers_on_the_cpu_alone(device: str, checked: bool) -> None:
    model, seen = rolled_out(PLAIN), []
    samples = next(model.rollout_buffer.get())
    model.device = torch.device(device)
    model.policy.evaluate_actions = lambda *_: seen.append(Distribution._validate_args) or 1 / 0
    with pytest.raises(ZeroDivisionError):
        model._minibatch_losses(samples)
    assert (seen, Distribution._validate_args) == ([checked], True)
