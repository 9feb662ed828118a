"""The commands where fork, fcntl and POSIX signals are absent, as on Windows; no real Windows was tried."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository_copy import ROOT

MODEL = """from stable_baselines3 import PPO


def make():
    return PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, n_epochs=1, seed=0)
"""


def run(folder: Path, *words: str) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "cp1252:replace"}
    command = [sys.executable, "-m", "tests.engine.without_posix", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_project_is_begun_measured_and_gated(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "p"\nversion = "0"\n')
    for words, said in {
        "init": "rlverify audit --update",
        "audit --update": "1 of 1 claims as expected",
        "matrix --update": "killed 1 of 1 faults",
        "gate": "1 of 1 claims as expected; nothing to report",
        "reproduce EXAMPLE-1": "verdict: CONFIRMED",
        "scan .": "nothing found",
    }.items():
        code, output = run(tmp_path, *words.split())
        assert (words, code, said in output) == (words, 0, True), output


@pytest.mark.slow
def test_an_algorithm_is_checked(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    code, output = run(tmp_path, "check", "model.py:make", "--check", "deterministic", "--check", "settings_survive")
    assert code == 0, output
    assert "2 passed" in output
