"""What a hostile file costs, in a process with limits: 256 MiB above its size, and 20 s, as machines may be slow."""

from __future__ import annotations

import io
import json
import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import xxhash
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from rlcore import ResumableEnv
from rlcore.checkpoint.container import MARK, load_container, save_container
from rlcore.resume import save_exact
from tests.support.training import make_model

CHILD = """
import json, resource, sys, warnings
warnings.simplefilter("ignore")
from stable_baselines3.common.env_util import make_vec_env
from rlcore import DistributionalPPO, ResumableEnv, load_checkpoint, load_policy
from rlcore.resume import load_exact
env = make_vec_env("CartPole-v1", 1, wrapper_class=ResumableEnv)
reads = {"load": lambda path: DistributionalPPO.load(path, device="cpu"), "load_policy": load_policy,
         "load_checkpoint": load_checkpoint, "load_exact": lambda path: load_exact(path, env)}
healthy, memory, seconds, *runs = sys.argv[1:]
for warm in ("load", "load_policy"):
    reads[warm](healthy)  # what is imported late is no cost of the file
for read, path, size in zip(runs[::3], runs[1::3], runs[2::3]):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + int(memory) + int(size), resource.RLIM_INFINITY))
    spent = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2])) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (spent + int(seconds), resource.RLIM_INFINITY))
    try:
        reads[read](path)
        said = "loaded"
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    print(json.dumps(said), flush=True)
"""
MEMORY, SECONDS = 2**28, 20
LARGE = 4500


def changed(change: Callable[[dict[str, Any]], object], healthy: Path, path: Path) -> None:
    content: Any = load_container(healthy)
    change(content)
    save_container(path, content)


def network(**policy_kwargs: Any) -> Callable[[Path, Path], None]:
    return partial(changed, lambda content: content["settings"]["policy_kwargs"].update(policy_kwargs))


def empty_lists(mebibytes: int) -> Callable[[Path, Path], None]:
    def write(_: Path, path: Path) -> None:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            pickled = b"\x80\x02}(X\x01\x00\x00\x00x](" + b"]" * (mebibytes * 2**20 - 64) + b"eu."
            archive.writestr("archive/data.pkl", pickled)
            archive.writestr("archive/version", b"3\n")
        content = file.getvalue()[:-2] + struct.pack("<H", len(MARK) + 32) + MARK
        path.write_bytes(content + xxhash.xxh3_128(content).hexdigest().encode())

    return write


def large_layers(_: Path, path: Path) -> None:
    """Fitting weights, which are refused for what comes last; to make them orthogonal would take memory and time."""
    network = {"net_arch": {"pi": [LARGE, LARGE], "vf": [2]}, "ortho_init": False}
    make_model(policy_kwargs=network).save(path)
    changed(wrong_at_its_end, path, path)


def large_layers_of_ppo(_: Path, path: Path) -> None:
    env = make_vec_env("CartPole-v1", 1, wrapper_class=ResumableEnv)
    network = {"net_arch": {"pi": [LARGE, LARGE], "vf": [2]}, "ortho_init": False}
    save_exact(PPO("MlpPolicy", env, n_steps=8, batch_size=8, policy_kwargs=network, device="cpu"), path)
    changed(wrong_at_its_end, path, path)


def wrong_at_its_end(content: dict[str, Any]) -> None:
    content["settings"]["policy_kwargs"]["ortho_init"] = True
    content["state"]["progress_state" if "progress_state" in content["state"] else "progress"]["num_timesteps"] = -1


ATOMS = {"value_distribution": "categorical", "num_atoms": 10**9, "v_min": 0.0, "v_max": 1.0, "return_scale": None}
ATOMS["n_quantiles"] = 32  # the default, so that nothing contradicts
TEXTS = ["x" * 2**21, *[""] * 150]
"""An array of them takes 8 MiB for each."""
WIDE = {"__kind__": "MultiBinary", "n": 10**10}


