"""How the loops of the optimizers are compiled, and kept for the next process."""

from __future__ import annotations

import importlib.util
import math
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


def without_file() -> Any:
    names: dict[str, Any] = {}
    exec(CODE, names)  # noqa: S102
    return names["quotient"]


def test_a_compiled_function_is_kept_on_disk_for_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    first, second = (compiled(SIGNATURE)(from_file(tmp_path / "quotients.py")) for _ in range(2))
    assert first(1.0, 4.0) == second(1.0, 4.0) == 0.25
    assert sum(second.stats.cache_hits.values()) == 1


@pytest.mark.parametrize("has_file", [True, False])
def test_a_compiled_function_has_one_signature_and_divides_as_ieee_754(
    has_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    if has_file:
        quotient = compiled(SIGNATURE)(from_file(tmp_path / "quotients.py"))
    else:
        with pytest.warns(UserWarning, match="cannot be kept on disk .*NUMBA_CACHE_DIR"):
            quotient = compiled(SIGNATURE)(without_file())
    assert [quotient(sign, 0.0) for sign in (1.0, -1.0)] == [math.inf, -math.inf]
    assert math.isnan(quotient(0.0, 0.0))
    assert quotient(1, 2) == 0.5
    assert len(quotient.signatures) == 1
