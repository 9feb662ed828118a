"""What a hostile file says is refused, or has no effect."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.utils import FloatSchedule, LinearSchedule
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from stable_baselines3.her import HerReplayBuffer

from rlcore.checkpoint.codec import encode
from rlcore.checkpoint.container import load_container, save_container
from rlcore.errors import (
    CheckpointError,
)
from rlcore.resume import SaveExactly, continue_learning, load_exact, newest_exact, save_exact
from tests.core.resume.small_models import net, noisy, ppo, sac, trained
from tests.support.environments import make_vec
from tests.support.exact_runs import differences, finished, pickled


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
            ("alpha", 1.5),
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
            (
                "learning_rate",
                encode(LinearSchedule(np.float32(np.inf), 0.0, 0.5), "", exact=True),
                "learning_rate must",
            ),
            ("learning_rate", encode(LinearSchedule(1e-3, 0.0, np.nan), ""), "learning_rate must be a number of"),
        )
    },
    "many layers": ("ppo", lambda c: _kwargs(c).update(net_arch=[1] * 1000), "no policy of the 1000 layers"),
    **{
        f"many layers, {kind.__name__}": (
            "ppo",
            lambda c, kind=kind: _kwargs(c).update(net_arch=encode(kind([1] * 5000), "")),
            "no policy of the 5000 layers",
        )
        for kind in (np.array, tuple)
    },
    "many actions": (
        "ppo",
        lambda c: c.update(action_space=encode(spaces.MultiDiscrete([2] * (2**20 + 1)), "")),
        "action_space.*1048577 numbers, of at most 1048576",
    ),
    "many observations": (
        "ppo",
        lambda c: c.update(observation_space=encode(spaces.Box(0, 1, (2**24 + 1,), np.uint8), "")),
        "settings and spaces have arrays of 67108868 bytes, of at most 67108864",
    ),
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
    "a text that is NaN": ("sac", lambda c: c["settings"].update(target_entropy="nan"), "target_entropy must be a num"),
    "a text without a number": ("sac", lambda c: c["settings"].update(ent_coef="auto_x"), "ent_coef must be a number"),
    "gamma of a buffer": (
        "sac",
        lambda c: c["settings"].update(replay_buffer_kwargs={"gamma": np.nan}),
        "gamma must be a number from 0.0 to 1.0",
    ),
    "a bound below 0": ("ppo", lambda c: c["settings"].update(max_grad_norm=-1.0), "max_grad_norm must be a number of"),
    "a schedule below 0": (
        "ppo",
        lambda c: c["settings"].update(learning_rate=encode(LinearSchedule(1e-3, -1.0, 0.5), "")),
        "learning_rate must be a number of",
    ),
    "a schedule that begins below 0": (
        "ppo",
        lambda c: c["settings"].update(learning_rate=encode(LinearSchedule(-1e-3, 1e-3, 0.5), "")),
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
    "a next observation": ("sac", lambda c: _rows(c)["next_observations"].fill_(np.inf), "next_obs.*NaN or infinity"),
    **{
        f"{name} of {value}": (
            "her",
            lambda c, name=name, value=value: _rows(c)[name].fill_(value),
            f"{name}.*holds a row that the buffer does not have",
        )
        for name in ("ep_start", "ep_length", "_current_ep_start")
        for value in (-1, 21)
    },
    "a noise": (
        "sac",
        lambda c: c["state"]["action_noise"]["noises"][0]["previous"].fill_(np.nan),
        "action_noise holds NaN",
    ),
    "a reward": ("sac", lambda c: _rows(c)["rewards"].fill_(np.nan), "rewards.*holds NaN"),
    "the end of an episode": ("sac", lambda c: _rows(c)["dones"].fill_(1e30), "dones.*holds NaN, infinity or a flag"),
    "a flag of 2": ("sac", lambda c: _rows(c)["dones"].fill_(2.0), "dones.*holds NaN, infinity or a flag"),
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
    **{
        f"no {part}": (name, lambda c, part=part: c["state"].pop(part), f"missing are \\['{part}'\\]")
        for name, part in (
            ("ppo", "learnt"),
            ("ppo", "progress"),
            ("ppo", "environments"),
            ("ppo", "generators"),
            ("sac", "replay_buffer"),
            ("own", "extra"),
        )
    },
    "a row beyond the buffer": (
        "dqn",
        lambda c: c["state"]["replay_buffer"].update(pos=20, full=True),
        r"\['pos'\] must be below the buffer's size, 20",
    ),
    "a seed below 0": ("ppo", lambda c: c.update(seed=-1), "seed"),
}


@pytest.fixture(scope="module")
def files(saved: Path) -> dict[str, Path]:
    dqn = DQN("MlpPolicy", make_vec(), **net(), buffer_size=40, learning_starts=4)
    own: Any = Measuring("MlpPolicy", make_vec(), **net(), n_steps=8, batch_size=4)
    her = sac(goals(), replay_buffer_class=HerReplayBuffer)
    models = {"sac": noisy(), "dqn": dqn, "normalized": sac(normalized()), "own": own, "her": her}
    for name, model in models.items():
        save_exact(model.learn(16), saved.with_name(name))
    return {name: saved.with_name(f"{name}.zip") for name in ("ppo", *models)}


def normalized() -> VecEnv:
    return VecNormalize(make_vec("Pendulum-v1"))


def goals() -> VecEnv:
    return make_vec_env(partial(BitFlippingEnv, 3, True), n_envs=2, wrapper_class=pickled)


def loaded_from(path: Path, name: str) -> Any:
    """The model of a file of this name among `files`."""
    env = {"sac": lambda: make_vec("Pendulum-v1"), "normalized": normalized, "her": goals}.get(name, make_vec)()
    return load_exact(path, env, algorithm=Measuring if name == "own" else None)


@pytest.mark.parametrize("name", ["normalized", "own", "her"])
def test_what_is_changed_to_be_hostile_is_loaded_without_the_change(
    name: str, files: dict[str, Path], tmp_path: Path
) -> None:
    save_container(tmp_path / "sound.zip", {**load_container(files[name]), "seed": 2**32 - 1})
    assert loaded_from(tmp_path / "sound.zip", name).num_timesteps == 16


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
    content: Any = load_container(tmp_path / "sound.zip")
    for state in content["state"]["learnt"]["state_dicts"]["policy.optimizer"]["state"].values():
        state[moment].fill_(value)
    save_container(tmp_path / "hostile.zip", content)

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

    save_exact(trained(OwnRate)(), tmp_path / "own.zip")
    content = load_container(tmp_path / "own.zip")
    _options(content).update(lr=-1.0)
    save_container(tmp_path / "own.zip", content)
    with pytest.raises(CheckpointError, match=r"\['lr'\] must be a finite number from 0"):
        load_exact(tmp_path / "own.zip", make_vec(), algorithm=OwnRate)
