"""The norm of a gradient is limited as torch does it, and one that is no number is refused by its name."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv
from torch import nn

from rlcore import NonFiniteGradientError, NonFiniteObservationError, ResumableEnv
from rlcore.ppo.losses import clip_norm
from tests.support.meta_device import META, Crossings
from tests.support.training import differing, make_model, normalized

PLAIN: dict[str, Any] = {"variance_gradient_scaling": False, "optimizer_class": "adam"}


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers = nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 3))
    layers(torch.randn(4, 7)).square().sum().backward()
    layers[0].bias.grad = None
    return layers


@pytest.mark.parametrize("max_norm", [0.5, 1e3])
def test_the_gradients_are_those_of_torch_bit_for_bit(max_norm: float) -> None:
    ours, theirs = network(), network()
    clip_norm(ours.named_parameters(), max_norm)
    torch.nn.utils.clip_grad_norm_(theirs.parameters(), max_norm)
    found, expected = ([p.grad for p in each.parameters() if p.grad is not None] for each in (ours, theirs))
    assert len(found) == 3
    assert differing(found, expected) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_no_number_is_named_and_none_is_changed(value: float) -> None:
    layers = network()
    layers[1].weight.grad[0, 2] = value
    before = layers[0].weight.grad.clone()
    with pytest.raises(NonFiniteGradientError, match=r"1\.weight") as caught:
        clip_norm(layers.named_parameters(), 0.5)
    assert caught.value.parameter == "1.weight"
    assert torch.equal(layers[0].weight.grad, before)


def test_a_norm_beyond_all_numbers_is_refused() -> None:
    layers = network()
    layers[1].weight.grad.fill_(3e38)
    with pytest.raises(NonFiniteGradientError, match="whole network has the norm inf"):
        clip_norm(layers.named_parameters(), 0.5)


@pytest.mark.parametrize(("known", "reads"), [(5e18, 0), (1e19, 1)])
def test_a_norm_that_is_known_to_be_small_is_not_waited_for(known: float, reads: int) -> None:
    layers = network().to(META)
    for parameter in layers.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with Crossings() as crossings:
        clip_norm(layers.named_parameters(), 0.5, known)
    assert crossings.reads == reads


@pytest.mark.parametrize("settings", [PLAIN, {}], ids=["without scaling", "with scaling"])
def test_a_step_from_finite_gradients_of_infinite_norm_is_refused(settings: dict[str, Any]) -> None:
    model = make_model(**settings)
    before = [each.detach().clone() for each in model.policy.parameters()]
    loss = torch.stack([each.sum() for each in model.policy.parameters()]).sum() * 1e30
    with pytest.raises(NonFiniteGradientError, match="norm inf"):
        model._optimize(loss)
    assert differing(list(model.policy.parameters()), before) == []


class Breakable(gym.Wrapper[Any, Any, Any, Any]):
    """Returns ``value`` in one place of its observations, unless that is None."""

    value: float | None = None

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**options)
        return self._broken(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, *others = self.env.step(action)
        return self._broken(observation), *others

    def _broken(self, observation: Any) -> Any:
        if self.value is not None:
            observation = observation.copy()
            observation[2] = self.value
        return observation

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        assert state == {}


def breakable(*, normalize: bool) -> tuple[VecEnv, list[Breakable]]:
    made: list[Breakable] = []

    def wrapped(env: gym.Env[Any, Any]) -> ResumableEnv:
        made.append(Breakable(env))
        return ResumableEnv(made[-1])

    envs = make_vec_env("CartPole-v1", n_envs=3, seed=0, wrapper_class=wrapped)
    return (normalized(envs) if normalize else envs), made


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # VecNormalize subtracts infinity from itself
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_the_environment_is_named_and_what_was_learnt_stays(value: float, normalize: bool) -> None:
    envs, made = breakable(normalize=normalize)
    model = make_model(envs)
    model.learn(48)
    before = model.get_parameters()
    made[1].value = value
    with pytest.raises(NonFiniteObservationError, match=r"observation of environment 1 holds .*step\(\)") as caught:
        model.learn(96, reset_num_timesteps=False)
    assert caught.value.environments == (1,)
    assert differing(before, model.get_parameters()) == []
    steps = model.num_timesteps
    with pytest.raises(NonFiniteObservationError, match="environment 1 holds"):
        model.learn(96, reset_num_timesteps=False)
    assert model.num_timesteps == steps, "it begins with a reset"
    assert differing(before, model.get_parameters()) == []
    made[1].value = None
    model.learn(48, reset_num_timesteps=False)
    assert differing(before, model.get_parameters()) != []
