"""A run as a file: every level refuses what it does not know, and rules over several settings name both values."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import pytest
import yaml
from stable_baselines3.common.vec_env import VecNormalize

from rlcore import (
    ConfigFileError,
    DistributionalPPO,
    ResumableEnv,
    SettingError,
    TrainingConfig,
    UnknownSettingError,
    build_model,
    load_config,
)
from rlcore.pbt.hyperparams import optimizer_steps_per_update
from rlcore.run.config_file import build_envs, read_yaml
from tests.support.training import make_envs, make_model

ALGORITHM: dict[str, Any] = {
    "n_steps": 16,
    "batch_size": 24,
    "n_epochs": 2,
    "policy_kwargs": {"lstm_hidden_size": 8, "net_arch": [8]},
}
RUN: dict[str, Any] = {
    "environment": {"id": "CartPole-v1", "n_envs": 3},
    "algorithm": ALGORITHM,
    "total_timesteps": 48,
    "seed": 3,
}


def changed(**sections: Any) -> dict[str, Any]:
    """RUN with what is given laid over it, level by level."""
    run = copy.deepcopy(RUN)
    for name, value in sections.items():
        run[name] = {**run.get(name, {}), **value} if isinstance(value, dict) else value
    return run


def load(tmp_path: Path, run: Any) -> TrainingConfig:
    (tmp_path / "run.yaml").write_text(run if isinstance(run, str) else yaml.safe_dump(run, sort_keys=False))
    return load_config(tmp_path / "run.yaml")


def test_a_file_becomes_a_run(tmp_path: Path) -> None:
    config = load(tmp_path, RUN)
    assert (config.environment.id, config.environment.n_envs, config.environment.normalize) == ("CartPole-v1", 3, False)
    assert (config.algorithm.n_steps, config.algorithm.learning_rate, config.total_timesteps) == (16, 2e-3, 48)
    assert (config.policy, config.pbt, config.seed) == ("MlpLstmPolicy", None, 3)


def test_whole_numbers_may_be_written_with_an_exponent(tmp_path: Path) -> None:
    assert load(tmp_path, "environment: {id: X-v0}\ntotal_timesteps: 1e6\n").total_timesteps == 1_000_000


UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "at the top": ({"algoritm": 1}, "the top level knows no setting 'algoritm'.*did you mean 'algorithm'"),
    "of the algorithm at the top": ({"n_steps": 4}, "'n_steps' belongs in algorithm"),
    "of the environment": ({"environment": {"envs": 4}}, "environment knows no setting 'envs'.*'n_envs'"),
    "of the environment in the algorithm": ({"algorithm": {"n_envs": 4}}, "'n_envs' belongs in environment"),
    "of the top in the algorithm": ({"algorithm": {"seed": 4}}, "'seed' belongs in the top level"),
    "the length in the algorithm": ({"algorithm": {"total_timesteps": 4}}, "'total_timesteps' belongs in the top"),
    "of the algorithm": ({"algorithm": {"use_twin_critics": True}}, "use n_critics"),
    "of the algorithm in the environment": ({"environment": {"gamma": 0.9}}, "'gamma' belongs in algorithm"),
    "of the optimizer": ({"algorithm": {"optimizer_kwargs": {"sgima": 1.0}}}, "did you mean 'sigma'"),
    "of a population": ({"pbt": {"population": 4}}, "PBTConfig knows no setting 'population'.*'population_size'"),
    "of a population at the top": ({"population_size": 4}, "'population_size' belongs in pbt"),
    "of the LSTM": ({"algorithm": {"policy_kwargs": {"lstm_kwargs": {"dropuot": 0.0}}}}, "did you mean 'dropout'"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_a_misspelt_or_misplaced_name_raises_with_its_line_and_the_right_one(case: str, tmp_path: Path) -> None:
    sections, words = UNKNOWN[case]
    with pytest.raises(UnknownSettingError, match=words) as caught:
        load(tmp_path, changed(**sections))
    assert str(caught.value).startswith(f"{tmp_path / 'run.yaml'}: ")


UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "text for a bool": ({"environment": {"normalize": "false"}}, "environment.normalize='false' cannot be used"),
    "a fraction of a step": ({"total_timesteps": 1.5}, "total_timesteps=1.5 cannot be used .*steps to train"),
    "a bool for a number": ({"environment": {"n_envs": True}}, "environment.n_envs=True"),
    "no environment at all": ({"environment": {"n_envs": 0}}, "environment.n_envs=0"),
    "a section that is none": ({"algorithm": 3}, "algorithm=3 is no mapping"),
    "an environment that is none": ({"environment": "CartPole-v1"}, "environment='CartPole-v1' is no mapping"),
    "a population that is none": ({"pbt": 3}, "pbt=3 is no mapping"),
    "a seed beyond 32 bits": ({"seed": 2**32}, "seed=4294967296"),
    "the scaler's settings without it": ({"algorithm": {"vgs_alpha": 0.5}}, "variance_gradient_scaling=False"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_value_that_cannot_be_used_raises_one_line_with_file_and_value(case: str, tmp_path: Path) -> None:
    sections, words = UNUSABLE[case]
    with pytest.raises(SettingError, match=words) as caught:
        load(tmp_path, changed(**sections))
    assert str(caught.value).startswith(f"{tmp_path / 'run.yaml'}: ")
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, UnknownSettingError)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ({"total_timesteps": 48}, "the top level lacks 'environment'"),
        ({"environment": {"id": "CartPole-v1"}}, "the top level lacks 'total_timesteps'"),
        ({"environment": {"n_envs": 2}, "total_timesteps": 48}, "environment lacks 'id'"),
    ],
)
def test_what_a_run_cannot_do_without_is_asked_for(run: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=words):
        load(tmp_path, run)


@pytest.mark.parametrize(("batch_size", "n_epochs"), [(24, 2), (20, 3), (1000, 2)])
def test_the_optimizer_steps_of_an_update_are_those_that_training_takes(batch_size: int, n_epochs: int) -> None:
    model = make_model(make_envs(n_envs=3), n_steps=16, batch_size=batch_size, n_epochs=n_epochs).learn(48)
    assert model.variance_gradient_scaler is not None
    steps = optimizer_steps_per_update(n_epochs=n_epochs, n_steps=16, n_envs=3, batch_size=batch_size)
    assert model.variance_gradient_scaler.step_count == steps


@pytest.mark.parametrize("interval", [1, 6])
def test_an_exploit_within_the_warm_up_is_refused_with_both_numbers_and_what_to_do(interval: int) -> None:
    """48 samples in minibatches of 24, twice: 4 optimizer steps an update."""

    population = {"perturbation_interval": interval}

    def run(**settings: Any) -> TrainingConfig:
        algorithm = {"variance_gradient_scaling": True, **settings}
        return TrainingConfig.from_mapping(changed(algorithm=algorithm, pbt=population, total_timesteps=1000))

    accepted = run(vgs_warmup_steps=4 * interval - 1).pbt
    assert accepted is not None
    assert accepted.perturbation_interval == interval
    words = f"={interval} updates of 4 .*vgs_warmup_steps={4 * interval}.*at least {interval + 1}"
    with pytest.raises(SettingError, match=words) as caught:
        run(vgs_warmup_steps=4 * interval)
    assert caught.value.setting == "pbt.perturbation_interval"
    assert run(variance_gradient_scaling=False).pbt is not None


def test_the_model_of_a_run_has_its_settings_and_environments(tmp_path: Path) -> None:
    settings = {"gamma": 0.9, "optimizer_kwargs": {"lr": 1e-2, "sigma": 0.25}}
    environment = {"id": "Pendulum-v1", "kwargs": {"g": 3.5, "max_episode_steps": 7}, "normalize": True}
    run = changed(environment=environment, algorithm=settings)
    model = build_model(load(tmp_path, run), device="cpu")
    normalizer: Any = model.get_env()
    assert isinstance(normalizer, VecNormalize)
    assert normalizer.gamma == 0.9
    assert normalizer.env_is_wrapped(ResumableEnv) == [True] * 3
    assert normalizer.get_attr("g") == [3.5] * 3
    assert normalizer.get_attr("spec")[0].max_episode_steps == 7
    assert (model.n_envs, model.n_steps, model.gamma, model.seed, model.learning_rate) == (3, 16, 0.9, 3, 1e-2)
    assert model.policy.optimizer.param_groups[0]["sigma"] == 0.25


def test_two_models_of_one_run_are_the_same_and_another_seed_is_another(tmp_path: Path) -> None:
    config = load(tmp_path, RUN)
    first, again, other = (build_model(config, seed=seed, device="cpu") for seed in (None, 3, 4))
    states = [model.policy.state_dict()["action_net.weight"] for model in (first, again, other)]
    assert states[0].equal(states[1])
    assert not states[0].equal(states[2])
    resets = [model.get_env().reset().tolist() for model in (first, again, other)]  # type: ignore[union-attr]
    assert resets[0] == resets[1] != resets[2]
    for seed, expected in ((None, resets[0]), (4, resets[2])):
        assert build_envs(config, seed=seed).reset().tolist() == expected  # type: ignore[union-attr]


ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "environment.id='CartPol-v1' cannot be made .*CartPole": {"id": "CartPol-v1"},
    "environment.id='nowhere:X-v0' cannot be made": {"id": "nowhere:X-v0"},
    "kwargs={'G': 9.0}: .*unexpected .*'G'": {"id": "Pendulum-v1", "kwargs": {"G": 9.0}},
}


@pytest.mark.parametrize("words", ENVIRONMENTS)
def test_an_environment_that_cannot_be_made_is_one_line(words: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=words) as caught:
        build_model(load(tmp_path, changed(environment=ENVIRONMENTS[words])))
    assert "\n" not in str(caught.value)


class Unsaveable(gym.Env[Any, Any]):
    """Keeps something between steps and does not say what."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}
    observation_space = gym.spaces.Box(0, 1, (1,))
    action_space = gym.spaces.Discrete(2)


