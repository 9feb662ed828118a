"""What cannot be saved exactly is refused by name before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sb3_contrib import ARS
from stable_baselines3 import DDPG, PPO, SAC
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.noise import (
    ActionNoise,
    NormalActionNoise,
    OrnsteinUhlenbeckActionNoise,
    VectorizedActionNoise,
)
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnvWrapper, VecNormalize
from stable_baselines3.her import HerReplayBuffer

from rlcore.errors import CheckpointError
from rlcore.resume import load_exact, save_exact
from tests.core.resume.small_models import changed, net, noisy, ppo, ruled, sac, trained
from tests.support.environments import make_vec
from tests.support.exact_runs import Curious, in_parts, pickled
from tests.support.training import make_model


class Counting(PPO):
    """Keeps a number that no file has."""

    count = 0

    def train(self) -> None:
        self.count += 1
        super().train()


class Takes(PPO):
    """Its constructor takes what it does not keep."""

    def __init__(self, *arguments: Any, width: int = 3, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.double = 2 * width


class Predicts(PPO):
    """Has a network that no file has."""

    def _setup_model(self) -> None:
        super()._setup_model()
        self.predictor = torch.nn.Linear(2, 1)


class OwnRollouts(RolloutBuffer):
    """As may a rollout buffer."""


class OwnBuffer(ReplayBuffer):
    """And a replay buffer."""


class Given(FlattenExtractor):
    """Takes what a file may hold in another form."""

    def __init__(self, space: Any, given: Any) -> None:
        super().__init__(space)
        self.given = given


class Silence(ActionNoise):
    """And noise may."""

    def __call__(self) -> Any:
        return np.zeros(1)


class Annealed(VectorizedActionNoise):
    """Noise of several environments that may keep more."""


class OwnVecEnv(DummyVecEnv):
    """As may these."""


class Tripled(VecEnvWrapper):
    """A wrapper that no part of a file is of."""

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        return self.venv.step_wait()


class Compiled(torch.nn.Module):
    """What torch.compile returns, as far as it matters here."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.inner = policy


def with_optimizer() -> Any:
    model = ppo()
    model.policy.optimizer = torch.optim.SGD(model.policy.parameters(), lr=0.1)
    return model


def with_policy() -> Any:
    model: Any = ppo()
    model.policy = Compiled(model.policy)
    return model


def measured(build: Callable[..., Any] = ppo, **changes: Any) -> Callable[[], Any]:
    """A model whose VecNormalize has other statistics of observations."""

    def make() -> Any:
        env = VecNormalize(make_vec())
        for name, value in changes.items():
            setattr(env.obs_rms, name, value)
        return build(env)

    return make


def with_keys() -> Any:
    env = make_vec_env("Pendulum-v1", 2, wrapper_class=in_parts)
    return sac(VecNormalize(env, norm_obs_keys=["direction", "speed"]))


def with_rows(other: Callable[[], Any]) -> Callable[[], Any]:
    return ruled(lambda model: setattr(model, "replay_buffer", other().replay_buffer), sac)


