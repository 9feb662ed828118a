"""Processor time of all checks with their proofs, on one core, for models with the settings of their library."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any, Final

from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

from benchmarks.side_by_side import table
from rlverify.checks import check_algorithm


def ppo(**settings: Any) -> PPO:
    return PPO("MlpPolicy", "CartPole-v1", seed=0, device="cpu", **settings)


def sac(**settings: Any) -> SAC:
    return SAC("MlpPolicy", "Pendulum-v1", seed=0, device="cpu", **settings)


def in_many(kind: type[VecEnv], count: int) -> PPO:
    return PPO("MlpPolicy", make_vec_env("CartPole-v1", count, seed=0, vec_env_cls=kind), seed=0, device="cpu")


def trained() -> None:
    """What `--as-is` is measured by: two pieces of training of the model itself."""
    model = ppo()
    for _ in range(2):
        model.learn(2048, reset_num_timesteps=False)


TRAININGS: Final = "as it is"
CASES: Final[dict[str, tuple[Callable[[], Any], dict[str, Any], str]]] = {
    "PPO": (ppo, {}, "12 s"),
    "PPO, n_steps=8192": (lambda: ppo(n_steps=8192), {}, "as PPO"),
    "PPO, 16 environments": (lambda: in_many(DummyVecEnv, 16), {}, "as 2 environments"),
    "PPO, DummyVecEnv(2)": (lambda: in_many(DummyVecEnv, 2), {}, "-"),
    "PPO, SubprocVecEnv(2)": (lambda: in_many(SubprocVecEnv, 2), {}, "3 times DummyVecEnv(2)"),
    "SAC": (sac, {}, "20 s"),
    f"PPO, {TRAININGS}": (ppo, {"as_is": True}, "12 trainings"),
}


def processor_seconds(action: Callable[[], object]) -> float:
    """Of this process and of all that it starts."""
    before = _used()
    action()
    return _used() - before


def _used() -> float:
    return sum(sum(getrusage(whose)[:2]) for whose in (RUSAGE_SELF, RUSAGE_CHILDREN))


def bench_checks(benchmark: Any) -> None:
    rows: list[list[str]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trained()  # what is imported first counts for none
        training = processor_seconds(trained)
        for name, (factory, settings, target) in CASES.items():
            seconds = processor_seconds(lambda: check_algorithm(factory, **settings))  # noqa: B023
            trainings = f"{seconds / training:.1f}" if TRAININGS in name else "-"
            rows.append([name, f"{seconds:.1f}", trainings, target])
    benchmark.pedantic(lambda: None)
    table(benchmark, ["model", "processor seconds", "trainings of its own length", "target at most"], rows)
