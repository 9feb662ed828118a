"""Members of a population that are real models, each of which trains in a fraction of a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlcore import DistributionalPPO, HyperparamConfig, PBTConfig, PBTScheduler, Population, apply_exploit
from tests.support.population_run import CONFIG, build_model
from tests.support.schedulers import make_scheduler
from tests.support.steps import tiny, train

EXPLORED = [
    HyperparamConfig("learning_rate", min_value=1e-4, max_value=1e-2, is_log_scale=True),
    HyperparamConfig("sigma", min_value=1e-3, max_value=1e-2),
    HyperparamConfig("vf_coef", min_value=0.1, max_value=1.0),
    HyperparamConfig("vgs_alpha", min_value=0.05, max_value=2.0),
]


def report(scheduler: PBTScheduler, models: list[DistributionalPPO], scores: list[float], step: int) -> None:
    """Let every member report its score and everything that it has learnt."""
    for member, model, score in zip(scheduler.population, models, scores, strict=True):
        scheduler.update_performance(member, score, step, model_parameters=model.get_parameters())


def exploit(scheduler: PBTScheduler, models: list[DistributionalPPO], **options: Any) -> list[int]:
    """Let every member copy and explore; the members that copied."""
    copied = []
    for member, model in zip(scheduler.population, models, strict=True):
        parameters, hyperparams, _ = scheduler.exploit_and_explore(member)
        if parameters is not None:
            apply_exploit(model, parameters, hyperparams, **options)
            copied.append(member.member_id)
    return copied


def population_of_two(folder: Path) -> Population:
    """Copies after every second update; the member of the smaller learning rate is the better one, for certain."""
    config = PBTConfig(**{**CONFIG, "population_size": 2, "truncation_ratio": 0.2, "perturbation_interval": 2})
    return Population(build_model, config, folder=folder, seed=5, performance=lambda model: -model.lr_schedule(1.0))


def pair(folder: Path, **settings: Any) -> tuple[PBTScheduler, list[DistributionalPPO]]:
    """A worse member of one update and a better one of three, both reported."""
    scheduler = make_scheduler(folder, size=2, hyperparams=EXPLORED)
    models = [tiny(seed, **settings) for seed in (0, 1)]
    for model, updates in zip(models, (1, 3), strict=True):
        train(model, updates)
    report(scheduler, models, [0.1, 0.9], 5)
    return scheduler, models
