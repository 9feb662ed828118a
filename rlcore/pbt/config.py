"""The settings of population-based training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from rlcore.errors import SettingError
from rlcore.pbt.hyperparams import ExploreMethod, HyperparamConfig
from rlcore.pbt.table import Table
from rlcore.ppo.arguments import plain
from rlcore.ppo.settings import Count, Flag, Fraction, Seed


def _as_path(value: object) -> object:
    return Path(value) if isinstance(value, str) and value else value


class PBTConfig(Table):
    """Settings of a population (Jaderberg et al., 2017).

    :param population_size: number of members, at least 2
    :param perturbation_interval: steps between two exploits of a member, in the unit in which steps are reported
    :param hyperparams: what is explored, as HyperparamConfig or as mappings of its settings
    :param exploit_method: ``truncation``: the worst ``truncation_ratio`` of the members copy one of the best;
        ``binary_tournament``: every member copies one opponent, drawn once, that is better
    :param explore_method: ``perturb``, ``resample``, or ``both`` by each hyperparameter's ``resample_probability``
    :param truncation_ratio: share of the members at either end, above 0; at least one member
    :param checkpoint_dir: folder of the members' checkpoints, made when the first is written
    :param metric_name: what performance measures, for reports
    :param metric_mode: whether the largest or the smallest performance is best
    :param ready_percentage: share of the members (0 to 1) that must have reported before any exploits; two at least
    :param optimizer_exploit_strategy: whether an exploit starts the optimizer afresh or copies the source's moments
    :param explore_without_exploit: let members explore that copied nothing, the best one too
    :param seed: seed of the population's own generator; None for a fresh one
    :raises SettingError: naming the setting that cannot be used
    """

    population_size: Annotated[int, BeforeValidator(plain), Field(ge=2)] = 10
    perturbation_interval: Count = 5
    hyperparams: list[HyperparamConfig] = Field([])
    exploit_method: Literal["truncation", "binary_tournament"] = "truncation"
    explore_method: ExploreMethod = "both"
    truncation_ratio: Annotated[Fraction, Field(gt=0)] = 0.2
    checkpoint_dir: Annotated[Path, BeforeValidator(_as_path)] = Path("pbt_checkpoints")
    metric_name: Annotated[str, Field(min_length=1)] = "rollout/ep_rew_mean"
    metric_mode: Literal["max", "min"] = "max"
    ready_percentage: Fraction = 0.8
    optimizer_exploit_strategy: Literal["reset", "copy"] = "reset"
    explore_without_exploit: Flag = False
    seed: Seed | None = None

    def __init__(self, *positional: Any, **named: Any) -> None:
        given = self.by_name(positional, named)
        if isinstance(given.get("hyperparams"), list | tuple):
            given["hyperparams"] = [_hyperparam(i, each) for i, each in enumerate(given["hyperparams"])]
        super().__init__(**given)

    def check_rules(self) -> None:
        """Every hyperparameter once, and no share of a truncation where nothing is truncated."""
        names = [each.name for each in self.hyperparams]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise SettingError(
                "PBTConfig['hyperparams']", f"hyperparams names {', '.join(repeated)} more than once; give each once"
            )
        if self.exploit_method != "truncation" and "truncation_ratio" in self.model_fields_set:
            raise SettingError(
                "PBTConfig['truncation_ratio']",
                f"truncation_ratio={self.truncation_ratio!r} and exploit_method={self.exploit_method!r} contradict "
                "each other: it would do nothing; leave truncation_ratio out, or set exploit_method='truncation'",
            )


def _hyperparam(position: int, given: object) -> object:
    if not isinstance(given, Mapping):
        return given
    try:
        return HyperparamConfig.from_mapping(given)
    except SettingError as error:
        raise type(error)(f"hyperparams[{position}].{error.setting}", str(error)) from error
