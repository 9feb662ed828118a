"""Settings of a population and of the hyperparameters it explores, and checks that they work together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast

import numpy as np
from pydantic import BeforeValidator, Field

from rlcore import types
from rlcore.errors import SettingError, reject_unknown
from rlcore.ppo.settings import Flag
from rlcore.types import Count, Finite, Fraction, Seed, plain

HyperparamValue: TypeAlias = bool | int | float | str | None
Hyperparams: TypeAlias = dict[str, HyperparamValue]
ExploreMethod: TypeAlias = Literal["both", "perturb", "resample"]
Bound: TypeAlias = Annotated[int | Finite, BeforeValidator(plain)]
Choice: TypeAlias = Annotated[bool | int | Finite | str | None, BeforeValidator(plain)]


class Table(types.Table):
    """A table whose every wrong value raises SettingError and whose every unknown name raises UnknownSettingError."""

    def __init__(self, **given: Any) -> None:
        where = type(self).__name__
        reject_unknown(given, where, {table.__name__: list(table.model_fields) for table in Table.__subclasses__()})
        super().__init__(**given)
        self.check_rules()

    def check_rules(self) -> None:
        """Raise SettingError for settings that contradict each other."""


class HyperparamConfig(Table):
    """One hyperparameter: a range of numbers, or a list of values.

    A range whose ends are both int holds ints only. A range is perturbed by multiplying or dividing by
    ``perturbation_factor``, each with probability 1/2 (a step of its logarithm in log space), and clipped; an int moves
    by at least 1. A value of a list is perturbed to a neighbour in the list (Jaderberg et al., 2017, section 4.1).

    :param name: setting of the algorithm
    :param min_value: lower end of the range, inclusive
    :param max_value: upper end of the range, inclusive
    :param values: at least two different values, in an order in which neighbours are similar
    :param perturbation_factor: greater than 1; for a range only
    :param resample_probability: under ``explore_method="both"``, how often a value is drawn again instead
    :param is_log_scale: draw log-uniformly; the range must be above 0
    :raises SettingError: naming the settings that cannot be used, or not together
    """

    place = "HyperparamConfig[{!r}]"
    name: Annotated[str, Field(min_length=1)]
    min_value: Bound | None = None
    max_value: Bound | None = None
    values: list[Choice] | None = None
    perturbation_factor: Annotated[Finite, Field(gt=1)] = 1.2
    resample_probability: Fraction = 0.25
    is_log_scale: Flag = False

    def __init__(self, name: Any = None, **given: Any) -> None:
        super().__init__(name=name, **given)

    @property
    def is_integer(self) -> bool:
        """True if the range holds ints only."""
        return isinstance(self.min_value, int) and isinstance(self.max_value, int)

    @property
    def ends(self) -> list[HyperparamValue]:
        """The two ends of the range, or every value of the list."""
        return self.values if self.values is not None else [self.min_value, self.max_value]

    def check_rules(self) -> None:
        """Require either a range that can be drawn from, or a list of different values."""
        values, low, high = self.values, self.min_value, self.max_value
        ends = f"min_value={low!r} and max_value={high!r}"
        if values is not None:
            if low is not None or high is not None:
                raise self._error(f"{ends} and values={values} contradict each other; give a range or values")
            if len(values) < 2 or any(value in values[:position] for position, value in enumerate(values)):
                raise self._error(f"values={values} must be at least two, all different")
        elif low is None or high is None or low >= high or not math.isfinite(high - low):
            raise self._error(f"{ends} leave nothing to draw from; give a finite range whose min_value is smaller")
        else:
            self._check_log_scale(low)

    def resample(self, generator: np.random.Generator) -> HyperparamValue:
        """Draw a value uniformly, or log-uniformly with ``is_log_scale``."""
        if self.values is not None:
            return self.values[int(generator.integers(len(self.values)))]
        # An int represents the interval that rounds to it, so that every int has its share.
        margin = 0.5 if self.is_integer else 0.0
        low, high = cast(list[float], self.ends)
        if self.is_log_scale:
            bottom, top = np.log(low - margin), np.log(high + margin)
            return self._fitted(float(np.exp(bottom + (top - bottom) * generator.random())))
        return self._fitted(generator.uniform(low - margin, high + margin))

    def perturb(self, value: HyperparamValue, generator: np.random.Generator) -> HyperparamValue:
        """Return a value near ``value``, inside the range and of its type."""
        if self.values is not None:
            return self.values[_neighbour(self.values.index(value), len(self.values), generator)]
        number = cast(float, value)
        up = bool(generator.integers(2))
        moved = self._fitted(number * self.perturbation_factor if up else number / self.perturbation_factor)
        if self.is_integer and moved == number:
            return self._fitted(number + (1 if up else -1))
        return moved

    def check_value(self, value: HyperparamValue) -> None:
        """
        :raises SettingError: outside the range, not an int where only ints are, or none of ``values``
        """
        if self.values is not None:
            possible, allowed = value in self.values, f"one of {self.values}"
        else:
            (low, high), kind = cast(list[float], self.ends), int if self.is_integer else int | float
            possible = isinstance(value, kind) and not isinstance(value, bool) and low <= value <= high
            allowed = f"{'an int' if self.is_integer else 'a number'} from {low!r} to {high!r}"
        if not possible:
            raise self._error(f"{value!r} cannot be its value; give {allowed}")

    def _fitted(self, value: float) -> int | float:
        """Return the nearest value that the range holds, of the range's type."""
        low, high = cast(list[float], self.ends)
        clipped = min(max(value, low), high)
        return round(clipped) if self.is_integer else float(clipped)

    def _check_log_scale(self, low: float) -> None:
        if self.is_log_scale and low <= 0:
            raise self._error(f"min_value={low!r} and is_log_scale=True contradict each other; it must be above 0")

    def _error(self, problem: str) -> SettingError:
        return SettingError(f"hyperparams[{self.name!r}]", f"hyperparameter {self.name!r}: {problem}")