UNSAVABLE: dict[str, tuple[Callable[[], Any], str]] = {
    "a number of a subclass": (trained(Counting), "count is 1, .* missing; .* or name it in Counting.extra_state"),
    "a network of a subclass": (
        trained(Predicts),
        "predictor.weight is a Parameter .* in Predicts.extra_state",
    ),
    "an argument of a subclass": (trained(Takes), "the constructor of Takes takes width, and there is no attribute"),
    "another algorithm": (lambda: ARS("MlpPolicy", make_vec(), **net()), "ARS does not derive from an algorithm"),
    "an activation": (
        changed(lambda policy: setattr(policy.mlp_extractor.policy_net, "1", torch.nn.ReLU())),
        "policy.mlp_extractor.policy_net.1 is a ReLU, .* a Tanh",
    ),
    "a layer more": (
        changed(lambda policy: policy.mlp_extractor.policy_net.append(torch.nn.Tanh())),
        "policy.mlp_extractor.policy_net is a Sequential of 0, 1, 2, .* a Sequential of 0, 1",
    ),
    "a hook of a module": (
        changed(lambda policy: policy.register_forward_hook(repr)),
        "policy._forward_hooks is repr, .* none",
    ),
    "a hook of a parameter": (
        changed(lambda policy: policy.action_net.weight.register_hook(torch.neg)),
        "policy.action_net.weight._backward_hooks is .*neg, .* none",
    ),
    "a replaced method": (
        changed(lambda policy: setattr(policy, "forward", policy.forward)),
        "policy.forward is a method, .* missing",
    ),
    "a number of a module": (
        changed(lambda policy: setattr(policy.features_extractor, "calls", 3)),
        "policy.features_extractor.calls is 3, .* 0; let the constructor",
    ),
    "a generator of a module": (
        changed(lambda policy: policy.features_extractor.generator.random()),
        "policy.features_extractor.generator.state",
    ),
    "a tensor that is no buffer": (
        changed(lambda policy: policy.features_extractor.mean.add_(1)),
        "policy.features_extractor.mean is a Tensor",
    ),
    "a buffer that is not saved": (
        changed(lambda policy: policy.features_extractor.last.add_(1)),
        "policy.features_extractor.last is a Tensor",
    ),
    "an option of an optimizer": (
        changed(lambda policy: policy.optimizer.param_groups[0].update(eps=1e-3)),
        r"policy.optimizer.param_groups\[0\]\['eps'\] is 0.001, .* 1e-05",
    ),
    "a group of an optimizer": (
        changed(lambda policy: policy.optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})),
        r"policy.optimizer is groups of \[.*, 1\] parameters",
    ),
    "a hook of an optimizer": (
        changed(lambda policy: policy.optimizer.register_step_pre_hook(len)),
        "policy.optimizer._optimizer_step_pre_hooks is len, .* none",
    ),
    "weights that two layers share": (
        changed(lambda policy: setattr(policy.mlp_extractor, "value_net", policy.mlp_extractor.policy_net)),
        "policy.mlp_extractor.value_net is shared with another part",
    ),
    "a new layer that no optimizer trains": (
        changed(lambda policy: setattr(policy, "action_net", torch.nn.Linear(4, 2))),
        r"policy.optimizer.param_groups\[0\]\['params'\]\[4\] is in no module, a Parameter of shape \(2, 4\)",
    ),
    "a new entropy coefficient": (
        ruled(lambda model: setattr(model, "log_ent_coef", torch.zeros(1, requires_grad=True)), sac),
        "ent_coef_optimizer.* is in no module",
    ),
    "a target network that trains": (
        ruled(lambda model: model.policy.critic_target.train(), sac),
        "policy.critic_target.training is True, .* False",
    ),
    "options of a reset": (
        ruled(lambda model: model.env.set_options({"low": 0.0})),
        r"options that set_options\(\) gave wait for the next reset",
    ),
    "a clip range that is a function": (
        ruled(lambda model: setattr(model, "clip_range", lambda _: 0.1)),
        r"clip_range is a function, .* a FloatSchedule; set it as FloatSchedule\(...\)",
    ),
    "another order of parameters": (
        changed(lambda policy: policy.optimizer.param_groups[0]["params"].reverse()),
        "is in another order, .* as the constructor gave it",
    ),
    "a function of a module": (
        changed(lambda policy: setattr(policy.features_extractor, "function", torch.sin)),
        "policy.features_extractor.function is a builtin.*sin, .* another",
    ),
    "a counter of a module": (
        changed(lambda policy: next(policy.features_extractor.counter)),
        r"policy.features_extractor.counter is count\(1\), .* count\(0\)",
    ),
    "gamma of a buffer": (ruled(lambda model: setattr(model, "gamma", 0.5)), "rollout_buffer.gamma is 0.99, .* 0.5"),
    "a rate without a schedule": (ruled(lambda model: setattr(model, "learning_rate", 0.5)), "lr_schedule"),
    "a schedule of its own": (
        ruled(lambda model: setattr(model, "lr_schedule", lambda _: 1e-5), lambda: make_model(make_vec())),
        "lr_schedule is a function, .* a FloatSchedule",
    ),
    "one noise of several": (
        ruled(lambda model: setattr(model.action_noise.noises[0], "_sigma", np.ones(1)), noisy),
        r"action_noise._noises\[0\]._sigma is a ndarray .* that has changed",
    ),
    "a method of a model": (ruled(lambda model: setattr(model, "train", model.train)), "train is a method, .* missing"),
    "extra_state that is not there": (
        ruled(lambda model: setattr(model, "extra_state", ("mean",))),
        "extra_state names mean, and PPO has no such attribute",
    ),
    "info dicts of HER": (
        lambda: sac(
            make_vec_env(partial(BitFlippingEnv, 3, True), wrapper_class=pickled),
            replay_buffer_class=HerReplayBuffer,
            replay_buffer_kwargs={"copy_info_dict": True},
        ),
        "keeps info dicts",
    ),
    "DistributionalPPO": (lambda: make_model(make_vec_env("CartPole-v1")), "ResumableEnv is not its outermost wrapper"),
    "an optimizer": (with_optimizer, "policy.optimizer is a SGD, and .* a Adam"),
    "a compiled policy": (with_policy, "the policy is a Compiled"),
    "a replay buffer": (lambda: sac(replay_buffer_class=OwnBuffer), "the buffer OwnBuffer may keep more"),
    "a rollout buffer": (lambda: ppo(rollout_buffer_class=OwnRollouts), "the buffer OwnRollouts may keep more"),
    "action noise": (lambda: sac(action_noise=Silence()), "the action noise Silence cannot give its state"),
    "an environment": (lambda: ppo(make_vec_env("CartPole-v1")), "ResumableEnv is not its outermost wrapper; give"),
    "a wrapper": (lambda: ppo(Tripled(make_vec())), "Tripled cannot give its state"),
    "a subclass of DummyVecEnv": (lambda: ppo(make_vec(vec_env_cls=OwnVecEnv)), "OwnVecEnv cannot give the state"),
    "noise of the name of another": (
        lambda: sac(action_noise=type("NormalActionNoise", (Silence,), {})()),
        "the action noise NormalActionNoise cannot give its state",
    ),
    "a subclass of VectorizedActionNoise": (
        lambda: sac(action_noise=Annealed(NormalActionNoise(np.zeros(1), np.ones(1)), 2)),
        "the action noise Annealed cannot give its state",
    ),
    "weights that are NaN": (
        changed(lambda policy: policy.action_net.weight.data.fill_(np.nan)),
        "policy.*action_net.weight.* holds NaN, infinity or a number beyond torch.float32$",
    ),
    "weights of a DistributionalPPO": (
        ruled(lambda model: model.policy.action_net.weight.data.fill_(np.nan), lambda: make_model(make_vec())),
        "policy.*action_net.weight.* holds NaN",
    ),
    "infinite observations": (
        ruled(lambda model: model.learn(16)._last_obs.fill(np.inf)),
        "observations.* holds other values .* infinity$",
    ),
    "infinite rewards": (ruled(lambda model: model.replay_buffer.rewards.fill(np.inf), noisy), "rewards.*infinity"),
    "a weight of the loss": (lambda: ppo(vf_coef=-1.0), "vf_coef must be a number of at least 0.0, and is -1.0$"),
    "a clip below 0": (lambda: ppo(VecNormalize(make_vec(), clip_obs=-1.0)), "clip_obs.* at least 0.0, and is -1.0$"),
    "an epsilon that is infinite": (
        lambda: ppo(VecNormalize(make_vec(), epsilon=np.inf)),
        "epsilon.* must be a finite number of at least 0.0, and is inf$",
    ),
    "statistics of no observation": (measured(count=0), "count.* must be a finite number of .* and is 0.0$"),
    "statistics that are infinite": (measured(mean=np.full(4, np.inf)), "mean.* holds NaN, infinity"),
    "statistics of a DistributionalPPO": (measured(make_model, count=0), "count.* and is 0.0$"),
    "other keys than it was built with": (
        ruled(lambda model: setattr(model.env, "norm_obs_keys", ["speed"]), with_keys),
        r"norm_obs_keys of VecNormalize is \['speed'\], and it was built with \['direction', 'speed'\]",
    ),
    "statistics of float32": (measured(var=np.ones(4, np.float32)), "are float64 after a load; make them float64 now$"),
    "rows of another run": (
        with_rows(lambda: sac(buffer_size=20)),
        "buffer_size=40 is not .* buffer; set model.buffer_size=20$",
    ),
    "rows of another size": (
        ruled(lambda model: setattr(model, "buffer_size", 82), sac),
        "buffer_size=82 is not .* buffer; set model.buffer_size=40$",
    ),
    "no environment": (lambda: PPO.load(saved_by_sb3()), "the model has no environment"),
    "no environment for a run": (lambda: PPO.load(saved_by_sb3(16)), "the model has no environment"),
    "a parameter among settings": (
        lambda: ppo(
            policy_kwargs={
                "features_extractor_class": Given,
                "features_extractor_kwargs": {"given": torch.nn.Parameter(torch.zeros(2))},
            }
        ),
        "policy.features_extractor is a [A-Za-z]+ of flatten, given, and .* would be a [A-Za-z]+ of flatten;",
    ),
}


