"""A training run as one YAML file: environment, algorithm, population, length and seed, checked before it begins."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeVar

import gymnasium as gym
import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from rlcore.envs import ResumableEnv
from rlcore.errors import ConfigFileError, SettingError, refused_value, reject_unknown
from rlcore.pbt.hyperparams import PBTConfig, check_explorable, check_warm_up
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.live import plan_change
from rlcore.ppo.policy import find_policy
from rlcore.ppo.settings import Count, Flag, PPOSettings, Seed, resolve_settings

TOP: Final = "the top level"


@dataclass(frozen=True)
class Document:
    """What a file says, and where.

    :param content: the mapping that the file holds
    :param root: the same as nodes, which know their lines
    """

    content: dict[Any, Any]
    root: Node | None

    def line_of(self, place: str) -> int | None:
        """Return the line of the deepest name in ``place`` (``algorithm.optimizer_kwargs['lr']``) that the file has."""
        node, line = self.root, None
        for name in re.findall(r"\w+", place):
            for key, mark, value in _entries(node):
                if key == name:
                    node, line = value, mark.line + 1
                    break
        return line


def _entries(node: Node | None) -> Iterator[tuple[str, Any, Node]]:
    """Yield name or position, mark and value of every entry of a mapping or a list."""
    if isinstance(node, MappingNode):
        yield from ((str(key.value), key.start_mark, value) for key, value in node.value)
    if isinstance(node, SequenceNode):
        yield from ((str(position), value.start_mark, value) for position, value in enumerate(node.value))


def read_yaml(path: str | Path) -> Document:
    """Read one mapping from a file of YAML 1.2, executing nothing that it says.

    :raises ConfigFileError: with the line where there is one
    """
    try:
        text = Path(path).read_bytes()
        # Each call needs a reader of its own: one that has composed does not load.
        content = YAML(typ="safe", pure=True).load(text)
        document = Document(content, YAML(typ="safe", pure=True).compose(text))
    except OSError as error:
        raise ConfigFileError(path, None, f"cannot be read ({error.strerror})") from error
    except MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise ConfigFileError(path, line, " ".join(str(error.problem).split())) from error
    except (YAMLError, ValueError, LookupError, RecursionError) as error:
        raise ConfigFileError(path, None, f"is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ConfigFileError(path, None, "holds no mapping; write names and values as 'name: value', one a line")
    return document


@contextmanager
def _inside(section: str) -> Iterator[None]:
    """Add the section to the name of the setting in a SettingError."""
    try:
        yield
    except SettingError as error:
        raise type(error)(f"{section}.{error.setting}", str(error)) from error


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)


class EnvironmentConfig(_Section):
    """The section ``environment``."""

    id: str = Field(description="id of a registered environment, 'module:id' where a module registers it")
    n_envs: Count = Field(1, description="environments side by side")
    kwargs: dict[str, Any] = Field({}, description="arguments of the environment")
    normalize: Flag = Field(False, description="normalise observations and rewards (VecNormalize)")
    resumable: Flag = Field(True, description="make the state of the environments part of a saved model")


class TrainingConfig(_Section):
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
            sections["algorithm"] = _read_algorithm(given["algorithm"])
        if given.get("pbt") is not None:
            population = _require_mapping(given["pbt"], "pbt")
            with _inside("pbt"):
                sections["pbt"] = PBTConfig(**population)
        return _checked(cls, sections, TOP)

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        given, pbt, n_envs = self.algorithm, self.pbt, self.environment.n_envs
        rollout = given.n_steps * n_envs
        if pbt is not None and None not in (self.seed, pbt.seed) and pbt.seed != self.seed:
            raise SettingError(
                "pbt.seed",
                f"seed={self.seed!r} and pbt.seed={pbt.seed!r} contradict each other: everything derives from one "
                "seed; give one of them",
            )
        if "seed" in given.model_fields_set:
            raise SettingError(
                "algorithm.seed",
                f"algorithm.seed={given.seed!r} would leave the environments unseeded; give seed at the top level, for "
                "environments and algorithm together",
            )
        if "batch_size" in given.model_fields_set and given.batch_size > rollout:
            raise SettingError(
                "algorithm.batch_size",
                f"batch_size={given.batch_size} is larger than a rollout, n_steps={given.n_steps} times "
                f"n_envs={n_envs}, so no minibatch could be filled; give batch_size={rollout} or less, or a larger "
                "n_steps",
            )
        if pbt is not None:
            _check_population(self, pbt)
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
    :raises SettingError: as :meth:`TrainingConfig.from_mapping`, with file and line
    """
    document = read_yaml(path)
    try:
        return TrainingConfig.from_mapping(document.content)
    except SettingError as error:
        line = document.line_of(error.setting)
        where = f"{path}" if line is None else f"{path}, line {line}"
        raise type(error)(error.setting, f"{where}: {error}") from error