def settings(**values: Any) -> Callable[[Path, Path], None]:
    return partial(changed, lambda content: content["settings"].update(values))


def fields(**values: Any) -> Callable[[Path, Path], None]:
    return partial(changed, lambda content: content.update(values))


def many_lstms(healthy: Path, path: Path) -> None:
    fields(n_envs=10**6)(healthy, path)
    network(n_lstm_layers=4)(path, path)


NETWORKS: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "a wide LSTM": (network(lstm_hidden_size=12000), r"must be a tensor of torch.float32 with shape \(8, 12000\)"),
    "wide layers": (network(net_arch=[20000, 20000]), "policy does not fit: missing"),
    "a deep LSTM": (network(n_lstm_layers=20000), "20000 layers that policy_kwargs ask for"),
    "many layers": (network(net_arch=[1] * 20000), "20000 layers that policy_kwargs ask for"),
    "many layers of the actor": (network(net_arch={"pi": [1] * 20000}), "20000 layers that policy_kwargs ask for"),
    "many quantiles": (settings(n_quantiles=10**9), r"must be a tensor of torch.float32 with shape \(10+, 8\)"),
    "many atoms": (settings(**ATOMS), "policy does not fit"),
    "many observations": (fields(observation_space=WIDE), r"must be a tensor of torch.float32 with shape \(32, 10+\)"),
}
RECIPES: dict[str, tuple[str, Callable[[Path, Path], None], str]] = {
    **{f"{name}, load": ("load", *recipe) for name, recipe in NETWORKS.items()},
    **{f"{name}, load_policy": ("load_policy", *recipe) for name, recipe in NETWORKS.items()},
    "texts in the window": (
        "load",
        partial(changed, lambda content: content["state"]["progress_state"].update(ep_success_buffer=TEXTS)),
        "ep_success_buffer.* must be None or a list of episodes with numbers",
    ),
    "texts as an option": ("load", settings(optimizer_kwargs={"eps": TEXTS}), "optimizer_kwargs"),
    "large layers and a wrong count": ("load", large_layers, "num_timesteps.* must be an integer from 0"),
    "large layers of PPO and a wrong count": ("load_exact", large_layers_of_ppo, "num_timesteps.* must be an integer"),
    "many environments": ("load", fields(n_envs=10**7), "n_envs=10000000 asks for 1220 MiB of LSTM states"),
    "many environments and layers": ("load", many_lstms, "n_envs=1000000 asks for 488 MiB of LSTM states"),
    "2 MiB of empty lists": ("load_checkpoint", empty_lists(2), "more than 524288 instructions"),
    "8 MiB of empty lists": ("load_checkpoint", empty_lists(8), "more than 524288 instructions"),
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What reading each file gives in a process that may take so much memory and time for it, and no more."""
    folder = tmp_path_factory.mktemp("files")
    healthy, runs = folder / "healthy.zip", ["load", str(folder / "healthy.zip"), "0"]
    model = make_model()
    model.learn(48)
    model.save(healthy)
    for number, (read, write, _) in enumerate(RECIPES.values()):
        path = folder / f"hostile{number}.zip"
        write(healthy, path)
        runs += [read, str(path), str(path.stat().st_size)]
    run = [sys.executable, "-c", CHILD, str(healthy), str(MEMORY), str(SECONDS), *runs]
    child = subprocess.run(run, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in child.stdout.splitlines()]
    return dict(zip(["healthy", *RECIPES], lines, strict=False))


def test_a_healthy_file_is_read_within_the_limits(said: dict[str, str]) -> None:
    assert said["healthy"] == "loaded"


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_hostile_file_is_refused_within_the_limits(recipe: str, said: dict[str, str]) -> None:
    assert recipe in said, "the process ended at this file, or at one before"
    assert re.match(f"CheckpointError: .*{RECIPES[recipe][2]}", said[recipe], re.DOTALL), said[recipe]
    assert "memory" not in said[recipe].lower(), "the limit stopped it, not a check"
