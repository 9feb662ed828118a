"""``python -m rlcore.pbt``: what it shows, how it fails, how it is interrupted and goes on, and what it watches."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from rich.console import Console

from rlcore import LineageEvent, Population, ancestors, read_lineage
from rlcore.checkpoint.container import locked
from rlcore.pbt.__main__ import model_maker, parsed_range, run, watch
from rlcore.pbt.population import LINEAGE_FILE, STATE_FILE, append_lineage
from tests.support.environments import Custom
from tests.support.population_run import build

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


def bars(shown: str) -> list[tuple[str, str, str, str]]:
    """Of each member its name, the updates of all that it has made, its score and its exploits."""
    return re.findall(r"^(member \d) .* (\d+/\d+) return (\S+), exploits (\d+)", shown, re.MULTILINE)


def test_an_interrupted_command_says_how_to_go_on_and_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = EnvSpec(INTERRUPTING, entry_point=Interrupting, disable_env_checker=True)
    monkeypatch.setitem(gym.registry, INTERRUPTING, spec)
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
    assert "members copy after every 11 updates" in shown.out
    finished = bars(shown.err)
    assert [bar[:2] for bar in finished] == [("member 0", "1/1"), ("member 1", "1/1")]
    assert finished[0] == interrupted[0]
    assert all(float(score) > 1.0 and exploits == "0" for _, _, score, exploits in finished)
    events = read_lineage(folder / "lineage.jsonl")
    assert [(event.event, set(event.hyperparams)) for event in events] == [("start", {"learning_rate", "sigma"})] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"--env": "CartPole-v9"}, "CartPole"),
        ({"--population": "1"}, "population_size"),
        ({"--hyperparam": "lerning_rate=0.1:0.2"}, "did you mean 'learning_rate'"),
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
    ("given", "words"),
    [(["--folder", "f"], "give --env and --folder, or --watch"), (["--hyperparam", "gamma=0.9"], "is no range")],
)
def test_options_that_cannot_be_read_say_so(given: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(given)
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "low", "high", "log"),
    [("gamma=0.9:0.99", 0.9, 0.99, False), ("lr=1e-5:1e-2:log", 1e-5, 1e-2, True), ("n_epochs=1:9", 1, 9, False)],
)
def test_a_range_is_read_as_it_is_written(text: str, low: float, high: float, log: bool) -> None:
    parsed = parsed_range(text)
    name = text.partition("=")[0]
    assert parsed == {"name": name, "min_value": low, "max_value": high, "is_log_scale": log}
    assert type(parsed["min_value"]) is type(low)


@pytest.mark.parametrize("normalize", [True, False])
def test_members_normalize_if_asked_to(normalize: bool) -> None:
    model = model_maker("CartPole-v1", 1, normalize=normalize)({}, 0)
    assert (model.get_vec_normalize_env() is not None) == normalize


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Population:
    """A population of three members that has copied and explored; its folder is read-only for tests."""
    population = build(tmp_path_factory.mktemp("trained") / "population")
    population.train(4)
    return population


def text_of(folder: Path, **options: Any) -> str:
    """What is shown, by default once and without a terminal."""
    given = {"once": True, **options}
    console = Console(file=io.StringIO(), width=200, height=60, force_terminal=not given["once"], color_system=None)
    watch(folder, console=console, **given)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def rows_of(text: str) -> dict[int, list[str]]:
    """The words of the members' lines, by member."""
    lines = [line.split() for line in text.splitlines() if re.match(r" +\d+ +\d+ ", line)]
    return {int(words[1]): words for words in lines}


def test_it_shows_all_that_state_and_lineage_say_and_needs_no_other_file(trained: Population, tmp_path: Path) -> None:
    folder = tmp_path / "moved"
    folder.mkdir()
    for name in (STATE_FILE, LINEAGE_FILE):
        shutil.copy(trained.folder / name, folder)
    lineage = folder / LINEAGE_FILE
    events = read_lineage(folder)
    # A process that was killed leaves an event that is not committed.
    append_lineage(lineage, lineage.stat().st_size, [LineageEvent("exploit", 0, 99, 1, {}, {}, 2, 99)])
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with locked(folder / "lock"):
        text = text_of(folder)
    assert {path: path.read_bytes() for path in folder.iterdir() if path.name != "lock"} == before
    rows, ranked = rows_of(text), trained.scheduler.ranked()
    assert list(rows) == [each.member_id for each in ranked]
    assert any(member.exploits for member in ranked)
    for rank, member in enumerate(ranked, start=1):
        expected = [str(rank), str(member.member_id), f"{member.performance:.3g}", "4"]
        expected += [f"{value:.3g}" for value in member.hyperparams.values()]
        sources = " <- ".join(str(source) for source, _ in ancestors(events, member.member_id)) or "-"
        assert rows[member.member_id] == [*expected, str(member.exploits), *sources.split()]
    assert f"population in {folder}\n" in text
    assert "the largest is best; members copy after every 1 updates, next after update 4" in text


@pytest.mark.parametrize("is_damaged", [False, True])
def test_it_shows_again_what_has_changed_and_ends_with_ctrl_c(is_damaged: bool, tmp_path: Path) -> None:
    population, pauses = build(tmp_path, metric_mode="min"), 0
    population.train(1)

    def pause(_: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 2 and is_damaged:
            (tmp_path / STATE_FILE).write_bytes(b"half")
        elif pauses == 2:
            population.train(2)
        if pauses == 4:
            raise KeyboardInterrupt

    shown = text_of(tmp_path, once=False, pause=pause)
    steps = [row[3] for row in map(str.split, shown.splitlines()) if row[:1] == ["1"]]
    assert set(steps) == {"1"} if is_damaged else (steps[0], steps[-1]) == ("1", "2")
    assert "the smallest is best" in shown


def test_the_command_shows_it_once_without_a_terminal_or_says_why_not(
    trained: Population, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["--once"], []):
        assert run(["--watch", str(trained.folder), *arguments]) == 0
        shown, said = capsys.readouterr()
        assert (said, list(rows_of(shown))) == ("", [each.member_id for each in trained.scheduler.ranked()])
    for words in ("holds no population", "is damaged"):
        assert run(["--watch", str(tmp_path), "--once"]) == 2
        shown, said = capsys.readouterr()
        assert (shown, said.count("\n")) == ("", 1)
        assert said.startswith(f"error: {tmp_path}")
        assert words in said
        (tmp_path / STATE_FILE).write_bytes(b"half")
