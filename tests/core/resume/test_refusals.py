"""What does not fit is refused at load, or has to be given."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv, VecNormalize

from rlcore import DistributionalPPO, ResumableEnv, save_checkpoint
from rlcore.checkpoint.container import load_container, save_container
from rlcore.errors import CheckpointError, SettingError
from rlcore.resume import SaveExactly, continue_learning, load_exact, newest_exact, save_exact
from rlcore.state.training import capture_generators
from tests.core.resume.small_models import net, ppo, sac
from tests.support.environments import bits_of_state, make_vec
from tests.support.exact_runs import StatelessParts, StopAt, differences, finished
from tests.support.training import make_model


def workers() -> VecEnv:
    return make_vec(vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "fork"})


UNFIT: dict[str, tuple[Callable[[], Any], str]] = {
    "other spaces": (
        lambda: make_vec("Pendulum-v1"),
        "its observation_space is Box.*, and this environment's Box",
    ),
    "another number": (lambda: make_vec(n_envs=3), "the run had 2 environments, and this one has 3"),
    "another environment": (lambda: make_vec(env_kwargs={"sutton_barto_reward": True}), "sutton_barto_reward"),
    "workers": (workers, "the run had 'DummyVecEnv', and this is SubprocVecEnv"),
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


class Turned(StatelessParts):
    """Gives its parts in another order, in which a policy joins their features."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = spaces.Dict(OrderedDict([*self.observation_space.items()][::-1]))  # type: ignore[attr-defined]


def test_a_dict_space_whose_keys_have_another_order_is_refused(tmp_path: Path) -> None:
    def made(kind: type[StatelessParts]) -> VecEnv:
        return make_vec_env("Pendulum-v1", 2, wrapper_class=lambda env: ResumableEnv(kind(env)))

    for kind, other in ((StatelessParts, Turned), (Turned, StatelessParts)):
        save_exact(sac(made(kind)), tmp_path / "file.zip")
        load_exact(tmp_path / "file.zip", made(kind))
        with pytest.raises(CheckpointError, match=r"its observation_space is Dict.*, and this environment's Dict"):
            load_exact(tmp_path / "file.zip", made(other))


def test_statistics_stay_if_the_environments_refuse_theirs(tmp_path: Path) -> None:
    model = ppo(VecNormalize(make_vec()))
    model.learn(16)
    save_exact(model, tmp_path / "file.zip")
    env = VecNormalize(make_vec(env_kwargs={"sutton_barto_reward": True}))

    with pytest.raises(CheckpointError, match="sutton_barto_reward"):
        load_exact(tmp_path / "file.zip", env)

    assert env.ret_rms.count < 1


@pytest.mark.parametrize("path", ["", b"bytes.zip", None, 3, BytesIO(), "folder/", Path(), ".."])
def test_what_is_no_path_of_a_file_is_refused(path: Any) -> None:
    with pytest.raises(CheckpointError, match="is no path of a file, as str or"):
        save_exact(ppo(), path)


@pytest.mark.parametrize("wrong", ["", "run/exact", "../exact"])
def test_a_name_in_another_folder_is_refused(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="is not the start of a file's name; put folders into folder"):
        SaveExactly(tmp_path, every=16, name=wrong)


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


class Decay(torch.optim.lr_scheduler.StepLR):
    """Says where it is."""

    def get_state(self) -> Any:
        return {"epoch": self.last_epoch, "count": self._step_count, "rates": [float(each) for each in self._last_lr]}

    def set_state(self, state: Any) -> None:
        self.last_epoch, self._step_count, self._last_lr = state["epoch"], state["count"], list(state["rates"])


class Keeping(PPO):
    """Saves itself, takes few settings, and has a schedule of torch's for its optimizer."""

    extra_state = ("decay",)

    def __init__(self, policy: Any, env: Any, policy_kwargs: Any = None, n_steps: int = 8) -> None:
        super().__init__(policy, env, policy_kwargs=policy_kwargs, n_steps=n_steps, batch_size=4, device="cpu")

    def _setup_model(self) -> None:
        super()._setup_model()
        self.decay = Decay(self.policy.optimizer, 1, 0.5)

    def _update_learning_rate(self, optimizers: Any) -> None:
        pass

    def train(self) -> None:
        super().train()
        self.decay.step()

    def keep(self, path: Path) -> Keeping:
        save_exact(self, path)
        return self


def test_a_method_of_the_model_may_save_it(tmp_path: Path) -> None:
    kept = Keeping("MlpPolicy", make_vec(), net()["policy_kwargs"]).learn(16).keep(tmp_path / "kept.zip")
    expected = finished(continue_learning(kept, total_timesteps=32))
    loaded = load_exact(tmp_path / "kept.zip", make_vec(), algorithm=Keeping)
    assert differences(finished(continue_learning(loaded, total_timesteps=32)), expected) == []