def build_envs(config: TrainingConfig, *, seed: int | None = None) -> VecEnv:
    """The environments of a run, seeded, behind VecNormalize if asked.

    :param seed: in place of the configured one
    :raises SettingError: for an environment that does not exist or cannot be made so
    """
    given, wrapper = config.environment, ResumableEnv if config.environment.resumable else None
    make, seed = partial(gym.make, given.id, **given.kwargs), config.seed if seed is None else seed
    try:
        envs = make_vec_env(make, given.n_envs, seed, wrapper_class=wrapper)
    except SettingError as error:
        # ResumableEnv refuses an "env"; any other setting is one of the environment's own arguments.
        unsaveable = error.setting == "env"
        way_out = "; or give resumable: false in environment, and go on from resets only" if unsaveable else ""
        raise SettingError("environment", f"{error}{way_out}") from error
    except (gym.error.Error, ImportError, TypeError, ValueError, AssertionError) as error:
        raise SettingError(
            "environment.id",
            f"environment.id={given.id!r} cannot be made with kwargs={given.kwargs!r}: {' '.join(str(error).split())}",
        ) from error
    return VecNormalize(envs, gamma=config.algorithm.gamma) if given.normalize else envs


def build_model(
    config: TrainingConfig, *, seed: int | None = None, device: torch.device | str = "auto"
) -> DistributionalPPO:
    """The model of a run in its environments, ready for ``learn(config.total_timesteps)``.

    :param seed: in place of the configured one
    :raises SettingError: as :func:`build_envs` and the constructor of DistributionalPPO
    """
    algorithm = config.algorithm
    settings = {name: getattr(algorithm, name) for name in algorithm.model_fields_set}
    seed = config.seed if seed is None else seed
    return DistributionalPPO(config.policy, build_envs(config, seed=seed), device=device, **settings, seed=seed)


_Model = TypeVar("_Model", bound=BaseModel)


def _read_algorithm(given: object) -> PPOSettings:
    settings = _require_mapping(given, "algorithm")
    elsewhere = {*_NAMES[TOP], *_NAMES["environment"]}
    reject_unknown([name for name in settings if name in elsewhere], "algorithm", _NAMES)
    with _inside("algorithm"):
        return resolve_settings(settings, asked=settings)


def _checked(table: type[_Model], given: object, where: str) -> _Model:
    settings = _require_mapping(given, where)
    reject_unknown(settings, where, _NAMES)
    try:
        return table(**settings)
    except ValidationError as error:
        place = "{}" if where == TOP else where + ".{}"
        raise refused_value(error, table, settings, place, where) from error


def _require_mapping(given: object, where: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise SettingError(
            where, f"{where}={given!r} is no mapping from names to values; write its settings as 'name: value' below it"
        )
    return given


def _check_population(config: TrainingConfig, pbt: PBTConfig) -> None:
    given = config.algorithm
    with _inside("pbt"):
        check_explorable(pbt.hyperparams, given, lambda changes: plan_change(given, changes))
    for explored in pbt.hyperparams:
        found = _given_as(explored.name, given)
        if found is not None:
            where, value = found
            raise SettingError(
                f"algorithm.{where}",
                f"{where}={value!r} is given and pbt.hyperparams explores {explored.name}, so the value would do "
                "nothing; leave one of them out",
            )
    with _inside("pbt"):
        check_warm_up(pbt, given, config.environment.n_envs)
    updates, interval = updates_in_all(config), pbt.perturbation_interval
    if updates <= interval:
        raise SettingError(
            "pbt.perturbation_interval",
            f"perturbation_interval={interval} updates, and total_timesteps={config.total_timesteps} are {updates}, so "
            "no member would ever copy another; give a shorter interval or a larger total",
        )


def _given_as(explored: str, given: PPOSettings) -> tuple[str, object] | None:
    """Where what is explored is given too, by whatever name, and its value; None if it is not."""
    name = {"lr": "learning_rate", "ent_coef_initial": "ent_coef"}.get(explored, explored)
    options = given.optimizer_kwargs or {}
    if name in options:
        return f"optimizer_kwargs[{name!r}]", options[name]
    if name not in PPOSettings.model_fields:
        return None
    value, defaults = getattr(given, name), resolve_settings({"optimizer_class": given.optimizer_class})
    return (name, value) if value != getattr(defaults, name) else None


def updates_in_all(config: TrainingConfig) -> int:
    """Updates of a member, or of a single model, until ``total_timesteps`` are reached."""
    return math.ceil(config.total_timesteps / (config.algorithm.n_steps * config.environment.n_envs))
