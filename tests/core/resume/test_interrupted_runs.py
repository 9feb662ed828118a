"""An interrupted run ends with the bits of an uninterrupted one: all ten algorithms, continued in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlcore.resume import load_exact, save_exact
from rlcore.resume.file import ALGORITHMS
from tests.support.exact_runs import (
    CASES,
    VARIANTS,
    Case,
    RecordRows,
    continued,
    differences,
    finished,
    interrupted,
    whole,
)


def test_there_is_a_run_of_every_algorithm() -> None:
    assert {case.algorithm for case in CASES.values()} == set(ALGORITHMS.values())


def test_interrupted_runs_end_in_a_fresh_process_with_the_bits_of_whole_ones(tmp_path: Path) -> None:
    """One process for all, as starting one takes longer than a run."""
    before = {name: interrupted(case, tmp_path / name) for name, case in CASES.items()}
    files = [word for name, (file, _) in before.items() for word in (name, str(file))]

    subprocess.run([sys.executable, "-m", "tests.support.exact_runs", tmp_path / "out", *files], check=True)

    after: dict[str, Any] = json.loads((tmp_path / "out").read_text())
    for name, case in CASES.items():
        expected, expected_rows = whole(case)
        found, later_rows = after[name]
        assert (name, differences(expected, found)) == (name, [])
        assert before[name][1] + later_rows == expected_rows != []
        assert later_rows != []


@pytest.mark.parametrize("case", VARIANTS.values(), ids=VARIANTS)
def test_settings_that_change_what_is_saved_continue_exactly(case: Case, tmp_path: Path) -> None:
    expected, expected_rows = whole(case)
    file, rows = interrupted(case, tmp_path)

    found, later_rows = continued(case, file)

    assert differences(expected, found) == []
    assert rows + later_rows == expected_rows != []


@pytest.mark.parametrize("case", [*CASES.values(), *VARIANTS.values()], ids=[*CASES, *VARIANTS])
def test_a_loaded_model_is_the_saved_one(case: Case, tmp_path: Path) -> None:
    model = case.model()
    model.learn(90, callback=RecordRows(), log_interval=case.log_interval)
    save_exact(model, tmp_path / "file.zip")
    expected = finished(model)

    assert (
        differences(expected, finished(load_exact(tmp_path / "file.zip", case.envs(), algorithm=case.algorithm))) == []
    )


@pytest.mark.slow
@pytest.mark.parametrize("cut", [64, 129])
@pytest.mark.parametrize("name", CASES)
def test_it_does_not_matter_where_a_run_is_interrupted(name: str, cut: int, tmp_path: Path) -> None:
    case = CASES[name]._replace(cut=cut, total=250)
    expected, expected_rows = whole(case)
    file, rows = interrupted(case, tmp_path, every=1)

    found, later_rows = continued(case, file)

    assert differences(expected, found) == []
    assert rows + later_rows == expected_rows