def explored(
    hyperparams: Mapping[str, HyperparamValue],
    configs: Sequence[HyperparamConfig],
    method: ExploreMethod,
    generator: np.random.Generator,
) -> Hyperparams:
    """Return hyperparameters near the given ones; those that no config names stay as they are.

    :param method: ``perturb`` or ``resample`` every one, or ``both``: resample with each one's ``resample_probability``
    """
    new = dict(hyperparams)
    for config in configs:
        if config.name not in new or _resamples(config, method, generator):
            new[config.name] = config.resample(generator)
        else:
            new[config.name] = config.perturb(new[config.name], generator)
    return new


def _resamples(config: HyperparamConfig, method: ExploreMethod, generator: np.random.Generator) -> bool:
    return method == "resample" or (method == "both" and generator.random() < config.resample_probability)


def _neighbour(position: int, size: int, generator: np.random.Generator) -> int:
    neighbours = [each for each in (position - 1, position + 1) if 0 <= each < size]
    return neighbours[int(generator.integers(len(neighbours)))]


def _hyperparam(given: object) -> object:
    return HyperparamConfig(**given) if isinstance(given, Mapping) else given


class PBTConfig(Table):
    """Settings of a population (Jaderberg et al., 2017).

    :param population_size: number of members, at least 2
    :param perturbation_interval: steps between two exploits of a member, in the unit in which steps are reported
    :param hyperparams: what is explored, as HyperparamConfig or as mappings of its settings
    :param exploit_method: ``truncation``: the worst ``truncation_ratio`` of the members copy one of the best;
        ``binary_tournament``: every member copies one opponent, drawn once, that is better
    :param explore_method: ``perturb``, ``resample``, or ``both`` by each hyperparameter's ``resample_probability``
    :param truncation_ratio: share of the members at either end, above 0; at least one member
    :param checkpoint_dir: folder of the members' checkpoints
    :param metric_name: what performance measures, for reports
    :param metric_mode: whether the largest or the smallest performance is best
    :param ready_percentage: share of the members (0 to 1) that must have reported before any exploits; two at least
    :param optimizer_exploit_strategy: whether an exploit resets the optimizer or copies the source's moments
    :param explore_without_exploit: let members explore that copied nothing, the best one too
    :param seed: seed of the population's own generator; None for a random one
    :raises SettingError: naming the setting that cannot be used
    """

    place = "PBTConfig[{!r}]"
    population_size: Annotated[Count, Field(ge=2)] = 10
    perturbation_interval: Count = 5
    hyperparams: list[Annotated[HyperparamConfig, BeforeValidator(_hyperparam)]] = Field([])
    exploit_method: Literal["truncation", "binary_tournament"] = "truncation"
    explore_method: ExploreMethod = "both"
    truncation_ratio: Annotated[Fraction, Field(gt=0)] = 0.2
    checkpoint_dir: Annotated[Path, Field(strict=False)] = Path("pbt_checkpoints")
    metric_name: Annotated[str, Field(min_length=1)] = "rollout/ep_rew_mean"
    metric_mode: Literal["max", "min"] = "max"
    ready_percentage: Fraction = 0.8
    optimizer_exploit_strategy: Literal["reset", "copy"] = "reset"
    explore_without_exploit: Flag = False
    seed: Seed | None = None

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)

    def check_rules(self) -> None:
        """Require every hyperparameter once."""
        names = [each.name for each in self.hyperparams]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise SettingError("PBTConfig['hyperparams']", f"hyperparams names {', '.join(repeated)} more than once")