def saved_by_sb3(steps: int = 0) -> Any:
    import io

    file = io.BytesIO()
    ppo().learn(steps).save(file)
    file.seek(0)
    return file


@pytest.mark.parametrize(("make", "message"), UNSAVABLE.values(), ids=UNSAVABLE)
def test_what_cannot_be_saved_is_named_and_nothing_is_written(
    make: Callable[[], Any], message: str, tmp_path: Path
) -> None:
    model, path = make(), tmp_path / "new" / "file.zip"

    with pytest.raises(CheckpointError, match=message) as refusal:
        save_exact(model, path)

    assert "was not written, as training could not continue exactly" in str(refusal.value)
    assert not path.parent.exists()


class Normed(FlattenExtractor):
    """Has what is derived: running statistics that the model lists again, and parametrized weights."""

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.norm = torch.nn.BatchNorm1d(space.shape[0])
        self.layer = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(space.shape[0], space.shape[0]))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.layer(self.norm(observations))  # type: ignore[no-any-return]


def noisy_alone(**settings: Any) -> SAC:
    """One environment, whose noise is not made for several."""
    noise = OrnsteinUhlenbeckActionNoise(np.zeros(1), np.full(1, 0.1))
    return sac(make_vec("Pendulum-v1", 1), action_noise=noise, **settings)


