"""The shipped examples and the command that trains them, as a user meets them."""

from __future__ import annotations

import itertools
import re
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from typer.testing import CliRunner

from rlcore import AdaptiveUPGD, DistributionalPPO, build_model, load_config, read_lineage
from rlcore.pbt.workers import ProcessExecutor
from rlcore.ppo.live import set_hyperparameters
from rlcore.run import train
from rlcore.run.train import app
from tests.support.training import differing

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL_RUN = """
environment: {id: CartPole-v1, n_envs: 2, normalize: true}
algorithm: {n_steps: 16, batch_size: 32, n_epochs: 1, policy_kwargs: {lstm_hidden_size: 8, net_arch: [8]}}
total_timesteps: 64
seed: 0
"""
SMALL_POPULATION = SMALL_RUN.replace("n_steps", "variance_gradient_scaling: true, vgs_warmup_steps: 0, n_steps") + (
    "pbt: {population_size: 2, perturbation_interval: 1}\n"
)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def one_update(name: str) -> DistributionalPPO:
    """An example's model after its first update, with its own settings."""
    config = load_config(EXAMPLES / name)
    model = build_model(config, device="cpu")
    return model.learn(1)


def test_the_example_of_vgs_and_upgd_trains_with_the_documents_settings() -> None:
    model = one_update("vgs_upgd.yaml")
    assert isinstance(model.policy.optimizer, AdaptiveUPGD)
    group = model.policy.optimizer.param_groups[0]
    documented = {"lr": 3e-4, "sigma": 0.001, "adaptive_noise": True, "noise_beta": 0.999, "min_noise_std": 1e-6}
    assert {name: group[name] for name in documented} == documented
    scaler = model.variance_gradient_scaler
    assert scaler is not None
    assert (scaler.settings.beta, scaler.settings.alpha, scaler.settings.warmup_steps) == (0.99, 0.1, 100)
    assert scaler.step_count == 10 * 1024 // 128
    assert model.num_timesteps == 1024


def test_the_example_of_pbt_reads_its_population_and_trains_a_member() -> None:
    config = load_config(EXAMPLES / "pbt.yaml")
    assert config.pbt is not None
    assert (config.pbt.population_size, config.pbt.perturbation_interval) == (10, 10)
    assert [each.name for each in config.pbt.hyperparams] == ["learning_rate", "ent_coef"]
    member = build_model(config, seed=1, device="cpu")
    set_hyperparameters(member, {"learning_rate": 1e-4, "ent_coef": 0.01})
    assert member.learn(1).variance_gradient_scaler.step_count * 10 > 100  # type: ignore[union-attr]


@pytest.mark.slow
def test_the_example_of_pbt_runs_as_a_population_and_goes_on(tmp_path: Path) -> None:
    text = (EXAMPLES / "pbt.yaml").read_text()
    for old, new in {
        "population_size: 10": "population_size: 2",
        "perturbation_interval: 10": "perturbation_interval: 1",
        "vgs_warmup_steps: 100": "vgs_warmup_steps: 50",
        "total_timesteps: 100000": "total_timesteps: 1025",
    }.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "pbt.yaml").write_text(text)
    folder = tmp_path / "population"
    done = run(tmp_path / "pbt.yaml", "--output", folder, "--device", "cpu")
    assert (done.exit_code, done.stdout.splitlines()[-1].partition(";")[0]) == (0, "trained 2 members for 2048 steps")
    before = [(event.event, event.member) for event in read_lineage(folder / "lineage.jsonl")]
    assert before[:2] == [("start", 0), ("start", 1)]
    again = run(tmp_path / "pbt.yaml", "--output", folder, "--device", "cpu")
    assert (again.exit_code, again.stdout.splitlines()[-1]) == (0, done.stdout.splitlines()[-1])
    members = {model.num_timesteps for model in map(DistributionalPPO.load, (folder / "members").iterdir())}
    assert members == {2048}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "run.yaml").write_text(SMALL_RUN)
    return tmp_path / "run.yaml"


def assert_trained(file: Path, config: Path) -> None:
    """As by ``learn()`` in one go, to the bit."""
    loaded = DistributionalPPO.load(file, device="cpu").policy.state_dict()
    assert differing(loaded, build_model(load_config(config), device="cpu").learn(64).policy.state_dict()) == []


