"""``python -m rlcore.pbt``: what it shows, how it fails, how it is interrupted and goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import pytest

from rlcore.pbt.__main__ import parsed_range, run
from rlcore.pbt.population import read_lineage
from tests.support.environments import Custom

INTERRUPTING = "Interrupting-v0"


class Interrupting(Custom):
    """Presses Ctrl-C at one step, counted over all environments."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}
    left: ClassVar[int] = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        Interrupting.left -= 1
        if Interrupting.left == 0:
            raise KeyboardInterrupt
        return super().step(action)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    gym.register(INTERRUPTING, entry_point=Interrupting, disable_env_checker=True)
    yield
    del gym.registry[INTERRUPTING]


def bars(shown: str) -> list[tuple[str, str, str, str]]:
    """Of each member its name, the updates of all that it has made, its score and its exploits."""
    return re.findall(r"^(member \d) .* (\d+/\d+) return (\S+), exploits (\d+)", shown, re.MULTILINE)


def test_an_interrupted_command_says_how_to_go_on_and_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "population"
    given = ["--env", INTERRUPTING, "--population", "2", "--updates", "1", "--n-envs", "1", "--interval", "11"]
    command = [*given, "--seed", "3", "--folder", str(folder), "--hyperparam", "learning_rate=1e-4:1e-3:log"]
    command += ["--hyperparam", "sigma=1e-4:1e-3"]
    Interrupting.left = 200
    assert run(command) == 130
    said = capsys.readouterr()
    assert said.out == ""
    assert "interrupted: every finished turn is kept" in said.err
    interrupted = bars(said.err)
    assert [bar[:2] for bar in interrupted] == [("member 0", "1/1"), ("member 1", "0/1")]
    assert [path.name for path in (folder / "members").iterdir()] == ["member_0_step_1.zip"]
    assert run(command) == 0
    shown = capsys.readouterr()
    assert "learning_rate" in shown.out
    assert f"best model: {folder}" in shown.out
    finished = bars(shown.err)
    assert [bar[:2] for bar in finished] == [("member 0", "1/1"), ("member 1", "1/1")]
    assert finished[0] == interrupted[0]
    assert all(float(score) > 1.0 and exploits == "0" for _, _, score, exploits in finished)
    assert [event.event for event in read_lineage(folder / "lineage.jsonl")] == ["start", "start"]
    assert json.loads((folder / "lineage.jsonl").read_text().splitlines()[0])["hyperparams"].keys() == {
        "learning_rate",
        "sigma",
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"--env": "CartPole-v9"}, "CartPole"),
        ({"--population": "1"}, "population_size=1"),
        ({"--hyperparam": "lerning_rate=0.1:0.2"}, "did you mean 'learning_rate'"),
        ({"--hyperparam": "gamma=0.9"}, "is no range"),
        ({"--env": "nowhere:X-v0"}, "nowhere"),
        ({"--folder": "/dev/null/x"}, "Not a directory"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(
    changes: dict[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"--env": "CartPole-v1", "--folder": str(tmp_path / "new"), "--population": "2", **changes}
    assert run([part for option in options.items() for part in option]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = [line for line in said.err.splitlines() if not line.startswith("member ")]
    assert line.startswith("error: ")
    assert message in line
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("text", "low", "high", "log"),
    [("gamma=0.9:0.99", 0.9, 0.99, False), ("lr=1e-5:1e-2:log", 1e-5, 1e-2, True), ("n_epochs=1:9", 1, 9, False)],
)
def test_a_range_is_read_as_it_is_written(text: str, low: float, high: float, log: bool) -> None:
    parsed = parsed_range(text)
    assert parsed.name == text.partition("=")[0]
    assert (parsed.min_value, parsed.max_value, parsed.is_log_scale) == (low, high, log)
    assert type(parsed.min_value) is type(low)
