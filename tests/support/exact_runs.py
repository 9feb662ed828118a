"""Runs of Stable-Baselines3's algorithms: ``python -m tests.support.exact_runs OUTPUT CASE FILE...``."""

from __future__ import annotations

import hashlib
import json
import random
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from sb3_contrib import QRDQN, TQC, TRPO, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.logger import KVWriter
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
)
from stable_baselines3.her import GoalSelectionStrategy, HerReplayBuffer

from rlcore.envs.resumable import ResumableEnv
from rlcore.resume import PickledEnv, ResumableActionMasker, SaveExactly, continue_learning, load_exact, newest_exact
from rlcore.types import StateDict
from tests.support.environments import Parts

SMALL: dict[str, Any] = {"net_arch": [8]}
FALLING = LinearSchedule(1e-2, 1e-4, 1.0)
FALLING_CLIP = LinearSchedule(0.3, 0.1, 1.0)


class Case(NamedTuple):
    """One run that is interrupted.

    :param total: timesteps of the whole run
    :param cut: the timestep at which it is interrupted, in the middle of a rollout
    :param settings: of the algorithm
    """

    algorithm: type[BaseAlgorithm]
    env_id: Any
    total: int
    cut: int
    settings: dict[str, Any]
    n_envs: int = 2
    policy: str = "MlpPolicy"
    subproc: bool = False
    normalize: bool = False
    wrapper: Callable[[Any], Any] = ResumableEnv
    monitored: bool = False
    log_interval: int = 1
    stacked: bool = False

    def envs(self) -> VecEnv:
        vec_env_cls = SubprocVecEnv if self.subproc else DummyVecEnv
        kwargs = {"start_method": "fork"} if self.subproc else {}
        env = make_vec_env(
            self.env_id, self.n_envs, wrapper_class=self.wrapper, vec_env_cls=vec_env_cls, vec_env_kwargs=kwargs
        )
        if self.monitored:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                env = VecMonitor(env)
        if self.stacked:
            env = VecFrameStack(env, 3)
        return VecNormalize(env) if self.normalize else env

    def model(self) -> BaseAlgorithm:
        make: Any = self.algorithm
        settings = {"policy_kwargs": SMALL, "seed": 7, "device": "cpu", **self.settings}
        if "make_action_noise" in settings:
            settings["action_noise"] = settings.pop("make_action_noise")()
        return make(self.policy, self.envs(), **{**settings, "policy_kwargs": dict(settings["policy_kwargs"])})  # type: ignore[no-any-return]


def _may_push(env: Any) -> Any:
    """Which of CartPole's two pushes are allowed: both, or one where the pole turns fast."""
    speed = env.unwrapped.state[3] if env.unwrapped.state is not None else 0.0
    return np.array([speed < 1.0, speed > -1.0])


def masked(env: gym.Env[Any, Any]) -> ResumableEnv:
    return ResumableEnv(ResumableActionMasker(env, _may_push))


class StatelessParts(Parts):
    """Declares that it keeps nothing."""

    def get_state(self) -> StateDict:
        return {}

    def set_state(self, state: StateDict) -> None:
        assert state == {}


def in_parts(env: gym.Env[Any, Any]) -> ResumableEnv:
    return ResumableEnv(StatelessParts(env))


def pickled(env: gym.Env[Any, Any]) -> ResumableEnv:
    return ResumableEnv(PickledEnv(env))


class Curious(PPO):
    """Trains a network of its own beside the policy, and keeps numbers of several kinds."""

    extra_state = ("predictor", "predictor_optimizer", "errors", "generator", "worst", "temperature")

    def __init__(self, *arguments: Any, width: int = 4, **settings: Any) -> None:
        self.width = width
        super().__init__(*arguments, **settings)

    def _setup_model(self) -> None:
        super()._setup_model()
        self.predictor = torch.nn.Linear(4, self.width)
        self.predictor_optimizer = torch.optim.Adam(self.predictor.parameters(), 1e-2)
        self.errors: list[float] = []
        self.generator = np.random.default_rng(3)
        self.worst: float | None = None
        self.temperature = torch.ones(())

    def train(self) -> None:
        seen = torch.as_tensor(self.rollout_buffer.observations.reshape(-1, 4))
        loss = self.predictor(seen).square().mean() * self.temperature
        self.predictor_optimizer.zero_grad()
        loss.backward()
        self.predictor_optimizer.step()
        self.errors.append(float(loss.detach()))
        self.worst = max(self.errors)
        self.temperature *= 0.9
        self.learning_rate = 1e-3 * (1 + self.generator.random() + len(self.errors) + self.worst)
        self._setup_lr_schedule()
        super().train()


