"""What a model keeps where a file does not look is refused by name, and looking for it changes nothing."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sb3_contrib import TQC
from stable_baselines3 import PPO
from stable_baselines3.common.distributions import CategoricalDistribution
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.torch_layers import FlattenExtractor

from rlcore import DistributionalPPO
from rlcore.errors import CallOrderError, CheckpointError
from rlcore.resume import continue_learning, load_exact, save_exact
from rlcore.state.training import capture_generators
from tests.core.resume.small_models import Counter, Keeps, changed, keeping, net, ppo, ruled, sac
from tests.support.environments import bits_of_state, make_vec
from tests.support.exact_runs import StopAt, differences, finished
from tests.support.training import make_model


class Tempered(CategoricalDistribution):
    """Another distribution."""


class Measuring(torch.optim.SGD):
    """Keeps a tensor that is not in its state."""

    def __init__(self, parameters: Any, lr: float = 1e-3, **options: Any) -> None:
        super().__init__(parameters, lr=lr, **options)
        self.norm = torch.ones(())


class Transforms(PPO):
    """Its constructor keeps another value than it was given."""

    def __init__(self, *arguments: Any, heat: float = 0.5, **settings: Any) -> None:
        self.heat = heat / 2
        super().__init__(*arguments, **settings)


class Halves(PPO):
    """Its constructor passes on another value than it was given."""

    def __init__(self, *arguments: Any, n_epochs: int = 4, **settings: Any) -> None:
        super().__init__(*arguments, n_epochs=n_epochs // 2, **settings)


class Extra(PPO):
    """Keeps what a file has."""

    extra_state = ("mean", "network", "seen", "small")

    def _setup_model(self) -> None:
        super()._setup_model()
        self.mean, self.network, self.seen, self.small = torch.zeros(2), torch.nn.Dropout(), {}, np.float32(0.1)


class Own(DistributionalPPO):
    """Keeps what no file has."""

    extra_state = ("count",)
    count = 0


class Rms(RunningMeanStd):
    """Gives its state itself, and takes it back as numbers of Python, with which NumPy rounds in another way."""

    def get_state(self) -> Any:
        return {"mean": float(self.mean), "var": float(self.var), "count": float(self.count)}

    def set_state(self, state: Any) -> None:
        vars(self).update(state)


class Scales(PPO):
    """Scales its returns, and remembers NumPy numbers."""

    extra_state = ("rms", "seen", "last")

    def _setup_model(self) -> None:
        super()._setup_model()
        self.rms, self.seen, self.last = RunningMeanStd(shape=()), [], None

    def train(self) -> None:
        buffer = self.rollout_buffer
        self.rms.update(buffer.returns.flatten())
        self.last = np.float64(self.rms.var)
        self.seen.append((np.float32(self.last), {"mean": self.last}))
        for name in ("returns", "advantages", "values"):
            setattr(buffer, name, getattr(buffer, name) / np.sqrt(self.last + 1e-8))
        super().train()


class Casts(Scales):
    """Keeps statistics that lose their dtype."""

    def _setup_model(self) -> None:
        super()._setup_model()
        self.rms = Rms(shape=())


def of(kind: type[PPO], change: Callable[[Any], object] = lambda _: None, **settings: Any) -> Callable[[], Any]:
    return ruled(change, lambda: kind("MlpPolicy", make_vec(), **net(), **settings))


def distributional(change: Callable[[Any], object], kind: type[DistributionalPPO] = Own) -> Callable[[], Any]:
    return ruled(change, lambda: kind("MlpLstmPolicy", make_vec(), n_steps=4, batch_size=8, device="cpu", seed=0))


def transposed(policy: Any) -> None:
    weight = policy.action_net.weight
    weight.data = weight.data.t().contiguous().t()


_PARAMETER = "policy.action_net.weight"


def left(owner: Callable[[Any], Any], name: str, call: int) -> Callable[[Any], None]:
    """Interrupt ``learn()`` in a call of a method."""

    def run(model: Any) -> None:
        part, calls = owner(model), itertools.count(1)
        method = getattr(part, name)

        def replaced(*arguments: Any, **named: Any) -> Any:
            if next(calls) == call:
                raise KeyboardInterrupt
            return method(*arguments, **named)

        setattr(part, name, replaced)
        with contextlib.suppress(KeyboardInterrupt):
            model.learn(32)
        assert next(calls) == call + 1
        delattr(part, name)

    return run


HIDDEN: dict[str, tuple[Callable[[], Any], str]] = {
    "a tensor with its graph": (
        changed(lambda policy: setattr(policy.features_extractor, "mean", policy.action_net.bias + 1)),
        "extractor.mean is a Tensor of shape",
    ),
    "an attribute of a buffer": (
        changed(lambda policy: setattr(policy.features_extractor.last, "n", 3)),
        "extractor.last.n is 3, .* missing",
    ),
    "an attribute of a parameter": (
        changed(lambda policy: setattr(policy.action_net.weight, "scale", 5.0)),
        f"{_PARAMETER}.scale is 5.0, .* missing",
    ),
    "children of a generator": (
        changed(lambda policy: policy.features_extractor.generator.spawn(1)),
        "extractor.generator.spawned is 1, .* 0",
    ),
    "an order of axes": (changed(transposed), rf"{_PARAMETER} is .* with strides \[1, 2\], .* \[4, 1\]"),
    "a precision": (changed(lambda policy: policy.double()), "is .* torch.float64 with strides .* torch.float32"),
    "a distribution": (
        changed(lambda policy: setattr(policy, "action_dist", Tempered(2))),
        "policy.action_dist is a Tempered, .* a CategoricalDistribution",
    ),
    "a number of a distribution": (
        ruled(lambda model: setattr(model.actor.action_dist, "epsilon", 0.5), sac),
        "policy.actor.action_dist.epsilon is 0.5, .* 1e-06",
    ),
    "a flag of a buffer": (
        ruled(lambda model: setattr(model.replay_buffer, "handle_timeout_termination", False), sac),
        "replay_buffer.handle_timeout_termination is False, .* True",
    ),
    "a method of a buffer": (
        ruled(lambda model: setattr(model.replay_buffer, "sample", model.replay_buffer.sample), sac),
        "replay_buffer.sample is a method, .* missing",
    ),
    "a method that is a partial": (
        ruled(lambda model: setattr(model, "train", partial(PPO.train, model))),
        "train is a partial, .* missing",
    ),
    "a tensor of an optimizer": (
        ruled(
            lambda model: model.policy.optimizer.norm.mul_(0.9),
            lambda: ppo(policy_kwargs={"net_arch": [4], "optimizer_class": Measuring}),
        ),
        "policy.optimizer.norm is a Tensor .* that has changed",
    ),
    "a schedule that counts": (lambda: ppo(learning_rate=Counter()), "lr_schedule.value_schedule.n is 1, .* 2"),
    "an argument that is transformed": (of(Transforms), "heat is 0.25, .* 0.125"),
    "an argument that is passed on": (of(Halves), "n_epochs is 2, .* 1"),
    "a precision of extra_state": (
        of(Extra, lambda model: setattr(model, "mean", model.mean.double())),
        "mean is .* torch.float64 .* torch.float32",
    ),
    "a mode of extra_state": (of(Extra, lambda model: model.network.eval()), "network.training is False, .* True"),
    "a dtype that set_state does not keep": (
        of(Casts),
        r"rms.mean is a ndarray .* 0.0, of another dtype, after set_state",
    ),
    "a class of extra_state that gives no state": (
        of(Scales, lambda model: setattr(model, "rms", type("Kept", (RunningMeanStd,), {})(shape=()))),
        "no file holds rms of extra_state: give Kept get_state and set_state",
    ),
    "keys of extra_state": (
        of(Extra, lambda model: model.seen.update({(1, 2): 3})),
        "no file holds seen of extra_state",
    ),
    "a number of a DistributionalPPO": (
        distributional(lambda model: setattr(model, "count", 1)),
        "count is 1, .* missing; .* or name it in Own._state_parts",
    ),
    "a method of a DistributionalPPO": (
        distributional(lambda model: setattr(model, "train", lambda: None), DistributionalPPO),
        "train is a function, .* missing",
    ),
    "a buffer of a DistributionalPPO": (
        distributional(lambda model: setattr(model.rollout_buffer, "gamma", 0.5), DistributionalPPO),
        "rollout_buffer.gamma is 0.5, .* 0.99",
    ),
    "a rollout that was left": (
        ruled(lambda model: model.learn(32, callback=StopAt(20))),
        r"learn\(\) ended in one, which cannot be continued in its middle; .*SaveExactly",
    ),
    "a rollout that was left at its last step": (
        ruled(lambda model: model.learn(32, callback=StopAt(32))),
        r"learn\(\) ended in one",
    ),
    "a step of an environment that was left": (ruled(left(lambda model: model.env.envs[1].env, "step", 4)), "ended in"),
    "a first step that was left": (ruled(left(lambda model: model.env.envs[1].env, "step", 1)), "learn.. ended in one"),
    "a first step off policy": (ruled(left(lambda model: model.env.envs[1].env, "step", 5), sac), "learn.. ended in"),
    "an action that was not chosen": (ruled(left(lambda model: model.policy, "forward", 9)), "learn.. ended in one"),
    "a step that was left": (ruled(lambda model: model.learn(32, callback=StopAt(20)), sac), r"learn\(\) ended in one"),
}


@pytest.mark.parametrize(("make", "message"), HIDDEN.values(), ids=HIDDEN)
def test_what_is_hidden_is_named_and_nothing_is_written(make: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises((CheckpointError, CallOrderError), match=message):
        save_exact(make(), tmp_path / "file.zip")
    assert list(tmp_path.iterdir()) == []


class Encoder(FlattenExtractor):
    """Takes a network that learns on."""

    def __init__(self, space: Any, network: Any) -> None:
        super().__init__(space)
        self.network = network

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.network(observations)  # type: ignore[no-any-return]


def encoding() -> dict[str, Any]:
    torch.manual_seed(1)
    kwargs = {"network": torch.nn.Linear(4, 4)}
    return {"net_arch": [4], "features_extractor_class": Encoder, "features_extractor_kwargs": kwargs}


class Resets(PPO):
    """Its constructor uses the environments, and draws."""

    def _setup_model(self) -> None:
        super()._setup_model()
        if self.seed is None:
            self.env.reset()
            self.action_space.sample()
            np.random.rand()


UNTOUCHED: dict[str, Callable[[], Any]] = {
    "a network among the settings": lambda: ppo(policy_kwargs=encoding()),
    "a network among the settings of DistributionalPPO": lambda: make_model(make_vec(), policy_kwargs=encoding()),
    "environments": of(Resets, n_steps=8, batch_size=4),
}


@pytest.mark.parametrize("make", UNTOUCHED.values(), ids=UNTOUCHED)
def test_a_save_changes_neither_the_model_nor_its_environments(make: Callable[[], Any], tmp_path: Path) -> None:
    model = make()
    model.learn(model.n_steps * model.n_envs)

    def bits() -> Any:
        generators = {**capture_generators(), "actions": repr(model.action_space.np_random.bit_generator.state)}
        return bits_of_state([model.policy.state_dict(), model.env.env_method("get_state"), generators])

    model.action_space.sample()
    before = bits()
    save_exact(model, tmp_path / "file.zip")
    assert bits() == before


def small(model: Any) -> Any:
    model.small = model.small * 3
    return model


def falling(by: float) -> Callable[[float], float]:
    return lambda remaining: by * remaining


SOUND: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "a number of NumPy": (lambda: small(of(Extra)()), {"algorithm": Extra}),
    "a closure as schedule": (
        lambda: ppo(learning_rate=falling(1e-3)),
        {"custom_objects": {"learning_rate": falling(1e-3)}},
    ),
    "a constructor that uses the environments": (of(Resets, n_steps=8, batch_size=4), {"algorithm": Resets}),
    "an LSTM in an extractor": (
        keeping(lambda: torch.nn.LSTM(4, 4), lambda kept: kept(torch.zeros(1, 4))),
        {
            "custom_objects": {
                "policy_kwargs.features_extractor_class": Keeps,
                "policy_kwargs.features_extractor_kwargs.make": lambda: torch.nn.LSTM(4, 4),
            }
        },
    ),
    "statistics and numbers of NumPy": (
        lambda: Scales("MlpPolicy", make_vec(), **net(), n_steps=8, batch_size=4, gamma=np.float64(0.9)),
        {"algorithm": Scales},
    ),
    "TQC": (lambda: TQC("MlpPolicy", make_vec("Pendulum-v1"), **net(), buffer_size=40, learning_starts=4), {}),
}


@pytest.mark.parametrize(("make", "options"), SOUND.values(), ids=SOUND)
def test_what_is_sound_is_saved_loaded_and_saved_again(make: Any, options: dict[str, Any], tmp_path: Path) -> None:
    def continued(path: Path) -> Any:
        env = make_vec("Pendulum-v1" if "TQC" in type(model).__name__ else "CartPole-v1")
        return load_exact(path, env, **options)

    model = make().learn(16)
    save_exact(model, tmp_path / "1.zip")
    save_exact(continued(tmp_path / "1.zip"), tmp_path / "2.zip")
    continued(tmp_path / "2.zip")  # sets the generators as they were
    expected = finished(continue_learning(model, total_timesteps=64))
    for number in (1, 2):
        loaded = continued(tmp_path / f"{number}.zip")
        assert type(getattr(loaded, "small", None)) is type(getattr(model, "small", None))
        assert differences(finished(continue_learning(loaded, total_timesteps=64)), expected) == []
