"""The blocks of the migration guide run, one after the other, as the guide says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "reports" / "fix-summary.md"


def test_every_block_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    section = GUIDE.read_text(encoding="utf-8").partition("## Migration guide")[2].partition("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 4
    namespace: dict[str, object] = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, GUIDE.name, "exec"), namespace)  # noqa: S102
    assert namespace["checkpoint_format"] == "v1_policy_only"
    assert len(list((tmp_path / "population").glob("*"))) > 0
