"""The three ways in which critics may use an LSTM: one of their own, the actor's, none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlcore import DistributionalPPO
from tests.support.resume_run import outcome
from tests.support.training import differing, make_envs, make_model

NETWORKS: dict[str, dict[str, bool]] = {
    "own": {},
    "shared": {"enable_critic_lstm": False, "shared_lstm": True},
    "none": {"enable_critic_lstm": False},
}
CRITIC_MODULES = {"own": {"lstm_critic", "value_net"}, "shared": {"value_net"}, "none": {"critic", "value_net"}}

each_network = pytest.mark.parametrize("network", NETWORKS)


def model_with(network: str, **settings: Any) -> DistributionalPPO:
    policy_kwargs = {"lstm_hidden_size": 8, "net_arch": [8], **NETWORKS[network]}
    return make_model(make_envs(normalize=True), policy_kwargs=policy_kwargs, **settings)


def reached_by_the_value_loss(model: DistributionalPPO) -> set[str]:
    """The modules that the gradient of the value loss alone arrives at."""
    reached: set[str] = set()

    def note() -> None:
        for samples in model.rollout_buffer.get(24):
            model.policy.zero_grad()
            observations: Any = samples.observations
            quantiles, _, _ = model.policy.evaluate_actions(
                observations, samples.actions.flatten(), samples.lstm_states, samples.episode_starts
            )
            quantiles.square().mean().backward()  # type: ignore[no-untyped-call]
            reached.update(
                name.split(".")[0]
                for name, parameter in model.policy.named_parameters()
                if parameter.grad is not None and bool(parameter.grad.any())
            )

    model.train = note  # type: ignore[method-assign]
    model.learn(48)
    return reached


@each_network
def test_the_value_loss_reaches_the_critics_alone_and_never_the_actor_s_lstm(network: str) -> None:
    assert reached_by_the_value_loss(model_with(network)) == CRITIC_MODULES[network]


@each_network
def test_a_saved_run_with_it_goes_on_exactly(network: str, tmp_path: Path) -> None:
    model = model_with(network, n_epochs=1)
    model.learn(48)
    model.save(tmp_path / "model.zip")
    model.learn(48, reset_num_timesteps=False)
    loaded = DistributionalPPO.load(tmp_path / "model.zip", env=make_envs(normalize=True, seed=9), device="cpu")
    assert (loaded.policy.lstm_critic is None) is (network != "own")
    loaded.learn(48, reset_num_timesteps=False)
    assert differing(outcome(model), outcome(loaded)) == []


@pytest.mark.parametrize(("network", "depends"), [("own", True), ("shared", True), ("none", False)])
def test_values_depend_on_what_came_before_where_an_lstm_reads_it(network: str, depends: bool) -> None:
    policy = model_with(network).policy
    observations, starts = torch.ones(1, 4), torch.zeros(1)
    zeros, ones = torch.zeros(1, 1, 8), torch.ones(1, 1, 8)
    with torch.no_grad():
        values = [policy.predict_values(observations, (state, state), starts) for state in (zeros, ones)]
    assert torch.equal(*values) is not depends