class Frozen(PPO):
    """Trains a part of its policy alone."""

    def _setup_model(self) -> None:
        super()._setup_model()
        self.policy.mlp_extractor.policy_net.requires_grad_(False)


def no_noise_array(kind: Any, **settings: Any) -> Any:
    return kind(np.zeros(1), np.full(1, 0.3), **settings)


_ON = {"n_steps": 16, "learning_rate": FALLING}
_PPO = {**_ON, "batch_size": 8, "n_epochs": 2}
_OFF = {"buffer_size": 300, "learning_starts": 20, "batch_size": 8, "learning_rate": FALLING}
_VALUE = {
    **_OFF,
    "train_freq": 3,
    "target_update_interval": 14,
    "exploration_final_eps": 0.9,
    "exploration_fraction": 0.9,
}
_OU = partial(no_noise_array, OrnsteinUhlenbeckActionNoise, theta=0.5, initial_noise=np.full(1, 0.2))
_LSTM_POLICY = "MlpLstmPolicy"
_LSTM = {**SMALL, "lstm_hidden_size": 6}

CASES: dict[str, Case] = {
    "PPO": Case(
        PPO, "CartPole-v1", 256, 77, {**_PPO, "clip_range": LinearSchedule(0.3, 0.1, 1.0), "clip_range_vf": 0.5}
    ),
    "A2C": Case(A2C, "CartPole-v1", 230, 73, {**_ON, "n_steps": 5}),
    "TRPO": Case(TRPO, "CartPole-v1", 256, 77, {**_ON, "batch_size": 8, "n_critic_updates": 2}),
    "RecurrentPPO": Case(
        RecurrentPPO, "CartPole-v1", 192, 77, {**_PPO, "policy_kwargs": _LSTM}, policy="MlpLstmPolicy"
    ),
    "MaskablePPO": Case(MaskablePPO, "CartPole-v1", 256, 77, _PPO, wrapper=masked),
    "DQN": Case(DQN, "CartPole-v1", 260, 101, _VALUE),
    "QRDQN": Case(QRDQN, "CartPole-v1", 260, 101, {**_VALUE, "policy_kwargs": {**SMALL, "n_quantiles": 5}}),
    "SAC": Case(SAC, "Pendulum-v1", 460, 101, {**_OFF, "train_freq": 3}),
    "TD3": Case(TD3, "Pendulum-v1", 460, 101, {**_OFF, "train_freq": 3, "make_action_noise": _OU}),
    "TQC": Case(TQC, "Pendulum-v1", 460, 101, {**_OFF, "train_freq": 3, "policy_kwargs": {**SMALL, "n_quantiles": 5}}),
}
"""One for each algorithm, with DummyVecEnv."""

