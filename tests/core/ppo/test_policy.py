"""The network: separate critics over one LSTM, pessimistic values, values of the state before the step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from torch import nn

from rlcore import CheckpointError, DistributionalPPO
from rlcore.ppo.policy import DistributionalRecurrentCnnPolicy, DistributionalRecurrentPolicy
from tests.support.resume_run import outcome
from tests.support.training import differing, make_envs, make_model


def states(n_envs: int) -> RNNStates:
    generator = torch.Generator().manual_seed(2)
    hidden = [torch.randn(1, n_envs, 8, generator=generator) for _ in range(4)]
    return RNNStates((hidden[0], hidden[1]), (hidden[2], hidden[3]))


WIDTHS: list[tuple[Any, list[tuple[int, ...]], list[tuple[int, ...]]]] = [
    ({"pi": [7], "vf": [6, 5]}, [(7, 8), (7,)], [(6, 8), (6,), (5, 6), (5,), (8, 5), (8,)]),
    ([7], [(7, 8), (7,)], [(7, 8), (7,), (8, 7), (8,)]),
    ({"pi": [7]}, [(7, 8), (7,)], [(8, 8), (8,)]),
    ({"vf": [7]}, [], [(7, 8), (7,), (8, 7), (8,)]),
]


@pytest.mark.parametrize(("net_arch", "actor", "critic"), WIDTHS)
def test_each_critic_has_layers_of_its_own_of_the_widths_asked_for(
    net_arch: Any, actor: list[tuple[int, ...]], critic: list[tuple[int, ...]]
) -> None:
    policy = make_model(policy_kwargs={"lstm_hidden_size": 8, "net_arch": net_arch}).policy
    heads = [list(head.parameters()) for head in policy.value_net.heads]  # type: ignore[union-attr]
    assert [tuple(p.shape) for p in policy.mlp_extractor.policy_net.parameters()] == actor
    assert [[tuple(p.shape) for p in head] for head in heads] == [critic] * 2
    assert not {id(p) for p in heads[0]} & {id(p) for p in heads[1]}
    assert not torch.equal(heads[0][0], heads[1][0])


@pytest.mark.parametrize(
    ("policy_class", "space", "widths"),
    [
        (DistributionalRecurrentPolicy, spaces.Box(-1, 1, (4,)), [64, 64]),
        (DistributionalRecurrentCnnPolicy, spaces.Box(0, 255, (3, 36, 36), np.uint8), []),
    ],
)
def test_without_settings_a_policy_has_the_layers_of_sb3_and_two_critics_of_32_quantiles(
    policy_class: type[DistributionalRecurrentPolicy], space: spaces.Box, widths: list[int]
) -> None:
    policy = policy_class(space, spaces.Discrete(2), lambda _: 1e-3)
    assert policy_class(space, spaces.Discrete(2), lambda _: 1e-3, features_extractor_kwargs={}).critic_arch == widths
    parts = policy.mlp_extractor.policy_net, *policy.value_net.heads
    found = [[each.out_features for each in part.modules() if isinstance(each, nn.Linear)] for part in parts]
    assert found == [widths, [*widths, 32], [*widths, 32]]
    assert [group["lr"] for group in policy.optimizer.param_groups] == [1e-3, 1e-3]


def test_a_rebuilt_optimizer_keeps_the_seed_of_its_noise() -> None:
    policy = make_model().policy
    before, seed = policy.optimizer, policy.optimizer.param_groups[0]["seed"]
    policy.rebuild_optimizer()
    assert policy.optimizer is not before
    assert [group["seed"] for group in policy.optimizer.param_groups] == [seed] * 2


def test_actions_are_drawn_unless_the_likeliest_is_asked_for() -> None:
    policy, rows = make_model().policy, 64
    given = torch.zeros(rows, 4), RNNStates(*([(torch.zeros(1, rows, 8),) * 2] * 2)), torch.ones(rows)
    assert len(policy(*given)[0].unique()) == 2
    assert len(policy(*given, deterministic=True)[0].unique()) == 1


@pytest.mark.parametrize("ortho_init", [True, False])
def test_critics_start_orthogonal_with_sb3_s_gains_unless_told_otherwise(ortho_init: bool) -> None:
    kwargs = {"lstm_hidden_size": 8, "net_arch": [8, 8], "ortho_init": ortho_init}
    for head in make_model(policy_kwargs=kwargs).policy.value_net.heads:  # type: ignore[union-attr]
        for layer, squared_gain in ((head[0], 2.0), (head[2], 2.0), (head[4], 1.0)):  # type: ignore[index]
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
