"""Whether a population's hyperparameters can be explored: tried at their ends before anything is trained."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations, product
from typing import Any

from rlcore.errors import SettingError
from rlcore.pbt.config import PBTConfig
from rlcore.pbt.hyperparams import HyperparamConfig, HyperparamValue
from rlcore.pbt.interval import check_interval, optimizer_steps_per_update
from rlcore.ppo.resolving import idle_under

Plan = Callable[[Mapping[str, HyperparamValue]], object]
"""Checks a change of settings, as :func:`rlcore.ppo.live_settings.plan_change` does for a model."""


def check_explorable(hyperparams: Sequence[HyperparamConfig], settings: Any, plan: Plan) -> None:
    """Try the ends of every range, each with those of every other: a contradiction found later would end a population.

    :param settings: what has every setting of the algorithm as an attribute
    :raises SettingError: naming the settings that could not be explored, or not together, or that would do nothing;
        its ``setting`` is ``hyperparams[i]``
    """
    ends = {each.name: each.ends for each in hyperparams}
    first = {name: values[0] for name, values in ends.items()}
    for name, values in ends.items():
        _require_effect(name, settings, ends)
        for value in values:
            _try(plan, first | {name: value}, name)
    for left, right in combinations(ends, 2):
        for pair in product(ends[left], ends[right]):
            _try(plan, first | dict(zip((left, right), pair, strict=True)), right)


def check_warm_up(config: PBTConfig, settings: Any, n_envs: int) -> None:
    """Refuse exploits that could come before the gradient scaler is warmed up.

    Counted with what may be explored: the fewest optimizer steps an update, and the longest warm-up.

    :param settings: what has every setting of the algorithm as an attribute
    :raises SettingError: as :func:`rlcore.pbt.interval.check_interval`
    """
    if not settings.variance_gradient_scaling:
        return
    explored = {each.name: each.ends for each in config.hyperparams}
    choices: dict[str, Callable[[Any], Any]] = {"n_epochs": min, "batch_size": max, "vgs_warmup_steps": max}
    worst = {name: choose(explored.get(name, [getattr(settings, name)])) for name, choose in choices.items()}
    steps = optimizer_steps_per_update(
        n_steps=settings.n_steps, n_envs=n_envs, batch_size=worst["batch_size"], n_epochs=worst["n_epochs"]
    )
    try:
        check_interval(config.perturbation_interval, steps, worst["vgs_warmup_steps"])
    except SettingError as error:
        ends = ", ".join(f"{name}={value}" for name, value in worst.items() if name in explored)
        raise SettingError(error.setting, f"{error}{ends and f'; counted at {ends}, which may be explored'}") from error


def _require_effect(name: str, settings: Any, explored: Collection[str]) -> None:
    switch = idle_under(name, settings)
    if switch is not None and switch not in explored:
        raise SettingError(
            f"hyperparams[{list(explored).index(name)}]",
            f"{name} is explored, which would do nothing under {switch}={getattr(settings, switch)!r}; give {switch}, "
            f"or leave {name} out",
        )


def _try(plan: Plan, changes: Mapping[str, HyperparamValue], name: str) -> None:
    """
    :param name: what has just been changed, to blame where the refusal names nothing that is explored
    """
    try:
        plan(changes)
    except SettingError as error:
        blamed = [each for each in changes if each in re.findall(r"\w+", error.setting)] or [name]
        raise type(error)(f"hyperparams[{list(changes).index(blamed[0])}]", str(error)) from error
