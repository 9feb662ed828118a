"""Hyperparameters that a population explores: their ranges, how one is drawn, and how one is perturbed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import BeforeValidator, Field

from rlcore.errors import SettingError
from rlcore.pbt.table import Table
from rlcore.ppo.arguments import plain
from rlcore.ppo.settings import Flag, Fraction

HyperparamValue: TypeAlias = bool | int | float | str | None
Hyperparams: TypeAlias = dict[str, HyperparamValue]
ExploreMethod: TypeAlias = Literal["both", "perturb", "resample"]


Finite: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Bound: TypeAlias = Annotated[int | Finite, BeforeValidator(plain)]
Choice: TypeAlias = Annotated[bool | int | Finite | str | None, BeforeValidator(plain)]


class HyperparamConfig(Table):
    """One hyperparameter: a range of numbers, or a list of values.

    A range whose ends are both int holds ints only. A range is perturbed by multiplying or dividing by
    ``perturbation_factor``, each with probability 1/2 (a step of its logarithm in log space), and clipped; an int moves
    by at least 1. A value of a list is perturbed to a neighbour in the list (Jaderberg et al., 2017, section 4.1).

    :param name: setting of the algorithm
    :param min_value: lower end of the range, inclusive
    :param max_value: upper end of the range, inclusive
    :param values: at least two different values, in an order in which neighbours are similar
    :param perturbation_factor: greater than 1; of a range alone
    :param resample_probability: under ``explore_method="both"``, how often a value is drawn afresh instead
    :param is_log_scale: draw log-uniformly; the range must lie above 0
    :raises SettingError: naming the settings that cannot be used, or not together
    """

    name: Annotated[str, Field(min_length=1)]
    min_value: Bound | None = None
    max_value: Bound | None = None
    values: list[Choice] | None = None
    perturbation_factor: Annotated[float, BeforeValidator(plain), Field(gt=1, allow_inf_nan=False)] = 1.2
    resample_probability: Fraction = 0.25
    is_log_scale: Flag = False

    def __init__(self, *positional: Any, **named: Any) -> None:
        super().__init__(**{"name": None, **self.by_name(positional, named)})

    @property
    def is_categorical(self) -> bool:
        """Whether there is a list of values."""
        return self.values is not None

    @property
    def is_continuous(self) -> bool:
        """Whether there is a range, of floats or ints."""
        return self.values is None

    @property
    def is_integer(self) -> bool:
        """Whether the range holds ints only."""
        return isinstance(self.min_value, int) and isinstance(self.max_value, int)

    @property
    def ends(self) -> list[HyperparamValue]:
        """Where something could go wrong first: the two ends of the range, or every value of the list."""
        return self.values if self.values is not None else [self.min_value, self.max_value]

    def check_rules(self) -> None:
        """Either a range that can be drawn from, or a list of different values."""
        if self.values is not None:
            self._check_values(self.values)
            return
        if self.min_value is None or self.max_value is None:
            raise self._error(
                f"min_value={self.min_value!r} and max_value={self.max_value!r} make no range, and there are no "
                "values; give both ends, or values"
            )
        if self.min_value >= self.max_value or not math.isfinite(self.max_value - self.min_value):
            raise self._error(
                f"min_value={self.min_value!r} and max_value={self.max_value!r} leave nothing to draw from; give a "
                "finite range whose min_value is smaller"
            )
        self._check_log_scale()

    def resample(self, generator: np.random.Generator) -> HyperparamValue:
        """A value drawn afresh: uniformly, or log-uniformly with ``is_log_scale``."""
        if self.values is not None:
            return self.values[int(generator.integers(len(self.values)))]
        # An int stands for the interval of what rounds to it, so that every int has its share.
        margin = 0.5 if self.is_integer else 0.0
        low, high = self._ends()
        if self.is_log_scale:
            return self._fitted(float(_log_uniform(low - margin, high + margin, generator)))
        return self._fitted(generator.uniform(low - margin, high + margin))

    def perturb(self, value: HyperparamValue, generator: np.random.Generator) -> HyperparamValue:
        """A value near ``value``, inside the range and of its type.

        :raises SettingError: if ``value`` is no finite number, or none of ``values``
        """
        if self.values is not None:
            return self.values[_neighbour(self._position(value, self.values), len(self.values), generator)]
        number = self._number(value)
        up = bool(generator.integers(2))
        moved = self._fitted(number * self.perturbation_factor if up else number / self.perturbation_factor)
        if self.is_integer and moved == number:
            return self._fitted(number + (1 if up else -1))
        return moved

    def check_value(self, value: HyperparamValue) -> None:
        """Refuse what this hyperparameter cannot be.

        :raises SettingError: outside the range, not an int where only ints are, or none of ``values``
        """
        if self.values is not None:
            self._position(value, self.values)
            return
        number, (low, high) = self._number(value), self._ends()
        if not low <= number <= high or (self.is_integer and not isinstance(number, int)):
            kind = "an int" if self.is_integer else "a number"
            raise self._error(f"{value!r} cannot be its value; give {kind} from {low!r} to {high!r}")

    def _fitted(self, value: float) -> int | float:
        """The nearest value that the range holds, of the range's type."""
        low, high = self._ends()
        clipped = min(max(value, low), high)
        return round(clipped) if self.is_integer else float(clipped)

    def _ends(self) -> tuple[int | float, int | float]:
        if self.min_value is None or self.max_value is None:
            raise self._error("it has values and no range")
        return self.min_value, self.max_value

    def _number(self, value: HyperparamValue) -> int | float:
        number = plain(value)
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise self._error(f"{value!r} is no finite number, so it cannot be its value; give one")
        return number

    def _position(self, value: HyperparamValue, values: Sequence[HyperparamValue]) -> int:
        if value not in values:
            raise self._error(f"{value!r} is none of its values; give one of {values}")
        return values.index(value)

    def _check_values(self, values: Sequence[HyperparamValue]) -> None:
        ends = {"min_value": self.min_value, "max_value": self.max_value}
        range_given = [f"{name}={end!r}" for name, end in ends.items() if end is not None]
        if self.is_log_scale:
            range_given.append("is_log_scale=True")
        if self.perturbation_factor != type(self).model_fields["perturbation_factor"].default:
            range_given.append(f"perturbation_factor={self.perturbation_factor!r}")
        if range_given:
            raise self._error(f"{', '.join(range_given)} and values={values} contradict each other; give one of them")
        if len(values) < 2 or any(value in values[:position] for position, value in enumerate(values)):
            raise self._error(f"values={values} must be at least two, all different; otherwise nothing is explored")

    def _check_log_scale(self) -> None:
        if self.is_log_scale and self._ends()[0] <= 0:
            raise self._error(
                f"min_value={self.min_value!r} and is_log_scale=True contradict each other, because 0 and less have no "
                "logarithm; give a min_value above 0, or leave is_log_scale out"
            )

    def _error(self, problem: str) -> SettingError:
        return SettingError(f"hyperparams[{self.name!r}]", f"hyperparameter {self.name!r}: {problem}")


def explored(
    hyperparams: Mapping[str, HyperparamValue],
    configs: Sequence[HyperparamConfig],
    method: ExploreMethod,
    generator: np.random.Generator,
) -> Hyperparams:
    """Hyperparameters near the given ones; those that no config names stay as they are.

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


def _log_uniform(low: float, high: float, generator: np.random.Generator) -> np.floating[Any]:
    bottom, top = np.log(low), np.log(high)
    return np.exp(bottom + (top - bottom) * generator.random())  # type: ignore[no-any-return]
