"""A training run as one YAML file: environment, algorithm, population, length and seed, checked before it begins."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

import gymnasium as gym
import torch
import yaml
from gymnasium.envs.registration import load_env_creator
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from rlcore.checkpoint import storage
from rlcore.checkpoint.refusal import RefusedError
from rlcore.envs import ResumableEnv
from rlcore.errors import ConfigFileError, SettingError, refused_value, reject_unknown
from rlcore.pbt.hyperparams import PBTConfig, check_explorable, check_warm_up
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.arguments import resolve_settings
from rlcore.ppo.live import plan_settings
from rlcore.ppo.policy import DistributionalRecurrentPolicy, find_policy
from rlcore.ppo.settings import Count, Flag, PPOSettings, Seed

MAX_BYTES: Final = 1_000_000
"""Largest file that is read."""
TOP: Final = "the top level"
_MAKE_OPTIONS: Final = ("max_episode_steps", "disable_env_checker")
"""What ``gymnasium.make`` takes in addition to the arguments of the environment itself."""
_CORE_SCHEMA: Final = {
    "null": "~|null|Null|NULL|",
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": "[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}
"""Scalars that are not strings, by YAML 1.2 (yaml.org/spec/1.2.2, section 10.3.2); PyYAML itself follows YAML 1.1."""

Place = tuple[str, ...]
"""The names, and the positions in lists, that lead to a value."""


@dataclass(frozen=True)
class Document:
    """What a file says, and where.

    :param content: the mapping that the file holds; every name in it is a str
    :param lines: the line of every name and every entry of a list, by what leads there (``"a", "list", "0", "b"``)
    """

    content: dict[str, Any]
    lines: dict[Place, int]

    def line_of(self, place: str) -> int | None:
        """The line of the deepest name in ``place`` (``algorithm.optimizer_kwargs['lr']``) that the file has."""
        found: Place = ()
        for name in re.findall(r"\w+", place):
            if (*found, name) in self.lines:
                found = (*found, name)
        return self.lines.get(found)


def read_yaml(path: str | Path) -> Document:
    """Read one mapping from a file of YAML 1.2, executing nothing that it says.

    :raises ConfigFileError: with the line where there is one
    """
    lines: dict[Place, int] = {}
    try:
        root = _Composer(str(storage.read_content(path, MAX_BYTES), "utf-8")).get_single_node()
        content = None if root is None else _plain(root, (), lines)
    except RefusedError as error:
        raise ConfigFileError(path, None, str(error)) from error
    except UnicodeDecodeError as error:
        raise ConfigFileError(path, None, "is no text in UTF-8") from error
    except RecursionError as error:
        raise ConfigFileError(path, None, "is nested deeper than any configuration") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise ConfigFileError(path, None if mark is None else mark.line + 1, f"{error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigFileError(path, None, f"is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ConfigFileError(path, None, "holds no mapping; write names and values as 'name: value', one a line")
    return Document(content, lines)


class _Composer(yaml.SafeLoader):
    """Refuses tags, and anchors, because a few of those can represent more values than memory holds."""

    yaml_implicit_resolvers: ClassVar[dict[None, list[tuple[str, re.Pattern[str]]]]] = {  # type: ignore[misc]
        None: [(kind, re.compile(f"^(?:{pattern})$")) for kind, pattern in _CORE_SCHEMA.items()]
    }

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if event.anchor is not None:
            raise _at(event, "anchors and references (& and *) are not taken; write the value out")
        if getattr(event, "tag", None) is not None:
            raise _at(event, f"the tag {event.tag!r:.60} is not taken; write the value without it")
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


def _plain(node: yaml.Node, place: Place, lines: dict[Place, int]) -> Any:
    """The value of a node; adds its lines to ``lines``. Refuses a name that is not a string or occurs twice."""
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node)
    if isinstance(node, yaml.SequenceNode):
        lines.update({(*place, str(i)): item.start_mark.line + 1 for i, item in enumerate(node.value)})
        return [_plain(item, (*place, str(i)), lines) for i, item in enumerate(node.value)]
    content = {}
    for key, value in node.value:
        here = (*place, key.value)
        if not isinstance(key, yaml.ScalarNode) or key.tag in _CORE_SCHEMA:
            raise _at(key, f"{key.value!r:.60} is no name; a name is a text, in quotes if need be")
        if here in lines:
            raise _at(key, f"{key.value!r} stands here and in line {lines[here]}; give it once")
        lines[here] = key.start_mark.line + 1
        content[key.value] = _plain(value, here, lines)
    return content


def _scalar(node: yaml.ScalarNode) -> bool | int | float | str | None:
    text: str = node.value
    match node.tag:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "float":
            return float(re.sub(r"\.(?=[a-zA-Z])", "", text))  # .inf and .nan
        case "int":
            try:
                return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
            except ValueError as error:
                raise _at(node, "the number has more digits than any setting") from error
    return text


def _at(where: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=where.start_mark)


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
        policy = find_policy(given.get("policy", cls.model_fields["policy"].default))
        if "environment" in given:
            sections["environment"] = _checked(EnvironmentConfig, given["environment"], "environment")
        if "algorithm" in given:
            sections["algorithm"] = _read_algorithm(given["algorithm"], policy)
        if given.get("pbt") is not None:
            population = _require_mapping(given["pbt"], "pbt")
            with _inside("pbt"):
                sections["pbt"] = PBTConfig.from_mapping(population)
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


def homes() -> dict[str, list[str]]:
    """Where every name of a file belongs."""
    return {
        TOP: list(TrainingConfig.model_fields),
        "environment": list(EnvironmentConfig.model_fields),
        "algorithm": [name for name in PPOSettings.model_fields if name != "seed"],
        "pbt": list(PBTConfig.model_fields),
    }


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
    arguments, seed = _arguments(given), config.seed if seed is None else seed
    try:
        envs = make_vec_env(given.id, given.n_envs, seed, env_kwargs=arguments, wrapper_class=wrapper)
    except SettingError as error:
        # ResumableEnv refuses an "env"; any other setting is one of the environment's own arguments.
        unsaveable = error.setting == "env"
        way_out = "; or give resumable: false in environment, and go on from resets only" if unsaveable else ""
        raise SettingError("environment", f"{error}{way_out}") from error
    except (gym.error.Error, TypeError, ValueError, AssertionError) as error:
        raise SettingError(
            "environment",
            f"environment {given.id!r} cannot be made with kwargs={given.kwargs!r}: {' '.join(str(error).split())}",
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


def _read_algorithm(given: object, policy: type[DistributionalRecurrentPolicy]) -> PPOSettings:
    settings = _require_mapping(given, "algorithm")
    places = homes()
    elsewhere = {*places[TOP], *places["environment"]}
    reject_unknown([name for name in settings if name in elsewhere], "algorithm", places)
    with _inside("algorithm"):
        return resolve_settings(settings, policy.default_extractor, asked=settings)


def _checked(table: type[_Model], given: object, where: str) -> _Model:
    settings = _require_mapping(given, where)
    reject_unknown(settings, where, homes())
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


def _arguments(environment: EnvironmentConfig) -> dict[str, Any]:
    """What the environment is made with: what is configured, and no rendering.

    :raises SettingError: for an unknown environment, or an argument that its signature does not have
    """
    try:
        entry_point = gym.spec(environment.id).entry_point
        creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    except (gym.error.Error, ImportError) as error:
        raise SettingError(
            "environment.id", f"environment.id={environment.id!r} cannot be made: {' '.join(str(error).split())}"
        ) from error
    parameters = inspect.signature(creator).parameters if callable(creator) else {}
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        where = "environment.kwargs"
        reject_unknown(environment.kwargs, where, {where: [*parameters, *_MAKE_OPTIONS]})
    return ({"render_mode": None} if "render_mode" in parameters else {}) | environment.kwargs


def _check_population(config: TrainingConfig, pbt: PBTConfig) -> None:
    given = config.algorithm
    with _inside("pbt"):
        check_explorable(pbt.hyperparams, given, lambda changes: plan_settings(given, changes))
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
