"""A sound model file costs `load_parameters_safely` no more than a few MiB above its size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LOAD = """
import resource, sys
from pathlib import Path
from stable_baselines3 import PPO
from rlverify.scan import load_parameters_safely

def model(width):
    settings = {"net_arch": [width, width], "ortho_init": False}
    return PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, n_epochs=1, device="cpu", policy_kwargs=settings)

for width, name in ((4, "small.zip"), (2000, "large.zip")):
    model(width).learn(8).save(name)
load_parameters_safely("small.zip", model(4))  # what is imported late is no cost of the file
restored = model(2000)
used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
allowed = Path("large.zip").stat().st_size + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_DATA, (used + allowed, resource.RLIM_INFINITY))
print(load_parameters_safely("large.zip", restored).restored[:2])
"""
MEMORY = 2**25


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, memory is not limited")
def test_a_sound_file_is_restored_with_little_more_memory_than_its_size(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOAD, str(MEMORY)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("('policy', 'policy.optimizer')\n", 0), done.stderr