_SDE = {"use_sde": True, "sde_sample_freq": 4}
VARIANTS: dict[str, Case] = {
    "PPO in workers, normalised": CASES["PPO"]._replace(subproc=True, normalize=True, total=192),
    "TD3 in workers, normalised": CASES["TD3"]._replace(subproc=True, normalize=True),
    "DQN in workers": CASES["DQN"]._replace(subproc=True, n_envs=3),
    "PPO with gSDE": CASES["PPO"]._replace(env_id="Pendulum-v1", total=448, settings={**_PPO, **_SDE}, monitored=True),
    "SAC with gSDE": CASES["SAC"]._replace(settings={**_OFF, **_SDE, "train_freq": 3, "use_sde_at_warmup": True}),
    "RecurrentPPO, normalised": CASES["RecurrentPPO"]._replace(normalize=True, env_id="Pendulum-v1", total=448),
    "A2C with Adam": CASES["A2C"]._replace(settings={**_ON, "n_steps": 5, "use_rms_prop": False}),
    "TD3 by episodes": CASES["TD3"]._replace(
        n_envs=1,
        total=700,
        cut=501,
        settings={**_OFF, "train_freq": (1, "episode"), "gradient_steps": 10, "make_action_noise": _OU},
    ),
    "SAC with Gaussian noise, n-step returns": CASES["SAC"]._replace(
        settings={
            **_OFF,
            "n_steps": 3,
            "ent_coef": 0.1,
            "make_action_noise": partial(no_noise_array, NormalActionNoise),
        }
    ),
    "DQN, saving memory": CASES["DQN"]._replace(
        settings={
            **_VALUE,
            "optimize_memory_usage": True,
            "replay_buffer_kwargs": {"handle_timeout_termination": False},
        },
        normalize=True,
    ),
    "DQN, buffer filled": CASES["DQN"]._replace(settings={**_VALUE, "buffer_size": 70}),
    "PPO, frames stacked": CASES["PPO"]._replace(stacked=True, normalize=True),
    "a subclass with networks and numbers of its own": CASES["PPO"]._replace(
        algorithm=Curious, settings={**_PPO, "learning_rate": 1e-3, "width": 2}
    ),
    "a subclass that freezes": CASES["PPO"]._replace(algorithm=Frozen),
    "SAC with HER": CASES["SAC"]._replace(
        env_id=partial(BitFlippingEnv, 3, True),
        wrapper=pickled,
        policy="MultiInputPolicy",
        settings={
            **_OFF,
            "train_freq": 3,
            "replay_buffer_class": HerReplayBuffer,
            "buffer_size": 200,
            "replay_buffer_kwargs": {"goal_selection_strategy": GoalSelectionStrategy.EPISODE},
        },
    ),
    "SAC of a Dict": CASES["SAC"]._replace(policy="MultiInputPolicy", wrapper=in_parts),
}
"""Settings that change what has to be saved."""


class Rows(KVWriter):
    """Keeps the rows of a log, without clocks and without the count of iterations, which begins again."""

    clocks = ("time/fps", "time/time_elapsed", "time/iterations")

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0) -> None:
        values = {name: float(value) for name, value in key_values.items() if name not in self.clocks}
        excluded = [[name, *formats] for name, formats in sorted(key_excluded.items())]
        self.rows.append({"step": step, "excluded": excluded, **values})

    def close(self) -> None:
        pass


class RecordRows(BaseCallback):
    """Writes the log of a run into ``rows``, whichever logger ``learn()`` has made."""

    def __init__(self) -> None:
        super().__init__()
        self.writer = Rows()

    def _on_training_start(self) -> None:
        self.logger.output_formats.append(self.writer)

    def _on_step(self) -> bool:
        self.logger.record_mean("own/mean", self.num_timesteps, exclude="csv")
        return True


