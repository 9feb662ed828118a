"""What cannot be saved exactly is refused by name before anything is written; what does not fit is refused at load."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import ARS
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import ActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.utils import FloatSchedule, LinearSchedule
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv, VecEnvWrapper, VecNormalize
from stable_baselines3.her import HerReplayBuffer

from rlcore import DistributionalPPO, ResumableEnv, save_checkpoint
from rlcore.checkpoint.codec import encode
from rlcore.checkpoint.container import load_container, save_container
from rlcore.errors import (
    CallOrderError,
    CheckpointError,
)
from rlcore.resume import SaveExactly, continue_learning, load_exact, newest_exact, save_exact
from rlcore.state.training import capture_generators
from tests.support.environments import bits_of_state, make_vec
from tests.support.exact_runs import Curious, StopAt, differences, finished, pickled
from tests.support.training import make_model


def net() -> dict[str, Any]:
    """Settings of a small network, of which Stable-Baselines3 changes ``policy_kwargs``."""
    return {"policy_kwargs": {"net_arch": [4]}, "device": "cpu", "seed": 3}


def ppo(env: VecEnv | None = None, **settings: Any) -> PPO:
    return PPO("MlpPolicy", env or make_vec(), **{**net(), "n_steps": 8, "batch_size": 4, "n_epochs": 1, **settings})


def sac(env: Any = None, **settings: Any) -> SAC:
    env = env or make_vec("Pendulum-v1")
    policy = "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"
    return SAC(policy, env, **{**net(), "buffer_size": 40, "learning_starts": 4, "batch_size": 4, **settings})


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


class Extractor(FlattenExtractor):
    """Keeps what is in no state dictionary."""

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.calls = 0
        self.generator = np.random.default_rng(0)
        self.mean = torch.zeros(2)
        self.function = torch.cos
        self.counter = itertools.count()
        self.register_buffer("last", torch.zeros(2), persistent=False)


def changed(change: Callable[[Any], object]) -> Callable[[], Any]:
    """A model to whose policy something was done after it was built."""

    def make() -> PPO:
        model = ppo(policy_kwargs={"net_arch": [4], "features_extractor_class": Extractor})
        change(model.policy)
        return model

    return make


def ruled(change: Callable[[Any], object], build: Callable[[], Any] = ppo) -> Callable[[], Any]:
    """A model to which something was done after it was built."""

    def make() -> Any:
        model = build()
        change(model)
        return model

    return make


def noisy() -> SAC:
    return sac(action_noise=OrnsteinUhlenbeckActionNoise(np.zeros(1), np.full(1, 0.1))).learn(16)


def trained(kind: type[PPO]) -> Callable[[], Any]:
    return lambda: kind("MlpPolicy", make_vec(), **net(), n_steps=8, batch_size=8, n_epochs=1).learn(8)


class OwnBuffer(ReplayBuffer):
    """As may a buffer."""


class Silence(ActionNoise):
    """And noise."""

    def __call__(self) -> Any:
        return np.zeros(1)


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
        "policy.mlp_extractor.policy_net is the modules, 0, 1, 2, .* the modules, 0, 1",
    ),
    "a hook of a module": (
        changed(lambda policy: policy.register_forward_hook(print)),
        "policy._forward_hooks is print, .* none",
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
        changed(lambda policy: policy.optimizer.register_step_pre_hook(print)),
        "policy.optimizer._optimizer_step_pre_hooks is print, .* none",
    ),
    "weights that two layers share": (
        changed(lambda policy: setattr(policy.mlp_extractor, "value_net", policy.mlp_extractor.policy_net)),
        "policy.mlp_extractor.value_net is shared with another part",
    ),
    "another order of parameters": (
        changed(lambda policy: policy.optimizer.param_groups[0]["params"].reverse()),
        "is in another order, .* as the constructor gave them",
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
        r"action_noise.noises\[0\]._sigma is a ndarray .* that has changed",
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
    "action noise": (lambda: sac(action_noise=Silence()), "the action noise Silence cannot give its state"),
    "an environment": (lambda: ppo(make_vec_env("CartPole-v1")), "ResumableEnv is not its outermost wrapper; give"),
    "a wrapper": (lambda: ppo(Tripled(make_vec())), "Tripled cannot give its state"),
    "no environment": (lambda: PPO.load(saved_by_sb3()), "the model has no environment"),
}


def saved_by_sb3() -> Any:
    import io

    file = io.BytesIO()
    ppo().save(file)
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


@pytest.mark.parametrize("make", [ppo, sac])
def test_what_is_derived_is_no_obstacle(make: Any, tmp_path: Path) -> None:
    model = make(policy_kwargs={"net_arch": [4], "features_extractor_class": Normed}).learn(24)
    save_exact(model, tmp_path / "normed.zip")


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


class SaveInTheMiddle(BaseCallback):
    def __init__(self, path: Path, moment: str) -> None:
        super().__init__()
        self.path, self.moment = path, moment

    def _on_step(self) -> bool:
        if self.moment == "step":
            save_exact(self.model, self.path)
        return True

    def _on_rollout_end(self) -> None:
        if self.moment == "end":
            save_exact(self.model, self.path)


@pytest.mark.parametrize("moment", ["step", "end"])
@pytest.mark.parametrize("make", [ppo, sac])
def test_a_rollout_is_not_saved_in_its_middle(make: Callable[[], Any], moment: str, tmp_path: Path) -> None:
    with pytest.raises(CallOrderError, match="a rollout cannot be continued in its middle"):
        make().learn(30, callback=SaveInTheMiddle(tmp_path / "file.zip", moment))

    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = ppo()
    model.learn(16)
    path = tmp_path_factory.mktemp("saved") / "ppo.zip"
    save_exact(model, path)
    return path


def workers() -> VecEnv:
    return make_vec(vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "fork"})


UNFIT: dict[str, tuple[Callable[[], Any], str]] = {
    "other spaces": (
        lambda: make_vec("Pendulum-v1"),
        "its observation_space is Box.*, and this environment's Box",
    ),
    "another number": (lambda: make_vec(n_envs=3), "the run had 2 environments, and this one has 3"),
    "another environment": (lambda: make_vec(env_kwargs={"sutton_barto_reward": True}), "sutton_barto_reward"),
    "workers": (workers, "vec_env.* must be the model's, 'SubprocVecEnv', and is 'DummyVecEnv'"),
    "no state": (lambda: make_vec_env("CartPole-v1", 2), "ResumableEnv is not its outermost wrapper"),
}


@pytest.mark.parametrize(("make", "message"), UNFIT.values(), ids=UNFIT)
def test_another_environment_is_refused_and_changes_no_generator(
    make: Callable[[], Any], message: str, saved: Path
) -> None:
    env = make()
    before, drawn = bits_of_state(capture_generators()), random.getstate()

    with pytest.raises(CheckpointError, match=message) as refusal:
        load_exact(saved, env)

    env.close()
    assert str(saved) in str(refusal.value)
    assert (bits_of_state(capture_generators()), random.getstate()) == (before, drawn)


def test_statistics_stay_if_the_environments_refuse_theirs(tmp_path: Path) -> None:
    model = ppo(VecNormalize(make_vec()))
    model.learn(16)
    save_exact(model, tmp_path / "file.zip")
    env = VecNormalize(make_vec(env_kwargs={"sutton_barto_reward": True}))

    with pytest.raises(CheckpointError, match="sutton_barto_reward"):
        load_exact(tmp_path / "file.zip", env)

    assert env.ret_rms.count < 1


def test_another_algorithm_is_refused(saved: Path) -> None:
    with pytest.raises(CheckpointError, match=r"is of 'PPO', and algorithm=.*A2C"):
        load_exact(saved, make_vec(), algorithm=A2C)
    assert type(load_exact(saved, make_vec(), algorithm=PPO)) is PPO


def test_a_damaged_truncated_missing_or_foreign_file_is_refused(saved: Path, tmp_path: Path) -> None:
    content = saved.read_bytes()
    damaged, truncated, foreign, unsealed = (tmp_path / f"{number}.zip" for number in range(4))
    damaged.write_bytes(content[:5000] + bytes([content[5000] ^ 1]) + content[5001:])
    truncated.write_bytes(content[:-1000])
    ppo().save(foreign)
    torch.save(load_container(saved), unsealed)

    for path, message in (
        (damaged, "digest does not fit its content"),
        (truncated, "is truncated"),
        (foreign, r"Stable-Baselines3.s save\(\)"),
        (unsealed, "carries no digest"),
        (tmp_path / "missing.zip", "cannot be read"),
    ):
        with pytest.raises(CheckpointError, match=message):
            load_exact(path, make_vec())


def test_another_format_is_refused(saved: Path, tmp_path: Path) -> None:
    older = {**load_container(saved), "format_version": "exact_v0"}
    save_container(tmp_path / "older.zip", older)
    save_checkpoint(tmp_path / "other.zip", make_model().get_parameters(), step=0, performance=0.0)

    with pytest.raises(CheckpointError, match="'exact_v0', known are model_v1 and exact_v1"):
        load_exact(tmp_path / "older.zip", make_vec())
    with pytest.raises(CheckpointError, match=r"'v2_full_parameters'.*set_parameters"):
        load_exact(tmp_path / "other.zip", make_vec())
    with pytest.raises(CheckpointError, match="load_exact"):
        DistributionalPPO.load(saved)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("algorithm", "DDPG", "is of 'DDPG'"),
        ("n_envs", 0, "n_envs is 0"),
        ("seed", "seven", "seed.* must be an integer"),
        ("settings", {"policy": "MlpPolicy"}, "has other settings than the installed PPO"),
        ("state", {}, "missing "),
        ("device", "abacus", "abacus"),
        ("observation_space", 3, "is not a space"),
    ],
)
def test_a_field_of_another_kind_is_refused(field: str, value: Any, message: str, saved: Path, tmp_path: Path) -> None:
    save_container(tmp_path / "changed.zip", {**load_container(saved), field: value})

    with pytest.raises(CheckpointError, match=message):
        load_exact(tmp_path / "changed.zip", make_vec())


def _weights(content: Any) -> dict[str, Any]:
    return content["state"]["learnt"]["state_dicts"]["policy"]  # type: ignore[no-any-return]


def _options(content: Any) -> dict[str, Any]:
    return content["state"]["learnt"]["state_dicts"]["policy.optimizer"]["param_groups"][0]  # type: ignore[no-any-return]


def _rows(content: Any) -> dict[str, torch.Tensor]:
    return content["state"]["replay_buffer"]["arrays"]  # type: ignore[no-any-return]


def _kwargs(content: Any) -> dict[str, Any]:
    return content["settings"]["policy_kwargs"]  # type: ignore[no-any-return]


def _position(content: Any) -> dict[str, Any]:
    return content["state"]["position"]  # type: ignore[no-any-return]


def _own(content: Any) -> dict[str, Any]:
    return content["state"]["extra"]  # type: ignore[no-any-return]


class Measuring(PPO):
    """Keeps an array and numbers of its own, of which one begins with infinity."""

    extra_state = ("mean", "scale", "least", "rms")

    def _setup_model(self) -> None:
        super()._setup_model()
        self.mean, self.scale, self.least = np.zeros(3), 1.0, np.inf
        self.rms = RunningMeanStd(shape=(2,))


ORIGINAL = "original_observations"
VECTORIZED = "VectorizedActionNoise"
HOSTILE: dict[str, tuple[str, Callable[[Any], object], str]] = {
    "a weight that is NaN": ("ppo", lambda c: _weights(c)["action_net.weight"].fill_(np.nan), "holds NaN"),
    "another moment": ("ppo", lambda c: c["state"]["learnt"]["state_dicts"]["policy.optimizer"].pop("state"), "state"),
    "an infinite rate": ("ppo", lambda c: _options(c).update(lr=np.inf), r"\['lr'\] must be a finite number"),
    "groups of another kind": (
        "ppo",
        lambda c: c["state"]["learnt"]["state_dicts"]["policy.optimizer"].update(param_groups=[3]),
        "damaged",
    ),
    "gamma": ("ppo", lambda c: c["settings"].update(gamma=np.nan), "gamma must be a number from 0.0 to 1.0"),
    "a rate below 0": ("ppo", lambda c: c["settings"].update(learning_rate=-1.0), "learning_rate must be a number of"),
    "ascent": ("ppo", lambda c: _kwargs(c).update(optimizer_kwargs={"maximize": True}), "'maximize'.* would ascend"),
    **{
        f"{option} {value}": (
            "ppo",
            lambda c, given={option: value}: _kwargs(c).update(optimizer_kwargs=given),
            f"{option}.* would ascend",
        )
        for option, value in (
            ("maximize", "yes"),
            ("dampening", 50.0),
            ("momentum", np.nan),
            ("momentum", 10),
            ("momentum", "x"),
            ("weight_decay", np.inf),
            ("weight_decay", torch.tensor(np.nan)),
        )
    },
    **{
        f"{name} of another kind": ("ppo", lambda c, given={name: value}: c["settings"].update(given), said)
        for name, value, said in (
            ("max_grad_norm", torch.tensor(-1.0), "max_grad_norm must be a number of at least 0"),
            ("vf_coef", torch.tensor([1.0]), "vf_coef must be a number of at least 0"),
            ("gamma", "x", "gamma must be a number from 0.0 to 1.0"),
            (
                "gae_lambda",
                encode(np.array(-5.0), ""),
                "gae_lambda must be a number from .*, and is an array of float64 with shape",
            ),
            ("clip_range", encode(FloatSchedule(np.nan), ""), "clip_range must be a number of at least 0"),
            ("clip_range_vf", {"__kind__": "class", "name": "torch.nn.Tanh"}, "clip_range_vf must be a number"),
            ("ent_coef", torch.tensor(np.nan), "ent_coef must be a number"),
            ("learning_rate", encode(LinearSchedule(1e-3, 0.0, np.nan), ""), "learning_rate must be a number of"),
        )
    },
    "many layers": ("ppo", lambda c: _kwargs(c).update(net_arch=[1] * 1000), "no policy of the 1000 layers"),
    "many critics": ("sac", lambda c: _kwargs(c).update(n_critics=10**9), "no policy of the 1000000000 layers"),
    "wide layers": ("ppo", lambda c: _kwargs(c).update(net_arch=[10**6, 10**6]), "policy does not fit"),
    "nested lists": (
        "ppo",
        lambda c: _kwargs(c).update(net_arch=[{"pi": [1] * 9000, "vf": [1]}]),
        "of the 9000 layers",
    ),
    "layers of one weight": (
        "ppo",
        lambda c: (
            _weights(c).update({f"w{n}": torch.zeros(1) for n in range(2000)}),
            _kwargs(c).update(net_arch=[1] * 2000),
        ),
        "2000 layers, of at most 1000",
    ),
    "a device": ("ppo", lambda c: _kwargs(c).update(lstm_kwargs={"device": "cpu"}), "a device of their own"),
    "the device meta": ("ppo", lambda c: c.update(device="meta"), "device is 'meta'"),
    "a number that is NaN": ("ppo", lambda c: c["settings"].update(ent_coef=np.nan), "ent_coef must be a number"),
    "a bound below 0": ("ppo", lambda c: c["settings"].update(max_grad_norm=-1.0), "max_grad_norm must be a number of"),
    "a schedule below 0": (
        "ppo",
        lambda c: c["settings"].update(learning_rate=encode(LinearSchedule(1e-3, -1.0, 0.5), "")),
        "learning_rate must be a number of",
    ),
    "noise in noise": (
        "sac",
        lambda c: c["settings"].update(
            action_noise={"class": VECTORIZED, "n_envs": 2, "base_noise": {"class": VECTORIZED, "n_envs": 2}}
        ),
        "one VectorizedActionNoise in another",
    ),
    "noise of texts": (
        "sac",
        lambda c: c["settings"]["action_noise"]["base_noise"]["arguments"].update(mean=["x", ""]),
        "action_noise holds NaN or infinity",
    ),
    "a frozen name": ("ppo", lambda c: c["state"]["progress"].update(frozen=["x"]), "frozen.*names of parameters"),
    "an action": ("dqn", lambda c: _rows(c)["actions"].fill_(1000), "actions.*holds other values than Discrete"),
    "an observation": ("sac", lambda c: _rows(c)["observations"].fill_(np.inf), "observations.*NaN or infinity"),
    "a noise": (
        "sac",
        lambda c: c["state"]["action_noise"]["noises"][0]["previous"].fill_(np.nan),
        "action_noise holds NaN",
    ),
    "a reward": ("sac", lambda c: _rows(c)["rewards"].fill_(np.nan), "rewards.*holds NaN"),
    "the end of an episode": ("sac", lambda c: _rows(c)["dones"].fill_(1e30), "dones.*holds NaN, infinity or a flag"),
    "a timeout": ("sac", lambda c: _rows(c)["timeouts"].fill_(-1), "timeouts.*holds NaN, infinity or a flag"),
    "original observations": ("normalized", lambda c: _position(c)[ORIGINAL].fill_(np.nan), f"{ORIGINAL}.*NaN"),
    "other original observations": (
        "normalized",
        lambda c: _position(c).update({ORIGINAL: torch.zeros(2, 1)}),
        f"{ORIGINAL}.*shape",
    ),
    "no original observations": ("normalized", lambda c: _position(c).update({ORIGINAL: None}), f"{ORIGINAL}.*shape"),
    "discounted returns": (
        "normalized",
        lambda c: c["state"]["environments"]["state"]["wrappers"][0]["state"]["returns"].fill_(np.nan),
        "returns.*NaN",
    ),
    "an own array": ("own", lambda c: _own(c).update(mean=encode(np.full(3, np.nan), "")), "mean.*must be finite"),
    "a larger own array": ("own", lambda c: _own(c).update(mean=encode(np.ones(4), "")), "mean.*shape"),
    "an own array of integers": ("own", lambda c: _own(c).update(mean=encode(np.ones(3, int), "")), "mean.*float64"),
    "no own array": ("own", lambda c: _own(c).update(mean=None), "mean.*must be an array"),
    "an own NumPy number": (
        "own",
        lambda c: _own(c).update(scale=encode(np.float32(np.inf), "", exact=True)),
        "scale.*must be finite",
    ),
    "a NumPy number of another kind": (
        "own",
        lambda c: _own(c).update(scale={"__kind__": "numpy.generic", "dtype": "float64", "value": [1.0, 2.0]}),
        "scale.*must be a float",
    ),
    "an own variance": ("own", lambda c: _own(c)["rms"]["var"].fill_(-1.0), "'var'.* holds a number below 0"),
    "other own statistics": ("own", lambda c: _own(c)["rms"].update(mean=torch.zeros(3)), "'mean'.* shape"),
    "a gamma of NumPy": (
        "ppo",
        lambda c: c["settings"].update(gamma=encode(np.float64(np.nan), "", exact=True)),
        "gamma must be a number from 0.0 to 1.0",
    ),
    "an own number": ("own", lambda c: _own(c).update(scale=np.inf), "scale.*must be finite"),
}


@pytest.fixture(scope="module")
def files(saved: Path) -> dict[str, Path]:
    dqn = DQN("MlpPolicy", make_vec(), **net(), buffer_size=40, learning_starts=4)
    own: Any = Measuring("MlpPolicy", make_vec(), **net(), n_steps=8, batch_size=4)
    models = {"sac": noisy(), "dqn": dqn, "normalized": sac(normalized()), "own": own}
    for name, model in models.items():
        save_exact(model.learn(16), saved.with_name(name))
    return {name: saved.with_name(f"{name}.zip") for name in ("ppo", *models)}


def normalized() -> VecEnv:
    return VecNormalize(make_vec("Pendulum-v1"))


def loaded_from(path: Path, name: str) -> Any:
    """The model of a file of this name among `files`."""
    env = {"sac": lambda: make_vec("Pendulum-v1"), "normalized": normalized}.get(name, make_vec)()
    return load_exact(path, env, algorithm=Measuring if name == "own" else None)


@pytest.mark.parametrize("name", ["normalized", "own"])
def test_what_is_changed_to_be_hostile_is_loaded_without_the_change(name: str, files: dict[str, Path]) -> None:
    assert loaded_from(files[name], name).num_timesteps == 16


@pytest.mark.parametrize(("name", "change", "message"), HOSTILE.values(), ids=HOSTILE)
def test_what_a_hostile_file_says_is_refused_before_it_takes_memory(
    name: str, change: Callable[[Any], object], message: str, files: dict[str, Path], tmp_path: Path
) -> None:
    content = load_container(files[name])
    change(content)
    save_container(tmp_path / "hostile.zip", content)

    with pytest.raises(CheckpointError, match=message):
        loaded_from(tmp_path / "hostile.zip", name)


@pytest.mark.parametrize(
    ("optimizer", "moment", "value"),
    [
        (torch.optim.Adagrad, "sum", -5.0),
        (torch.optim.Adadelta, "acc_delta", -5.0),
        (torch.optim.Adamax, "exp_inf", -5.0),
        (torch.optim.NAdam, "mu_product", 1.5),
        (torch.optim.ASGD, "eta", -100.0),
        (torch.optim.ASGD, "mu", 2.0),
        (torch.optim.Rprop, "step_size", -1.0),
        (partial(torch.optim.RMSprop, centered=True), "grad_avg", 1e6),
    ],
)
def test_moments_with_which_an_optimizer_would_not_descend_are_refused(
    optimizer: Any, moment: str, value: float, tmp_path: Path
) -> None:
    kind, options = getattr(optimizer, "func", optimizer), getattr(optimizer, "keywords", {})
    network = {"net_arch": [4], "optimizer_class": kind, "optimizer_kwargs": options}
    model = ppo(policy_kwargs=network).learn(16)
    given: Any = {"custom_objects": {"policy_kwargs.optimizer_class": kind}}
    save_exact(model, tmp_path / "sound.zip")
    load_exact(tmp_path / "sound.zip", make_vec(), **given)
    for state in model.policy.optimizer.state.values():
        state[moment] = torch.full_like(state[moment], value)
    save_exact(model, tmp_path / "hostile.zip")

    with pytest.raises(CheckpointError, match=f"'{moment}'"):
        load_exact(tmp_path / "hostile.zip", make_vec(), **given)


def test_options_of_an_optimizer_and_paths_come_from_the_caller(saved: Path, tmp_path: Path) -> None:
    content = load_container(saved)
    _options(content).update(maximize=True, eps=1.0)
    content["settings"]["tensorboard_log"] = "/somewhere"
    save_container(tmp_path / "changed.zip", content)

    model: Any = load_exact(tmp_path / "changed.zip", make_vec())
    assert (model.policy.optimizer.param_groups[0]["maximize"], model.tensorboard_log) == (False, None)
    assert model.policy.optimizer.param_groups[0]["eps"] == 1e-5
    given = {"tensorboard_log": str(tmp_path)}
    assert load_exact(tmp_path / "changed.zip", make_vec(), custom_objects=given).tensorboard_log == str(tmp_path)


class OwnExtractor(FlattenExtractor):
    """A class that no file can hold."""


def test_what_no_file_holds_is_given_at_load(tmp_path: Path) -> None:
    def falling(remaining: float) -> float:
        return 1e-3 * remaining

    def build() -> PPO:
        kwargs = {"net_arch": [4], "features_extractor_class": OwnExtractor}
        return ppo(learning_rate=falling, policy_kwargs=kwargs)

    expected = finished(build().learn(64))
    build().learn(64, callback=[SaveExactly(tmp_path, every=1), StopAt(40)])
    path = newest_exact(tmp_path)
    assert path is not None
    objects = {"learning_rate": falling, "policy_kwargs.features_extractor_class": OwnExtractor}

    with pytest.raises(CheckpointError, match=r"custom_objects=\{'learning_rate': \.\.\.\}"):
        load_exact(path, make_vec())
    with pytest.raises(CheckpointError, match="features_extractor_class"):
        load_exact(path, make_vec(), custom_objects={"learning_rate": falling})
    loaded = load_exact(path, make_vec(), custom_objects=objects)

    assert differences(finished(continue_learning(loaded)), expected) == []


def _linear(remaining: float) -> float:
    return 1e-3 * remaining


class OwnRate(PPO):
    """Sets its learning rate itself, so that the one of a file may count."""

    def _update_learning_rate(self, optimizers: Any) -> None:
        pass


def test_a_schedule_that_ends_below_0_is_loaded_and_no_other_rate_below_0_counts(tmp_path: Path) -> None:
    given: Any = {"custom_objects": {"learning_rate": _linear}}
    model = ppo(learning_rate=_linear).learn(40, callback=SaveExactly(tmp_path, every=64))
    assert model.policy.optimizer.param_groups[0]["lr"] < 0
    expected = finished(continue_learning(model, total_timesteps=96))
    path = newest_exact(tmp_path)
    assert path is not None

    loaded = load_exact(path, make_vec(), **given)
    assert loaded.policy.optimizer.param_groups[0]["lr"] == 0
    assert differences(finished(continue_learning(loaded, total_timesteps=96)), expected) == []

    own: Any = trained(OwnRate)()
    own.policy.optimizer.param_groups[0]["lr"] = -1.0
    save_exact(own, tmp_path / "own.zip")
    with pytest.raises(CheckpointError, match=r"\['lr'\] must be a finite number from 0"):
        load_exact(tmp_path / "own.zip", make_vec(), algorithm=OwnRate)


class OwnPolicy(PPO.policy_aliases["MlpPolicy"]):  # type: ignore[misc]
    """A policy of the user."""


def test_a_policy_of_the_user_is_given_at_load(tmp_path: Path) -> None:
    model = PPO(OwnPolicy, make_vec(), n_steps=8, batch_size=4, **net())
    model.learn(16)
    save_exact(model, tmp_path / "file.zip")
    expected = finished(model)

    with pytest.raises(CheckpointError, match=r"custom_objects=\{'policy': \.\.\.\}"):
        load_exact(tmp_path / "file.zip", make_vec())

    loaded = load_exact(tmp_path / "file.zip", make_vec(), custom_objects={"policy": OwnPolicy})
    assert type(loaded.policy) is OwnPolicy
    assert differences(finished(loaded), expected) == []


def test_a_model_that_has_not_begun_is_saved_too_and_learns_alike(tmp_path: Path) -> None:
    model = ppo(make_vec(seed=5))
    save_exact(model, tmp_path / "file.zip")
    loaded = load_exact(tmp_path / "file.zip", make_vec(seed=None))

    found = finished(loaded.learn(32))

    restored = load_exact(tmp_path / "file.zip", make_vec(seed=None))
    assert differences(finished(restored.learn(32)), found) == []


def test_a_run_that_has_reached_its_total_is_left_as_it_is_and_can_be_extended(saved: Path) -> None:
    model = load_exact(saved, make_vec())
    assert continue_learning(model).num_timesteps == 16
    assert model._total_timesteps == 16
    assert continue_learning(model, total_timesteps=40).num_timesteps == 48


def test_an_environment_that_is_no_vec_env_is_wrapped_as_by_the_constructor(tmp_path: Path) -> None:
    def build() -> gym.Env[Any, Any]:
        return ResumableEnv(Monitor(gym.make("CartPole-v1")))

    make: Any = PPO
    model = make("MlpPolicy", build(), n_steps=8, batch_size=4, **net())
    model.learn(16)
    save_exact(model, tmp_path / "file.zip")
    expected = finished(model)

    assert differences(finished(load_exact(tmp_path / "file.zip", build())), expected) == []


class Growing(ActionNoise):
    """Noise of the user that gives its state."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0.0

    def __call__(self) -> Any:
        self.size += 1e-3
        return np.full(1, self.size)

    def get_state(self) -> Any:
        return {"size": self.size}

    def set_state(self, state: Any) -> None:
        self.size = state["size"]


def test_action_noise_of_the_user_gives_its_state_and_is_given_at_load(tmp_path: Path) -> None:
    expected = finished(sac(action_noise=Growing()).learn(60))
    sac(action_noise=Growing()).learn(60, callback=[SaveExactly(tmp_path, every=11), StopAt(31)])
    path = newest_exact(tmp_path)
    assert path is not None

    with pytest.raises(CheckpointError, match=r"custom_objects=\{'action_noise': \.\.\.\}"):
        load_exact(path, make_vec("Pendulum-v1"))
    loaded: Any = load_exact(path, make_vec("Pendulum-v1"), custom_objects={"action_noise": Growing()})

    assert [noise.size for noise in loaded.action_noise.noises] == pytest.approx([0.012, 0.012])
    assert differences(finished(continue_learning(loaded)), expected) == []