def test_an_environment_that_cannot_give_its_state_needs_a_word(tmp_path: Path) -> None:
    gym.register("tests/Unsaveable-v0", entry_point=Unsaveable)
    try:
        run = changed(environment={"id": "tests/Unsaveable-v0"})
        with pytest.raises(
            SettingError, match=r"what the environment Unsaveable keeps.*; or give resumable: false in environment"
        ):
            build_model(load(tmp_path, run))
        model = build_model(load(tmp_path, changed(environment={"id": "tests/Unsaveable-v0", "resumable": False})))
        assert isinstance(model, DistributionalPPO)
    finally:
        del gym.registry["tests/Unsaveable-v0"]


@pytest.mark.parametrize("given", [{1: 2}, [], None, {**RUN, "environment": {1: 2}}])
def test_what_is_no_mapping_from_names_is_refused(given: Any) -> None:
    with pytest.raises(SettingError, match="is no mapping from names to values"):
        TrainingConfig.from_mapping(given)


SIZES = {"n_steps": 16, "batch_size": 24, "n_epochs": 2, "variance_gradient_scaling": True, "vgs_warmup_steps": 0}
"""With three environments 48 samples in minibatches of 24, twice: 4 optimizer steps an update."""


def run(*hyperparams: dict[str, Any], interval: int = 2, total: int = 480, **algorithm: Any) -> dict[str, Any]:
    """A run of 10 updates; a setting of None is left out."""
    given = {name: value for name, value in {**SIZES, **algorithm}.items() if value is not None}
    return {
        "environment": {"id": "CartPole-v1", "n_envs": 3},
        "algorithm": given,
        "pbt": {"population_size": 2, "perturbation_interval": interval, "hyperparams": list(hyperparams)},
        "total_timesteps": total,
    }


