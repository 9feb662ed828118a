"""Faults in a population's configuration, members and scheduler that no document claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlcore.pbt.hyperparams import ExploreMethod, HyperparamConfig, Hyperparams, HyperparamValue, PBTConfig
from rlcore.pbt.scheduler import PopulationMember
from rlcore.types import StateDict
from rlverify import healthy, unclaimed


@unclaimed(
    "every-range-holds-ints",
    target="rlcore.pbt.hyperparams:HyperparamConfig.is_integer",
    pins="412497c0a2118a7f",
)
def every_range_holds_ints(self: Any) -> bool:
    """Treat a range of floats as a range of ints."""
    return self.values is None


@unclaimed(
    "values-are-a-range-too",
    target="rlcore.pbt.hyperparams:HyperparamConfig.is_integer",
    pins="412497c0a2118a7f",
)
def values_are_a_range_too(self: Any) -> bool:  # noqa: ARG001
    """Treat a list of values as a range of ints."""
    return True


@unclaimed(
    "rules-unchecked",
    target="rlcore.pbt.hyperparams:HyperparamConfig.check_rules",
    pins="a772f784c954cf8d",
)
def rules_unchecked(self: Any) -> None:
    """Do not check whether the settings are consistent."""


@unclaimed("settings-unchecked", target="rlcore.pbt.hyperparams:Table.__init__", pins="efd493a0b49eaeea")
def settings_unchecked(self: Any, **given: Any) -> None:
    """Accept every value without validation."""
    whole = type(self).model_construct(**given)
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"):
        object.__setattr__(self, name, getattr(whole, name))


@unclaimed(
    "settings-of-another-population",
    target="rlcore.pbt.hyperparams:Table.__init__",
    pins="efd493a0b49eaeea",
)
def settings_of_another_population(self: Any, **given: Any) -> None:
    """Double the interval, both the default and a given one."""
    if isinstance(self, PBTConfig):
        given["perturbation_interval"] = 2 * given.get("perturbation_interval", 5)
    healthy("settings-of-another-population")(self, **given)


@unclaimed(
    "history-of-one-report",
    target="rlcore.pbt.scheduler:PopulationMember.record_step",
    pins="671f1eb20baa5b17",
)
def history_of_one_report(self: Any, step: int, performance: float, hyperparams: Mapping[str, HyperparamValue]) -> None:
    """Keep only the last report in the history."""
    healthy("history-of-one-report")(self, step, performance, hyperparams)
    del self.history[:-1]


@unclaimed(
    "history-shared-with-the-report",
    target="rlcore.pbt.scheduler:PopulationMember.record_step",
    pins="671f1eb20baa5b17",
)
def history_shared_with_the_report(
    self: Any, step: int, performance: float, hyperparams: Mapping[str, HyperparamValue]
) -> None:
    """Store the reported hyperparameters without a copy, so that later changes alter the history."""
    healthy("history-shared-with-the-report")(self, step, performance, hyperparams)
    self.history[-1]["hyperparams"] = hyperparams


@unclaimed(
    "state-shared-with-the-member",
    target="rlcore.pbt.scheduler:PopulationMember.state_dict",
    pins="06f8a1a981023b75",
)
def state_shared_with_the_member(self: Any) -> StateDict:
    """Return a member's state without copies, so that it changes with the member."""
    return dict(vars(self))


@unclaimed(
    "drawn-at-construction",
    target="rlcore.pbt.scheduler:PBTScheduler.__init__",
    pins="2b46f839e6f23a1c",
)
def drawn_at_construction(self: Any, config: PBTConfig, seed: int | None = None) -> None:
    """Create the population in the constructor."""
    healthy("drawn-at-construction")(self, config, seed)
    self.initialize_population()


@unclaimed(
    "given-hyperparameters-unchecked",
    target="rlcore.pbt.scheduler:PBTScheduler._checked_hyperparams",
    pins="88033fb99776c2c6",
)
def given_hyperparameters_unchecked(self: Any, given: Sequence[Mapping[str, HyperparamValue]]) -> list[Hyperparams]:  # noqa: ARG001
    """Accept any number of mappings with any content."""
    return [dict(each) for each in given]


@unclaimed(
    "due-before-the-first-step",
    target="rlcore.pbt.scheduler:PBTScheduler.should_exploit_and_explore",
    pins="c8a2ffd0fd4795ea",
)
def due_before_the_first_step(self: Any, member: PopulationMember) -> bool:
    """Make a member due at step 0, which is a multiple of every interval."""
    return bool(member.step % self.config.perturbation_interval == 0)


@unclaimed("report-saves-nothing", target="rlcore.pbt.scheduler:PBTScheduler._save", pins="1e5503048c5683f0")
def report_saves_nothing(
    self: Any, member: PopulationMember, score: float, step: int, parameters: Any, policy: Any
) -> None:
    """Record the score without saving the parameters."""


