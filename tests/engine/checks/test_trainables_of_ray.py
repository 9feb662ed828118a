"""Trials of Ray Tune under the rules for populations: explored values that train, and the defect that loses them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from ray.tune import Trainable
from stable_baselines3 import PPO

from rlcore.tune import trainable
from rlverify.checks import Adapter, CheckRecord, check_algorithm
from rlverify.checks.adapters.sb3 import SB3Adapter
from tests.support.ray_trials import CONFIG, as_ray_gives, build, results_in
from tests.support.training import make_envs

pytestmark = pytest.mark.slow

POPULATIONS = ["explored_values_train", "statistics_follow_the_policy"]
SB3 = SB3Adapter()


@pytest.fixture(autouse=True)
def _own_results(tmp_path: Path) -> Iterator[None]:
    with results_in(tmp_path / "results"):
        yield


@pytest.fixture(scope="module", autouse=True)
def _compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let the processes of the checks inherit what Numba compiles for the optimizer."""
    with results_in(tmp_path_factory.mktemp("results")):
        trainable(build, total_timesteps=1000)(as_ray_gives(CONFIG, "x_00000")).step()


def new_actor(trial: Any, config: dict[str, Any]) -> None:
    """What Ray does without ``reuse_actors``."""
    trial.__init__(config)


def used_actor(trial: Any, config: dict[str, Any]) -> None:
    """What Ray does with ``reuse_actors``."""
    assert trial.reset(config)


class AsRayDrives(Adapter):
    """Calls a Trainable as Ray's PBT does: an exploit is a config for an actor, and then the file of another trial.

    :param start: gives the actor its config
    """

    def __init__(self, start: Callable[[Any, dict[str, Any]], None]) -> None:
        self.start = start

    def learn(self, model: Any, steps: int) -> Sequence[Any]:
        end = model.model.num_timesteps + steps
        while model.model.num_timesteps < end:
            model.train()
        return ()

    def get_parameters(self, model: Any) -> dict[str, bytes]:
        with tempfile.TemporaryDirectory() as folder:
            model.save(folder)
            return {path.name: path.read_bytes() for path in Path(folder).iterdir()}

    def set_parameters(self, model: Any, parameters: dict[str, bytes]) -> None:
        self.exploit(model, model.config, parameters)

    def set_learning_rate(self, model: Any, value: float) -> None:
        parameters = getattr(model, "copied", None) or self.get_parameters(model)
        self.exploit(model, {**model.config, "learning_rate": value}, parameters)

    def exploit(self, model: Any, config: dict[str, Any], files: dict[str, bytes]) -> None:
        self.start(model, as_ray_gives(config, "x_00001"))
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                (Path(folder) / name).write_bytes(content)
            model.restore(folder)
        model.copied = files

    def modules(self, model: Any) -> Sequence[Any]:
        return SB3.modules(model.model)

    def optimizers(self, model: Any) -> Sequence[Any]:
        return [model.model.policy.optimizer]

    def steps(self, model: Any) -> int:
        return SB3.steps(model.model)

    def environment(self, model: Any) -> Any:
        return SB3.environment(model.model)

    def normalizer_state(self, model: Any) -> Any:
        return SB3.normalizer_state(model.model)

    def normalized(self, model: Any, observation: Any) -> Any:
        return SB3.normalized(model.model, observation)


class NaiveTrainable(Trainable):
    """As people write it: the config counts in ``setup()``, and a load brings the settings of the file."""

    def setup(self, config: dict[str, Any]) -> None:
        settings: dict[str, Any] = {"n_steps": 16, "batch_size": 8, "n_epochs": 1, "device": "cpu", "seed": 0}
        self.model = PPO("MlpPolicy", make_envs(n_envs=2), learning_rate=config["learning_rate"], **settings)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        self.model.learn(32, reset_num_timesteps=False)
        return {"score": 0.0}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        self.model.save(f"{checkpoint_dir}/model.zip")

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.model = PPO.load(f"{checkpoint}/model.zip", env=self.model.get_env(), device="cpu")


class AppliesConfig(NaiveTrainable):
    """The same, with the config applied after the load."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        super().load_checkpoint(checkpoint)
        SB3.set_learning_rate(self.model, self.config["learning_rate"])


class SetsGroupsOnly(NaiveTrainable):
    """Half of it: the config sets the optimizer's groups, which the next update overwrites by the file's schedule."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        super().load_checkpoint(checkpoint)
        for group in self.model.policy.optimizer.param_groups:
            group["lr"] = self.config["learning_rate"]


def checked(kind: type[Trainable], start: Any, checks: list[str]) -> list[CheckRecord]:
    return check_algorithm(lambda: kind(as_ray_gives(CONFIG, "x_00000")), adapter=AsRayDrives(start), checks=checks)


STARTS = pytest.mark.parametrize("start", [new_actor, used_actor])


@pytest.mark.parametrize(("start", "strategy"), [(new_actor, "copy"), (used_actor, "reset")])
def test_explored_values_train_and_statistics_follow(start: Any, strategy: Any) -> None:
    kind = trainable(build, total_timesteps=1000, optimizer_exploit_strategy=strategy)
    records = checked(kind, start, POPULATIONS)
    assert [each.check for each in records] == POPULATIONS
    for each in records:
        assert each.outcome.startswith("pass, proven by"), each


@STARTS
@pytest.mark.parametrize("kind", [NaiveTrainable, SetsGroupsOnly])
def test_a_load_that_brings_the_settings_of_the_file_is_detected(start: Any, kind: Any) -> None:
    (record,) = checked(kind, start, POPULATIONS[:1])
    assert record.outcome == "fail"
    assert record.finding.seen == "the learning rate is 0.001 at the update, expected 0.000125"


@STARTS
def test_a_config_that_is_applied_after_the_load_trains(start: Any) -> None:
    (record,) = checked(AppliesConfig, start, POPULATIONS[:1])
    assert record.outcome.startswith("pass, proven by"), record
