"""The example of a PPO in plain PyTorch resumes exactly, and the checks detect what its save() could forget."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.in_process import rlverify_here
from tests.support.repository_copy import ROOT

EXAMPLE = ROOT / "examples" / "plain_ppo"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the example, to be changed."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "example", ignore=shutil.ignore_patterns("__pycache__")))


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def record_of(folder: Path, check: str) -> dict[str, Any]:
    done = rlverify_here("check", "test_ppo.py:SUBJECT", "--check", check, "--json", "-", cwd=folder)
    (subject,) = json.loads(done.stdout)["subjects"]
    (found,) = [each for each in subject["checks"] if each["check"] == check]
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
def test_every_check_of_the_example_passes(folder: Path) -> None:
    done = python(folder, "pytest", "-q", "-rA", "-p", "no:cacheprovider", "test_ppo.py")
    assert done.returncode == 0, done.stdout
    assert "PASSED test_ppo.py::test_training[plain-ppo-resume_is_exact]" in done.stdout


def test_resuming_the_example_is_exact_and_proven(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")  # as on systems without it: faster
    record = record_of(folder, "resume_is_exact")
    assert record["status"] == "pass", record
    assert not record["unproven"]
    assert len([each for each in record["proofs"] if each["detected"]]) >= 4


FORGOTTEN = {
    'self.generator.set_state(state["generator"])': "generator",
    'self.optimizer.load_state_dict(state["optimizer"])': "optimizer",
    "env.state = np.array(saved": "envs[0].state",
    "env.np_random.bit_generator.state = saved": "envs[0]._np_random",
    "self.observations = list(": "observations[0]",
    "self.agent.load_state_dict": "agent.policy.0.weight",
}


@pytest.mark.slow
@pytest.mark.parametrize("line", FORGOTTEN)
def test_a_line_less_in_load_is_detected(line: str, folder: Path) -> None:
    code = (folder / "ppo.py").read_text(encoding="utf-8")
    (found,) = [each for each in code.splitlines() if each.strip().startswith(line)]
    indent = found[: len(found) - len(found.lstrip())]
    (folder / "ppo.py").write_text(code.replace(found, f"{indent}pass"), encoding="utf-8")
    record = record_of(folder, "resume_is_exact")
    assert record["status"] == "fail", record
    assert FORGOTTEN[line].partition("[")[0].partition(".")[0] in record["why"], record["why"]


@pytest.mark.slow
def test_the_example_learns(folder: Path) -> None:
    """Episodes of CartPole last longer after training; a random policy holds for about 20 steps."""
    code = (
        "import torch\nfrom ppo import PPO, Settings\n"
        "model = PPO(settings=Settings(n_envs=4, n_steps=128, minibatches=4, learning_rate=1e-3))\n"
        "model.learn(25_000)\nrollouts = [model.collect() for _ in range(8)]\n"
        "dones = sum(float(each.dones.sum()) for each in rollouts)\n"
        "print(8 * 4 * 128 / max(dones, 1.0))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert float(done.stdout) > 100
