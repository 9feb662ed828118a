"""``python -m rlcore.train --resume``: only what the file still says goes on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlcore import DistributionalPPO
from rlcore.run.train import app

RUN = """
environment: {id: CartPole-v1, n_envs: 2, normalize: true}
algorithm: {n_steps: 16, batch_size: 32, n_epochs: 1, policy_kwargs: {lstm_hidden_size: 8, net_arch: [8]}}
total_timesteps: 64
seed: 0
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of RUN, after half of what the tests ask for."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "run.yaml").write_text(RUN.replace("64", "32"))
    done = CliRunner().invoke(app, [str(folder / "run.yaml"), "--output", str(folder / "m.zip"), "--device", "cpu"])
    assert done.exit_code == 0, done.stderr
    return folder / "m.zip"


def resumed(text: str, trained: Path, tmp_path: Path) -> Any:
    (tmp_path / "run.yaml").write_text(text)
    shutil.copy(trained, tmp_path / "m.zip")
    options = ["--output", str(tmp_path / "m.zip"), "--device", "cpu", "--resume"]
    return CliRunner().invoke(app, [str(tmp_path / "run.yaml"), *options])


CHANGES = {
    "n_envs": ("n_envs: 2", "n_envs: 4", "n_envs=4 is asked for, and what is to go on was trained with 2"),
    "normalize": (
        "normalize: true",
        "normalize: false",
        "environment.normalize=False is asked for, and what is to go on was trained with True",
    ),
    "a setting": ("n_epochs: 1", "n_epochs: 2", "n_epochs=2 is asked for, and what is to go on was trained with 1"),
    "a schedule": (
        "n_epochs: 1",
        "n_epochs: 1, clip_range: 0.1",
        "was trained with FloatSchedule(ConstantSchedule(val=0.2))",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_was_trained_otherwise_does_not_go_on(case: str, trained: Path, tmp_path: Path) -> None:
    old, new, words = CHANGES[case]
    done = resumed(RUN.replace(old, new), trained, tmp_path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
    assert (tmp_path / "m.zip").read_bytes() == trained.read_bytes()


@pytest.mark.parametrize("total", ["32", "10"])
def test_a_total_that_is_reached_already_trains_nothing(total: str, trained: Path, tmp_path: Path) -> None:
    done = resumed(RUN.replace("64", total), trained, tmp_path)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"{tmp_path / 'm.zip'} has trained its 32 steps already; nothing was trained\n"
    assert (tmp_path / "m.zip").read_bytes() == trained.read_bytes()


def test_what_shows_how_it_is_doing_is_as_the_file_says_now(trained: Path, tmp_path: Path) -> None:
    text = RUN.replace("n_epochs: 1", f"n_epochs: 1, tensorboard_log: {tmp_path / 'log'}")
    done = resumed(text, trained, tmp_path)
    assert (done.exit_code, done.stderr) == (0, "")
    assert (tmp_path / "log").is_dir()
    assert DistributionalPPO.load(tmp_path / "m.zip", device="cpu").tensorboard_log == str(tmp_path / "log")