def between(name: str, low: float, high: float) -> dict[str, Any]:
    return {"name": name, "min_value": low, "max_value": high}


GAMMA = between("gamma", 0.9, 0.99)

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a misspelt name": (run(GAMMA, between("lerning_rate", 0.1, 0.2)), "did you mean 'learning_rate'"),
    "what shapes the network": (
        run(GAMMA, {"name": "n_critics", "values": [1, 2]}),
        "shapes the network",
    ),
    "an impossible end": (run(between("gamma", 0.9, 1.5)), "gamma=1.5"),
    "an impossible option": (run(GAMMA, between("sigma", -1.0, 1.0)), "sigma.*-1.0"),
    "few epochs within the warm-up": (
        run(between("n_epochs", 1, 9), n_epochs=None, vgs_warmup_steps=4),
        "2 updates of 2 .*vgs_warmup_steps=4",
    ),
    "large minibatches within the warm-up": (
        run({"name": "batch_size", "values": [16, 48, 24]}, batch_size=None, vgs_warmup_steps=4),
        "2 updates of 2 ",
    ),
    "a long warm-up": (
        run(GAMMA, between("vgs_warmup_steps", 2, 8), vgs_warmup_steps=None),
        "2 updates of 4 ",
    ),
    "a misspelt entry": (run(GAMMA, {"name": "ent_coef", "minvalue": 0.9}), "did you mean 'min_value'"),
    "an entry that cannot be": (
        run(GAMMA, between("ent_coef", 0.2, 0.1)),
        "min_value=0.2 and max_value=0.1",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_population_could_not_do_is_refused(case: str) -> None:
    given, words = REFUSED[case]
    with pytest.raises(SettingError, match=words) as caught:
        TrainingConfig.from_mapping(given)
    assert caught.value.setting.startswith("pbt.")
    assert isinstance(caught.value, UnknownSettingError) == ("misspelt" in case)


ACCEPTED = {
    "enough epochs": run(between("n_epochs", 2, 9), n_epochs=None, vgs_warmup_steps=7),
    "no warm-up without a scaler": run(
        between("n_epochs", 1, 9), n_epochs=None, vgs_warmup_steps=None, variance_gradient_scaling=False
    ),
    "a penalty that is on": run(between("kl_penalty_coef", 0.1, 1.0), kl_penalty_target=0.01),
    "a penalty that may be on": run(
        {"name": "kl_penalty_target", "values": [None, 0.01]}, between("kl_penalty_coef", 0.1, 1.0)
    ),
    "ends that only their defaults contradict": run(
        between("kl_penalty_min_coef", 0.5, 0.6), between("kl_penalty_coef", 0.7, 0.8), kl_penalty_target=0.01
    ),
    "a floor that may lie above what it is a floor of": run(
        between("ent_coef", 0.01, 0.1), between("ent_coef_min", 0.0, 0.05), between("sigma", 0.1, 0.2)
    ),
    "one exploit": run(GAMMA, interval=9),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_a_population_can_do_is_accepted(case: str) -> None:
    assert TrainingConfig.from_mapping(ACCEPTED[case]).pbt is not None


def read(tmp_path: Path, text: str | bytes) -> Any:
    path = tmp_path / "x.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_yaml(path)


# YAML 1.1 reads most of them otherwise.
SCALARS: dict[str, object] = {
    "3e-4": 3e-4,
    "1e6": 1e6,
    "-.inf": -math.inf,
    "010": 10,
    "0o17": 15,
    "true": True,
    "null": None,
    "": None,
    '"true"': "true",
    **{text: text for text in ("yes", "no", "on", "off", "y", "tRue", "1:30", "e5", "1.2.3")},
}


@pytest.mark.parametrize("text", SCALARS)
def test_a_value_is_what_yaml_1_2_says(text: str, tmp_path: Path) -> None:
    value = read(tmp_path, f"on: {text}\n")["on"]
    assert (type(value), value) == (type(SCALARS[text]), SCALARS[text])


BAD: dict[str, tuple[str | bytes, int | None, str]] = {
    "a name twice": ("a: 1\nb: 2\na: 3\n", 3, 'duplicate key "a"'),
    "a reference": ("a: 1\nb: *x\n", 2, "undefined alias 'x'"),
    "code": ("a: 1\nb: !!python/object/apply:os.mkdir [x]", 2, "could not determine a constructor for the tag"),
    "a number by tag": ("a: 1\nb: !!float lots\n", None, "could not convert"),
    "a bool by tag": ("a: !!bool x", None, "'x'"),
    "an open list": ("a: 1\nb: [\n", 3, "expected the node content"),
    "two documents": ("a: 1\n---\nb: 1\n", 2, "but found another document"),
    "no text": (b"a: \xff", None, "unacceptable character"),
    "nothing": ("", None, "holds no mapping"),
    "a list": ("- a\n", None, "holds no mapping"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_read_is_one_line_with_file_and_line(case: str, tmp_path: Path) -> None:
    text, line, words = BAD[case]
    with pytest.raises(ConfigFileError, match=words) as caught:
        read(tmp_path, text)
    assert (caught.value.line, caught.value.path) == (line, tmp_path / "x.yaml")
    assert str(caught.value).startswith(f"{tmp_path / 'x.yaml'}{'' if line is None else f', line {line}'}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError, match=r"missing\.yaml: .*No such file or directory"):
        read_yaml(tmp_path / "missing.yaml")