@unclaimed(
    "ready-from-the-first-report",
    target="rlcore.pbt.scheduler:PBTScheduler.is_ready",
    pins="1b416db5fe55f3dd",
)
def ready_from_the_first_report(self: Any) -> bool:
    """Be ready as soon as one member has reported."""
    return bool(self.ready_members())


@unclaimed(
    "largest-is-best-whatever-asked",
    target="rlcore.pbt.scheduler:ranking_key",
    pins="fe8b9ac191c9b5ed",
)
def largest_is_best_whatever_asked(member: PopulationMember, metric_mode: str) -> tuple[bool, float]:  # noqa: ARG001
    """Ignore ``metric_mode``."""
    key: tuple[bool, float] = healthy("largest-is-best-whatever-asked")(member, "max")
    return key


@unclaimed("ranked-from-the-worst", target="rlcore.pbt.scheduler:rank", pins="56d712d58cbdfdc3")
def ranked_from_the_worst(members: Sequence[PopulationMember], metric_mode: str) -> list[PopulationMember]:
    """Reverse the ranking."""
    ranked: list[PopulationMember] = healthy("ranked-from-the-worst")(members, metric_mode)
    return ranked[::-1]


@unclaimed("always-the-first-candidate", target="rlcore.pbt.scheduler:_draw", pins="2df3c4bf92cc8c9d")
def always_the_first_candidate(
    candidates: Sequence[PopulationMember],
    generator: np.random.Generator,  # noqa: ARG001
) -> PopulationMember | None:
    """Return the first candidate instead of a random one."""
    return candidates[0] if candidates else None


@unclaimed(
    "drawn-at-the-lower-end",
    target="rlcore.pbt.hyperparams:HyperparamConfig.resample",
    pins="01e36cee9844f6fd",
)
def drawn_at_the_lower_end(self: Any, generator: np.random.Generator) -> HyperparamValue:  # noqa: ARG001
    """Always draw the first value."""
    value: HyperparamValue = self.values[0] if self.values is not None else self.min_value
    return value


@unclaimed(
    "perturbed-upwards-only",
    target="rlcore.pbt.hyperparams:HyperparamConfig.perturb",
    pins="ea96ef9e58da0a99",
)
def perturbed_upwards_only(
    self: Any,
    value: HyperparamValue,
    generator: np.random.Generator,  # noqa: ARG001
) -> HyperparamValue:
    """Only increase values, up to the end of their range."""
    grown: HyperparamValue = healthy("perturbed-upwards-only")(self, value, _Upwards())
    return grown


class _Upwards:
    """Replaces the generator, and always chooses the upward step or the next neighbour."""

    def integers(self, high: int) -> int:
        return high - 1


@unclaimed(
    "range-left",
    target="rlcore.pbt.hyperparams:HyperparamConfig._fitted",
    pins="c29d576de2e8551e",
)
def range_left(self: Any, value: float) -> int | float:
    """Do not clip a value to its range."""
    return round(value) if self.is_integer else float(value)


@unclaimed(
    "last-value-beside-the-first",
    target="rlcore.pbt.hyperparams:_neighbour",
    pins="f120ae532f908383",
)
def last_value_beside_the_first(position: int, size: int, generator: np.random.Generator) -> int:
    """Make the first and the last value neighbours."""
    return (position + (1 if generator.integers(2) else -1)) % size


@unclaimed(
    "method-of-exploring-ignored",
    target="rlcore.pbt.hyperparams:_resamples",
    pins="a97db5edd4a32790",
)
def method_of_exploring_ignored(
    config: HyperparamConfig,  # noqa: ARG001
    method: ExploreMethod,  # noqa: ARG001
    generator: np.random.Generator,  # noqa: ARG001
) -> bool:
    """Perturb values, whatever the explore method."""
    return False


@unclaimed(
    "nobody-scores-zero",
    target="rlcore.pbt.scheduler:performance_statistics",
    pins="1a638a7e5187bd16",
)
def nobody_scores_zero(members: Sequence[PopulationMember]) -> dict[str, float]:
    """Return 0 for all figures if no member has reported."""
    figures: dict[str, float] = healthy("nobody-scores-zero")(members)
    return dict.fromkeys(figures, 0.0) if all(each.performance is None for each in members) else figures


@unclaimed(
    "nan-among-the-scores",
    target="rlcore.pbt.scheduler:performance_statistics",
    pins="1a638a7e5187bd16",
)
def nan_among_the_scores(members: Sequence[PopulationMember]) -> dict[str, float]:
    """Return NaN for all figures if one member has diverged."""
    figures: dict[str, float] = healthy("nan-among-the-scores")(members)
    diverged = any(each.performance is not None and np.isnan(each.performance) for each in members)
    return dict.fromkeys(figures, float("nan")) if diverged else figures


@unclaimed(
    "everyone-is-among-the-worst",
    target="rlcore.pbt.scheduler:truncation_count",
    pins="b08d4100308439d6",
)
def everyone_is_among_the_worst(size: int, ratio: float) -> int:  # noqa: ARG001
    """Count the whole population as best and as worst."""
    return size