class StopAt(BaseCallback):
    """Ends a run in the middle of a rollout."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def _on_step(self) -> bool:
        return self.num_timesteps < self.step


def fingerprint(model: BaseAlgorithm) -> dict[str, str]:
    """Everything in which two models could differ, by name; computed without the code that saves."""
    found: dict[str, Any] = {}
    for name, state in model.get_parameters().items():
        found.update(_flat(name, state))
    _, variables = model._get_torch_save_params()
    found.update({name: getattr(model, name) for name in variables})
    buffer = getattr(model, "replay_buffer", None)
    if buffer is not None:
        found.update(
            _flat(
                "replay_buffer",
                {k: v for k, v in vars(buffer).items() if isinstance(v, np.ndarray | dict) and k != "infos"},
            )
        )
        found.update({"replay_buffer.pos": buffer.pos, "replay_buffer.full": buffer.full})
    for name in (
        *("num_timesteps", "_total_timesteps", "_episode_num", "_n_updates", "_current_progress_remaining", "seed"),
        *(
            "_n_calls",
            "exploration_rate",
            "_last_obs",
            "_last_original_obs",
            "_last_episode_starts",
            "ep_success_buffer",
        ),
    ):
        found.update(_flat(name, getattr(model, name, None)))
    episodes: Any = model.ep_info_buffer
    found["ep_info_buffer"] = [[float(each["r"]), int(each["l"])] for each in episodes]
    if hasattr(model, "_logger"):
        log = model.logger
        found["log"] = sorted((name, float(value)) for name, value in log.name_to_value.items())
        found["log.notes"] = sorted([*log.name_to_count.items(), *log.name_to_excluded.items()], key=str)
    states: Any = getattr(model, "_last_lstm_states", None)
    found.update(_flat("_last_lstm_states", [] if states is None else [*states.pi, *states.vf]))
    noises = getattr(model.action_noise, "noises", [model.action_noise])
    found["noise"] = [getattr(noise, "noise_prev", None) for noise in noises]
    found["python"], found["numpy"] = random.random(), float(np.random.rand())
    found["torch"], found["action_space"] = torch.rand(3), model.action_space.sample()
    found.update(_next_steps(model))
    return {name: _digest(value) for name, value in found.items()}


def _next_steps(model: BaseAlgorithm) -> dict[str, Any]:
    """What the environments would return next: their state, and that of every wrapper around them."""
    env = model.get_env()
    assert env is not None
    steps = [env.step(np.stack([model.action_space.sample() for _ in range(env.num_envs)])) for _ in range(40)]
    found: dict[str, Any] = {}
    for position, name in enumerate(("observations", "rewards", "dones")):
        found[f"env.{name}"] = [step[position] for step in steps]
    ended = [info["episode"] for step in steps for info in step[3] if "episode" in info]
    found["env.episodes"] = [[float(each["r"]), int(each["l"])] for each in ended]
    found["env.reset"] = env.reset()
    return found


def _flat(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {key: part for k, v in value.items() for key, part in _flat(f"{name}.{k}", v).items()}
    return {name: value}


def _digest(value: Any) -> str:
    content = hashlib.sha256()
    _feed(content, value)
    return content.hexdigest()[:16]


def _feed(content: Any, value: Any) -> None:
    if isinstance(value, list | tuple) or type(value).__name__ == "deque":
        for each in value:
            _feed(content, each)
    elif isinstance(value, dict):
        for key, each in value.items():
            content.update(str(key).encode())
            _feed(content, each)
    elif value is None or isinstance(value, str):
        content.update(repr(value).encode())
    else:
        array = np.asarray(value.detach().cpu() if isinstance(value, torch.Tensor) else value)
        content.update(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())


def differences(left: dict[str, str], right: dict[str, str]) -> list[str]:
    return sorted(name for name in {*left, *right} if left.get(name) != right.get(name))


def whole(case: Case) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Run without interruption; the fingerprint at the end, and the rows of the log."""
    model, record = case.model(), RecordRows()
    model.learn(case.total, callback=record, log_interval=case.log_interval)
    return finished(model), record.writer.rows


def finished(model: BaseAlgorithm) -> dict[str, str]:
    found = fingerprint(model)
    env = model.get_env()
    assert env is not None
    env.close()
    return found


def interrupted(case: Case, folder: Path, every: int = 31) -> tuple[Path, list[dict[str, Any]]]:
    """Run until the cut, saving on the way; the newest file, and the rows of the log until it."""
    model, record = case.model(), RecordRows()
    callbacks = [SaveExactly(folder, every=every, keep=2), StopAt(case.cut), record]
    model.learn(case.total, callback=callbacks, log_interval=case.log_interval)
    env, file = model.get_env(), newest_exact(folder)
    assert env is not None
    env.close()
    assert file is not None
    step = int(file.stem.rpartition("_")[2])
    assert step < model.num_timesteps
    return file, [row for row in record.writer.rows if row["step"] <= step]


def continued(case: Case, file: Path) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Continue from a file to the end of the run; the fingerprint there, and the rows of the log from the file on."""
    record = RecordRows()
    model = continue_learning(
        load_exact(file, case.envs(), algorithm=case.algorithm), record, log_interval=case.log_interval
    )
    return finished(model), record.writer.rows


def main(output: str, *words: str) -> None:
    """Continue the run of each case and write what :func:`continued` returns, by the name of the case."""
    runs = zip(words[::2], words[1::2], strict=True)
    Path(output).write_text(json.dumps({name: continued(CASES[name], Path(file)) for name, file in runs}))


if __name__ == "__main__":
    main(*sys.argv[1:])
