"""How the loops of the optimizers are compiled, and kept for the next process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import pytest

from rlcore.optim.compiled import compiled

CODE = "def quotient(x, y):\n    return x / y\n"
SIGNATURE = "float64(float64, float64)"


def from_file(path: Path) -> Any:
    path.write_text(CODE)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.quotient


def test_a_compiled_function_is_kept_on_disk_for_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    first, second = (compiled(SIGNATURE)(from_file(tmp_path / "quotients.py")) for _ in range(2))
    assert first(1.0, 4.0) == second(1.0, 4.0) == 0.25
    assert sum(second.stats.cache_hits.values()) == 1


@pytest.mark.parametrize("step", ["optimizer.step()", "scaler.scale_gradients()"])
def test_numba_is_imported_by_the_first_step(step: str) -> None:
    code = f"""
import sys, torch, rlcore, rlcore.train
parameter = torch.nn.Parameter(torch.ones(3))
optimizer = rlcore.AdaptiveUPGD([parameter])
optimizer.load_state_dict(optimizer.state_dict())
scaler = rlcore.VarianceGradientScaler([parameter], estimator="element")
scaler.load_state_dict(scaler.state_dict())
parameter.grad = torch.ones(3)
assert "numba" not in sys.modules
{step}
assert "numba" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_compiles_where_numba_is_told_not_to() -> None:
    code = (
        "import torch\n"
        "from rlcore.optim import AdaptiveUPGD\n"
        "parameter = torch.nn.Parameter(torch.ones(3))\n"
        "parameter.grad = torch.ones(3)\n"
        "AdaptiveUPGD([parameter], lr=0.1).step()\n"
        "assert parameter.max() < 1\n"
        "from rlcore.optim import upgd_kernel\n"
        "assert not hasattr(upgd_kernel._change, 'signatures')\n"
    )
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, env=environment)