def test_the_command_trains_and_saves_what_the_file_says(small: Path, tmp_path: Path) -> None:
    done = run(small, "--output", tmp_path / "folder" / "model", "--device", "cpu")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"trained 64 steps; saved {tmp_path / 'folder' / 'model.zip'}\n"
    assert_trained(tmp_path / "folder" / "model.zip", small)


MISUSES = {
    "a setting": (SMALL_RUN.replace("n_epochs", "n_epoch"), [], r"run\.yaml: .*did you mean 'n_epochs'"),
    "YAML": ("a: [", [], r"run\.yaml, line 1: expected"),
    "nothing to go on with": (SMALL_RUN, ["--resume", "--output", "{folder}/none.zip"], "none.zip: "),
    "an output that is there": (SMALL_RUN, ["--output", "{folder}/run.yaml"], "exists already and would be lost"),
    "an output below a file": (SMALL_RUN, ["--output", "{folder}/run.yaml/m.zip"], "m.zip: cannot be written"),
}


@pytest.mark.parametrize("case", MISUSES)
def test_what_cannot_be_used_is_one_line_and_nothing_is_written(case: str, small: Path, tmp_path: Path) -> None:
    text, options, words = MISUSES[case]
    small.write_text(text)
    options = [option.format(folder=tmp_path) for option in options] or ["--output", str(tmp_path / "model.zip")]
    done = run(small, *options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert re.search(words, done.stderr), done.stderr
    assert sorted(tmp_path.iterdir()) == [small]
    assert small.read_text() == text


@pytest.mark.parametrize("name", ["sigma", "lr", "ent_coef_initial"])
def test_a_population_explores_what_only_a_live_model_takes_by_that_name(
    name: str, small: Path, tmp_path: Path
) -> None:
    explored = f"[{{name: {name}, min_value: 0.001, max_value: 0.1}}]"
    text = SMALL_POPULATION.replace("_interval: 1", f"_interval: 1, hyperparams: {explored}")
    small.write_text(text.replace("total_timesteps: 64", "total_timesteps: 33"))
    done = run(small, "--output", tmp_path / "population", "--device", "cpu")
    assert done.exit_code == 0, done.stderr
    files = sorted((tmp_path / "population" / "members").iterdir())
    models = [DistributionalPPO.load(file, device="cpu") for file in files]
    event = [each for each in read_lineage(tmp_path / "population" / "lineage.jsonl") if each.member == 0][-1]
    model, value = models[0], event.hyperparams[name]
    trains = {
        "sigma": model.policy.optimizer.param_groups[0]["sigma"],
        "lr": model.learning_rate,
        "ent_coef_initial": model.ent_coef,
    }
    assert trains[name] == value
    assert {each.num_timesteps for each in models} == {64}, "whole rollouts"


@pytest.fixture
def ctrl_c_is_heard() -> Iterator[None]:
    """Also where the suite was started in the background, which makes a process deaf to it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Ctrl-C comes in the 60th step of all environments; to undo it is to let the run go on."""
    steps, step = itertools.count(1), CartPoleEnv.step

    def interrupting(env: CartPoleEnv, action: Any) -> Any:
        if next(steps) == 60:
            signal.raise_signal(signal.SIGINT)
        return step(env, action)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(CartPoleEnv, "step", interrupting)
    return monkeypatch


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_ctrl_c_saves_what_was_trained_and_resume_ends_with_the_same_bits(
    small: Path, tmp_path: Path, interrupted: pytest.MonkeyPatch
) -> None:
    done = run(small, "--output", tmp_path / "model.zip", "--device", "cpu")
    assert done.exit_code == 130
    assert done.stdout.startswith("interrupted after ")
    interrupted.undo()
    again = run(small, "--output", tmp_path / "model.zip", "--device", "cpu", "--resume")
    assert (again.exit_code, again.stdout) == (0, f"trained 64 steps; saved {tmp_path / 'model.zip'}\n")
    assert_trained(tmp_path / "model.zip", small)


def bars(shown: str) -> list[tuple[str, str, str, str]]:
    """Of each member its name, the updates of all that it has made, its score and its exploits."""
    return re.findall(r"^(member \d) .* (\d+/\d+) return (\S+), exploits (\d+)", shown, re.MULTILINE)


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_ctrl_c_keeps_the_finished_turns_of_a_population_and_the_same_command_goes_on(
    small: Path, tmp_path: Path, interrupted: pytest.MonkeyPatch
) -> None:
    text = SMALL_POPULATION.replace("n_steps: 16, batch_size: 32", "n_steps: 24, batch_size: 48")
    small.write_text(text.replace("timesteps: 64", "timesteps: 48").replace("_interval: 1", "_interval: 11"))
    folder = tmp_path / "population"
    command = [small, "--output", folder, "--device", "cpu"]
    stopped = run(*command)
    assert (stopped.exit_code, stopped.stdout.partition(":")[0]) == (130, "interrupted")
    assert [bar[:2] for bar in bars(stopped.stderr)] == [("member 0", "1/1"), ("member 1", "0/1")]
    assert [path.name for path in (folder / "members").iterdir()] == ["member_0_step_1.zip"]
    interrupted.undo()
    done = run(*command)
    assert done.exit_code == 0
    assert f"best model: {folder}" in done.stdout
    assert "members copy after every 11 updates" in done.stdout
    finished = bars(done.stderr)
    assert [bar[:2] for bar in finished] == [("member 0", "1/1"), ("member 1", "1/1")]
    assert finished[0] == bars(stopped.stderr)[0]
    assert all(float(score) > 1.0 and exploits == "0" for _, _, score, exploits in finished)


@pytest.mark.slow
@pytest.mark.parametrize(("options", "jobs"), [([], range(1, 10**4)), (["--jobs", "2"], [2])])
def test_a_population_trains_in_processes_as_in_one(
    options: list[str], jobs: Sequence[int], small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setattr(train, "ProcessExecutor", lambda n: made.append(n) or ProcessExecutor(n))
    small.write_text(SMALL_POPULATION)
    inline, spread = (
        (run(small, "--output", tmp_path / name, "--device", "cpu", *more), tmp_path / name / "lineage.jsonl")
        for name, more in (("inline", []), ("spread", ["--executor", "processes", *options]))
    )
    assert spread[0].exit_code == 0, spread[0].stderr
    assert len(made) == 1
    assert made[0] in jobs
    assert spread[0].stdout.replace("spread", "inline") == inline[0].stdout
    assert spread[1].read_bytes() == inline[1].read_bytes()
    assert inline[1].read_bytes().count(b"exploit") >= 1


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of the small run, after half of what the tests ask for."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "run.yaml").write_text(SMALL_RUN.replace("64", "32"))
    done = run(folder / "run.yaml", "--output", folder / "m.zip", "--device", "cpu")
    assert done.exit_code == 0, done.stderr
    return folder / "m.zip"


def resumed(text: str, trained: Path, tmp_path: Path) -> Any:
    (tmp_path / "run.yaml").write_text(text)
    shutil.copy(trained, tmp_path / "m.zip")
    return run(tmp_path / "run.yaml", "--output", tmp_path / "m.zip", "--device", "cpu", "--resume")


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
    done = resumed(SMALL_RUN.replace(old, new), trained, tmp_path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
    assert (tmp_path / "m.zip").read_bytes() == trained.read_bytes()


@pytest.mark.parametrize("total", ["32", "10"])
def test_a_total_that_is_reached_already_trains_nothing(total: str, trained: Path, tmp_path: Path) -> None:
    done = resumed(SMALL_RUN.replace("64", total), trained, tmp_path)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"{tmp_path / 'm.zip'} has trained its 32 steps already; nothing was trained\n"
    assert (tmp_path / "m.zip").read_bytes() == trained.read_bytes()


def test_what_shows_how_it_is_doing_is_as_the_file_says_now(trained: Path, tmp_path: Path) -> None:
    text = SMALL_RUN.replace("n_epochs: 1", f"n_epochs: 1, tensorboard_log: {tmp_path / 'log'}")
    done = resumed(text, trained, tmp_path)
    assert (done.exit_code, done.stderr) == (0, "")
    assert (tmp_path / "log").is_dir()
