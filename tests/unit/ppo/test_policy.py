"""The network: separate critics over one LSTM, pessimistic values, values of the state before the step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from torch import nn

from rlcore import CheckpointError
from rlcore.ppo.policy import DistributionalRecurrentPolicy
from tests.support.training import make_envs, make_model


def states(n_envs: int) -> RNNStates:
    generator = torch.Generator().manual_seed(2)
    hidden = [torch.randn(1, n_envs, 8, generator=generator) for _ in range(4)]
    return RNNStates((hidden[0], hidden[1]), (hidden[2], hidden[3]))


def test_each_critic_has_layers_of_its_own_over_one_shared_lstm() -> None:
    model = make_model(policy_kwargs={"lstm_hidden_size": 8, "net_arch": {"pi": [7], "vf": [6, 5]}})
    heads = model.policy.value_net.heads
    shapes = [[tuple(p.shape) for p in head.parameters()] for head in heads]  # type: ignore[union-attr]
    assert shapes == [[(6, 8), (6,), (5, 6), (5,), (8, 5), (8,)]] * 2
    first, second = ({id(p) for p in head.parameters()} for head in heads)  # type: ignore[union-attr]
    assert not first & second
    assert isinstance(model.policy.lstm_critic, nn.LSTM)


def test_a_list_of_widths_is_for_the_actor_and_for_every_critic() -> None:
    policy = make_model(policy_kwargs={"lstm_hidden_size": 8, "net_arch": [7]}).policy
    assert [tuple(p.shape) for p in policy.value_net.heads[0].parameters()] == [(7, 8), (7,), (8, 7), (8,)]  # type: ignore[union-attr,index]
    assert [tuple(p.shape) for p in policy.mlp_extractor.policy_net.parameters()] == [(7, 8), (7,)]


@pytest.mark.parametrize(("given", "left_out"), [("pi", "vf"), ("vf", "pi")])
def test_a_dict_of_widths_gives_what_it_leaves_out_no_hidden_layer(given: str, left_out: str) -> None:
    policy = make_model(policy_kwargs={"lstm_hidden_size": 8, "net_arch": {given: [7]}}).policy
    hidden = {"pi": policy.mlp_extractor.policy_net, "vf": policy.value_net.heads[0][:-1]}  # type: ignore[index]
    assert [len(hidden[name]) for name in (given, left_out)] == [2, 0]


@pytest.mark.parametrize("ortho_init", [True, False])
def test_critics_start_orthogonal_with_sb3_s_gains_unless_told_otherwise(ortho_init: bool) -> None:
    kwargs = {"lstm_hidden_size": 8, "net_arch": [8], "ortho_init": ortho_init}
    for head in make_model(policy_kwargs=kwargs).policy.value_net.heads:  # type: ignore[union-attr]
        for layer, squared_gain in ((head[0], 2.0), (head[2], 1.0)):  # type: ignore[index]
            gram = layer.weight @ layer.weight.T
            assert torch.allclose(gram, squared_gain * torch.eye(8), atol=1e-5) is ortho_init
            assert bool((layer.bias == 0).all()) is ortho_init


@pytest.mark.parametrize("ortho_init", [True, False])
@pytest.mark.parametrize("n_lstm_layers", [1, 2])
def test_what_a_critic_s_gate_takes_from_its_inputs_varies_as_they_do_unless_told_otherwise(
    ortho_init: bool, n_lstm_layers: int
) -> None:
    """CartPole has 4 inputs: drawn by the hidden size of 64 alone, a gate would see a sixth of them."""
    options = {"lstm_hidden_size": 64, "ortho_init": ortho_init, "n_lstm_layers": n_lstm_layers}
    policy = make_model(policy_kwargs=options).policy
    spreads = {
        name: _spread_of_outputs(weight)
        for name, weight in policy.named_parameters()
        if name.startswith(("lstm_critic.weight_ih", "lstm_actor.weight_ih"))
    }
    assert len(spreads) == 2 * n_lstm_layers
    for name, spread in spreads.items():
        assert (0.8 < spread < 1.2) is (ortho_init and name.startswith("lstm_critic"))


def _spread_of_outputs(weight: torch.Tensor) -> float:
    inputs = torch.randn(1000, weight.shape[1], generator=torch.Generator().manual_seed(0))
    return float((inputs @ weight.detach().T).std())


def test_heads_start_different_so_that_twins_are_two_opinions() -> None:
    first, second = make_model().policy.value_net.heads  # type: ignore[union-attr,misc]
    assert not torch.equal(next(first.parameters()), next(second.parameters()))


@pytest.mark.parametrize("n_critics", [1, 2])
def test_values_are_the_mean_of_each_critic_and_predict_values_the_smallest(n_critics: int) -> None:
    model = make_model(n_critics=n_critics)
    obs, starts = torch.randn(3, 4), torch.zeros(3)
    given = states(3)
    with torch.no_grad():
        _, values, _, _ = model.policy(obs, given, starts)
        quantiles = model.policy.values.quantiles(model.policy.predict_outputs(obs, given.vf, starts))
        smallest = model.policy.predict_values(obs, given.vf, starts)
    assert quantiles.shape == (3, n_critics, 8)
    assert torch.allclose(values, quantiles.mean(dim=-1))
    assert torch.allclose(smallest, values.min(dim=-1).values)


def test_rollout_values_come_from_the_lstm_state_before_the_step() -> None:
    model = make_model()
    obs, starts = torch.randn(3, 4), torch.zeros(3)
    before = states(3)
    with torch.no_grad():
        _, values, _, after = model.policy(obs, before, starts)
        from_before = model.policy.values.mean(model.policy.predict_outputs(obs, before.vf, starts))
        from_after = model.policy.values.mean(model.policy.predict_outputs(obs, after.vf, starts))
    assert torch.allclose(values, from_before)
    assert not torch.allclose(values, from_after)


def test_the_buffer_holds_every_critic_and_computes_advantages_from_the_smallest() -> None:
    model = make_model(n_epochs=1)
    model.learn(48)
    buffer = model.rollout_buffer
    assert buffer.critic_values.shape == (48, 2)
    assert np.array_equal(buffer.values.flatten(), buffer.critic_values.min(axis=1))
    assert not np.array_equal(buffer.critic_values[:, 0], buffer.critic_values[:, 1])


def test_advantages_are_generalised_advantage_estimates_of_the_smallest_value() -> None:
    model = make_model(n_epochs=1, gamma=0.9, gae_lambda=0.7)
    recorded = {}

    def keep_before_training() -> None:
        buffer = model.rollout_buffer
        names = ("rewards", "values", "episode_starts", "advantages")
        recorded.update({name: getattr(buffer, name).astype(np.float64) for name in names})
        recorded["dones"] = np.asarray(model._last_episode_starts, dtype=np.float64)
        with torch.no_grad():
            last = model.policy.predict_values(
                torch.as_tensor(model._last_obs), model._last_lstm_states.vf, torch.as_tensor(recorded["dones"]).float()
            )
        recorded["last_values"] = last.numpy().astype(np.float64)

    model.train = keep_before_training  # type: ignore[method-assign]
    model.learn(48)
    advantage = np.zeros(3)
    for step in reversed(range(16)):
        at_end = step == 15
        alive = 1.0 - (recorded["dones"] if at_end else recorded["episode_starts"][step + 1])
        following = recorded["last_values"] if at_end else recorded["values"][step + 1]
        delta = recorded["rewards"][step] + 0.9 * following * alive - recorded["values"][step]
        advantage = delta + 0.9 * 0.7 * alive * advantage
        assert recorded["advantages"][step] == pytest.approx(advantage, rel=1e-4, abs=1e-5)


def test_samples_carry_each_critic_s_own_old_value() -> None:
    model = make_model(n_epochs=1)
    model.learn(48)
    samples = next(iter(model.rollout_buffer.get(48)))
    mask = samples.mask > 0.5
    assert samples.old_values.shape == (len(mask), 2)
    expected = {tuple(row) for row in model.rollout_buffer.critic_values.tolist()}
    assert {tuple(row) for row in samples.old_values[mask].tolist()} == expected


@pytest.mark.parametrize(
    "policy_kwargs",
    [
        {"enable_critic_lstm": False},
        {"enable_critic_lstm": False, "shared_lstm": True},
        {"share_features_extractor": False},
        {"n_lstm_layers": 2, "lstm_kwargs": {"bias": False}},
        {"net_arch": []},
        {"ortho_init": False, "activation_fn": nn.ReLU},
    ],
    ids=lambda kwargs: "-".join(kwargs),
)
def test_the_networks_of_sb3_contrib_train(policy_kwargs: dict[str, object]) -> None:
    model = make_model(policy_kwargs={"lstm_hidden_size": 8, **policy_kwargs})
    before = model.get_parameters()["policy"]
    model.learn(48)
    after = model.get_parameters()["policy"]
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert any(name.startswith("value_net") for name in moved)
    assert any(name.startswith("action_net") for name in moved)


def test_predict_takes_and_gives_state_as_sb3_contrib_does() -> None:
    model = make_model(make_envs("Pendulum-v1", 2))
    obs = model.env.reset()  # type: ignore[union-attr]
    action, state = model.predict(obs, episode_start=np.ones(2, dtype=bool), deterministic=True)
    assert action.shape == (2, 1)
    again, _ = model.predict(obs, state=state, episode_start=np.ones(2, dtype=bool), deterministic=True)
    onward, _ = model.predict(obs, state=state, episode_start=np.zeros(2, dtype=bool), deterministic=True)
    assert np.array_equal(action, again)
    assert not np.array_equal(action, onward)


def test_a_policy_has_no_file_of_its_own_and_the_error_says_what_to_call(tmp_path: Path) -> None:
    remedy = r"model\.save\(path\).*DistributionalPPO\.load\(path\).*rlcore\.load_policy\(path\)"
    with pytest.raises(CheckpointError, match=remedy):
        make_model().policy.save(tmp_path / "policy.pth")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CheckpointError, match=remedy):
        DistributionalRecurrentPolicy.load(tmp_path / "policy.pth")


@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"num_layers": 2, "bias": False}])
def test_one_step_of_an_lstm_is_its_call_on_a_sequence_of_one(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    lstm = nn.LSTM(4, 8, **options)
    features, starts = torch.randn(3, 4), torch.tensor([0.0, 1.0, 0.0])
    before = (torch.randn(lstm.num_layers, 3, 8), torch.randn(lstm.num_layers, 3, 8))
    with torch.no_grad():
        outputs, states = DistributionalRecurrentPolicy._process_sequence(features, before, starts, lstm)
    kept = (1.0 - starts).view(1, 3, 1)
    expected, after = lstm(features.unsqueeze(0), (kept * before[0], kept * before[1]))
    torch.testing.assert_close(outputs, expected[0])
    torch.testing.assert_close(states, after)
