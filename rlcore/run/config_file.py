"""A training run as one YAML file: environment, algorithm, population, length and seed, checked before it begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeVar

import gymnasium as gym
import torch
from pydantic import BeforeValidator, Field, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from rlcore.envs.resumable import ResumableEnv
from rlcore.errors import TOP, ConfigFileError, SettingError, reject_unknown
from rlcore.pbt.hyperparams import PBTConfig, check_explorable, check_warm_up
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.live import plan_change
from rlcore.ppo.policy import find_policy
from rlcore.ppo.settings import Flag, PPOSettings, resolve_settings
from rlcore.types import Count, Seed, Table


def read_yaml(path: str | Path) -> dict[Any, Any]:
    """Read one mapping from a file of YAML 1.2, executing nothing that it says.

    :raises ConfigFileError: with the line where there is one
    """
    try:
        content = YAML(typ="safe", pure=True).load(Path(path).read_bytes())
    except (OSError, YAMLError, ValueError, LookupError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = " ".join(str(getattr(error, "problem", error)).split())
        raise ConfigFileError(path, None if mark is None else mark.line + 1, problem) from error
    if not isinstance(content, dict):
        raise ConfigFileError(path, None, "holds no mapping; write names and values as 'name: value', one a line")
    return content


@contextmanager
def _inside(section: str) -> Iterator[None]:
    """Add the section to the name of the setting in a SettingError."""
    try:
        yield
    except SettingError as error:
        raise type(error)(f"{section}.{error.setting}", str(error)) from error


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


class EnvironmentConfig(Table):
    """The section ``environment``."""

    level, place = "environment", "environment.{}"
    id: str = Field(description="id of a registered environment, 'module:id' where a module registers it")
    n_envs: Count = Field(1, description="environments side by side")
    kwargs: dict[str, Any] = Field({}, description="arguments of the environment")
    normalize: Flag = Field(False, description="normalise observations and rewards (VecNormalize)")
    resumable: Flag = Field(True, description="make the state of the environments part of a saved model")


class TrainingConfig(Table):
    """A whole training run; :func:`load_config` and :meth:`from_mapping` make one with the clearest errors."""

    environment: EnvironmentConfig = Field(description="what is trained in")
    algorithm: PPOSettings = Field(
        default_factory=lambda: resolve_settings({}), description="settings of DistributionalPPO"
    )
    policy: str = Field("MlpLstmPolicy", description="name of the policy")
    pbt: PBTConfig | None = Field(None, description="settings of a population; None for a single model")
    total_timesteps: Annotated[Count, BeforeValidator(_whole)] = Field(description="steps to train, over environments")
    seed: Seed | None = Field(None, description="seed of environments and generators")

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> Self:
        """Check every level of what a file says.

        :param given: the sections by name
        :raises UnknownSettingError: for a misspelt or misplaced name at any level, with the right one
        :raises SettingError: for a value that cannot be used, and for values that contradict each other
        """
        sections = dict(_require_mapping(given, TOP))
        find_policy(given.get("policy", cls.model_fields["policy"].default))
        if "environment" in given:
            sections["environment"] = _checked(EnvironmentConfig, given["environment"], "environment")
        if "algorithm" in given:
            settings = _require_mapping(given["algorithm"], "algorithm")
            elsewhere = {*_NAMES[TOP], *_NAMES["environment"]}
            reject_unknown([name for name in settings if name in elsewhere], "algorithm", _NAMES)
            with _inside("algorithm"):
                sections["algorithm"] = resolve_settings(settings, asked=settings)
        if given.get("pbt") is not None:
            with _inside("pbt"):
                sections["pbt"] = PBTConfig(**_require_mapping(given["pbt"], "pbt"))
        return _checked(cls, sections, TOP)

    @model_validator(mode="after")
    def _check_population(self) -> Self:
        if self.pbt is not None:
            with _inside("pbt"):
                check_explorable(self.pbt.hyperparams, partial(plan_change, self.algorithm))
                check_warm_up(self.pbt, self.algorithm, self.environment.n_envs)
        return self


_NAMES: Final = {
    TOP: list(TrainingConfig.model_fields),
    "environment": list(EnvironmentConfig.model_fields),
    "algorithm": [name for name in PPOSettings.model_fields if name != "seed"],
    "pbt": list(PBTConfig.model_fields),
}
"""Every name of a file, by the section where it belongs."""


def load_config(path: str | Path) -> TrainingConfig:
    """Read a run from a YAML file (1.2: ``3e-4`` is a number, only ``true`` and ``false`` are bools).

    :raises ConfigFileError: if the file cannot be read
    :raises SettingError: as :meth:`TrainingConfig.from_mapping`, with the file
    """
    content = read_yaml(path)
    try:
        return TrainingConfig.from_mapping(content)
    except SettingError as error:
        raise type(error)(error.setting, f"{path}: {error}") from error


def build_envs(config: TrainingConfig, *, seed: int | None = None) -> VecEnv:
    """Make the environments of a run, seeded, behind VecNormalize if asked.

    :param seed: in place of the configured one
    :raises SettingError: for an environment that does not exist or cannot be made so
    """
    given, wrapper = config.environment, ResumableEnv if config.environment.resumable else None
    make, seed = partial(gym.make, given.id, **given.kwargs), config.seed if seed is None else seed
    try:
        envs = make_vec_env(make, given.n_envs, seed, wrapper_class=wrapper)
    except (gym.error.Error, ImportError, TypeError, ValueError, AssertionError) as error:
        # ResumableEnv refuses an "env"; any other setting is one of the environment's own arguments.
        unsaveable = isinstance(error, SettingError) and error.setting == "env"
        way_out = "; or give resumable: false in environment, and go on from resets only" if unsaveable else ""
        raise SettingError(
            "environment.id",
            f"environment.id={given.id!r} cannot be made with kwargs={given.kwargs!r}: {' '.join(str(error).split())}"
            f"{way_out}",
        ) from error
    return VecNormalize(envs, gamma=config.algorithm.gamma) if given.normalize else envs


def build_model(
    config: TrainingConfig, *, seed: int | None = None, device: torch.device | str = "auto"
) -> DistributionalPPO:
    """Make the model of a run in its environments, ready for ``learn(config.total_timesteps)``.

    :param seed: in place of the configured one
    :raises SettingError: as :func:`build_envs` and the constructor of DistributionalPPO
    """
    seed = config.seed if seed is None else seed
    settings = {name: getattr(config.algorithm, name) for name in config.algorithm.model_fields_set}
    return DistributionalPPO(config.policy, build_envs(config, seed=seed), device=device, **settings, seed=seed)


_Table = TypeVar("_Table", bound=Table)


def _checked(table: type[_Table], given: object, where: str) -> _Table:
    settings = _require_mapping(given, where)
    reject_unknown(settings, where, _NAMES)
    return table(**settings)


def _require_mapping(given: object, where: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise SettingError(where, f"{where}={given!r} is no mapping from names to values")
    return given