def check_explorable(
    hyperparams: Sequence[HyperparamConfig], plan: Callable[[Mapping[str, HyperparamValue]], object]
) -> None:
    """Try the first ends of all ranges together, then their second ends and further values of lists.

    :param plan: checks a change of settings, as :func:`rlcore.ppo.live.plan_change` does for a model
    :raises SettingError: naming what could not be explored; its ``setting`` is ``hyperparams``
    """
    for place in range(max((len(each.ends) for each in hyperparams), default=0)):
        try:
            plan({each.name: each.ends[min(place, len(each.ends) - 1)] for each in hyperparams})
        except SettingError as error:
            raise type(error)("hyperparams", str(error)) from error


def optimizer_steps_per_update(*, n_steps: int, n_envs: int, batch_size: int, n_epochs: int) -> int:
    """Return the optimizer steps that one update takes, unless ``target_kl`` stops it early."""
    return n_epochs * math.ceil(n_steps * n_envs / batch_size)


def check_warm_up(config: PBTConfig, settings: Any, n_envs: int) -> None:
    """Refuse a population whose first exploits would copy gradient statistics that are still warming up.

    :param settings: has every setting of the algorithm as an attribute; what is explored counts with its worst value
    :raises SettingError: unless ``perturbation_interval`` updates take more than ``vgs_warmup_steps`` optimizer steps
    """
    if not settings.variance_gradient_scaling:
        return
    explored = {each.name: each.ends for each in config.hyperparams}
    choices: dict[str, Callable[[Any], Any]] = {"n_epochs": min, "batch_size": max, "vgs_warmup_steps": max}
    worst = {name: choose(explored.get(name, [getattr(settings, name)])) for name, choose in choices.items()}
    warm_up = worst.pop("vgs_warmup_steps")
    steps = optimizer_steps_per_update(n_steps=settings.n_steps, n_envs=n_envs, **worst)
    if config.perturbation_interval * steps <= warm_up:
        raise SettingError(
            "perturbation_interval",
            f"perturbation_interval={config.perturbation_interval} updates of {steps} optimizer steps end within "
            f"vgs_warmup_steps={warm_up}; give at least {warm_up // steps + 1} updates, or a shorter warm-up",
        )