@pytest.mark.parametrize("make", [ppo, sac, noisy_alone])
def test_what_is_derived_is_no_obstacle(make: Any, tmp_path: Path) -> None:
    model = make(policy_kwargs={"net_arch": [4], "features_extractor_class": Normed}).learn(24)
    save_exact(model, tmp_path / "normed.zip")


def test_an_attribute_that_no_code_of_the_model_reads_and_the_place_of_logs_are_no_obstacle(tmp_path: Path) -> None:
    model = ppo(tensorboard_log=str(tmp_path / "log"))
    model.note = "mine"  # type: ignore[attr-defined]
    save_exact(model, tmp_path / "noted.zip")
    loaded = load_exact(tmp_path / "noted.zip", make_vec())
    assert (getattr(loaded, "tensorboard_log", ""), hasattr(loaded, "note")) == (None, False)


@pytest.mark.parametrize("make", [ppo, lambda: make_model(make_vec())], ids=["PPO", "DistributionalPPO"])
def test_what_was_frozen_after_the_construction_is_frozen_again(make: Any, tmp_path: Path) -> None:
    model = make()
    next(model.policy.parameters()).requires_grad_(False)
    save_exact(model, tmp_path / "frozen.zip")
    loaded = load_exact(tmp_path / "frozen.zip", make_vec())
    flags = [[each.requires_grad for each in own.policy.parameters()] for own in (model, loaded)]
    assert flags[0] == flags[1] != [True] * len(flags[0])


def test_a_subclass_is_loaded_by_its_own_class_alone(tmp_path: Path) -> None:
    save_exact(Curious("MlpPolicy", make_vec(), **net()), tmp_path / "own.zip")
    save_exact(DDPG("MlpPolicy", make_vec("Pendulum-v1"), **net()), tmp_path / "ddpg.zip")

    assert isinstance(load_exact(tmp_path / "ddpg.zip", make_vec("Pendulum-v1"), algorithm=DDPG), DDPG)
    for algorithm in (None, PPO, Counting):
        with pytest.raises(CheckpointError, match=r"is of 'PPO:Curious', and algorithm=.*; give its class"):
            load_exact(tmp_path / "own.zip", make_vec(), algorithm=algorithm)
