"""What the population's scheduler decides, and what it does to files and generators."""

from __future__ import annotations

import math
import random
import resource
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlcore import PBTScheduler, PopulationMember, ResumeWarning, RLCoreError
from rlverify import Observation, probe
from verification.probes.make import Make, equal

LR = {"name": "learning_rate", "min_value": 1e-5, "max_value": 1e-3}
EPOCHS = {"name": "n_epochs", "min_value": 1, "max_value": 12}
FROM_ZERO = {"name": "ent_coef", "min_value": 0.0, "max_value": 1.0, "is_log_scale": True}
DRAWS = 1000


@probe("small-populations-exploit")
def small_populations_exploit(make: Make, seed: int) -> Sequence[Observation]:
    """Count the members of a small population that copy another, at the default ratio."""
    observations = []
    for size in (2, 3, 4, 5):
        scheduler = _scheduler(make, seed, population_size=size)
        _perform(scheduler, range(size))
        copying = sum(scheduler.choose_source(member) is not None for member in scheduler.population)
        observations.append(equal(f"members that copy another, population of {size}", 1, copying))
    return observations


@probe("nobody-copies-itself")
def nobody_copies_itself(make: Make, seed: int) -> Sequence[Observation]:
    """Check whom members copy where the best and the worst group overlap."""
    observations = []
    for ratio in (0.5, 0.8):
        scheduler = _scheduler(make, seed, truncation_ratio=ratio)
        _perform(scheduler, range(10))
        pairs = [(member, scheduler.choose_source(member)) for member in scheduler.population for _ in range(50)]
        own = sum(source is member for member, source in pairs)
        observations.append(
            Observation(f"members that copy themselves, truncation_ratio {ratio}", "0", _some(own), holds=own == 0)
        )
    return observations


@probe("tournament-copies-as-often-as-one-draw-says")
def tournament_copies_as_often_as_one_draw_says(make: Make, seed: int) -> Sequence[Observation]:
    """Measure how often the sixth of ten copies. 5 of 9 opponents are better, so one draw gives 0.556."""
    scheduler = _scheduler(make, seed, exploit_method="binary_tournament")
    _perform(scheduler, range(10))
    sixth = scheduler.population[4]
    share = sum(scheduler.choose_source(sixth) is not None for _ in range(DRAWS)) / DRAWS
    shares = {"5/9": 5 / 9, "(5/9)^2": (5 / 9) ** 2}
    found = next((name for name, of_draws in shares.items() if _is_share(share, of_draws)), f"{share:.3f}")
    return [equal("probability that the sixth of ten members copies", "5/9", found)]


def _is_share(measured: float, expected: float) -> bool:
    return abs(measured - expected) < 5 * math.sqrt(expected * (1 - expected) / DRAWS)


@probe("only-who-copied-explores")
def only_who_copied_explores(make: Make, seed: int) -> Sequence[Observation]:
    """Check whose hyperparameters change when every member of a population is due."""
    with tempfile.TemporaryDirectory() as folder:
        scheduler = _reported(make, seed, folder, explore_method="perturb")
        before = [dict(member.hyperparams) for member in scheduler.population]
        copied = [scheduler.exploit_and_explore(member)[0] is not None for member in scheduler.population]
    changed = [member.hyperparams != old for member, old in zip(scheduler.population, before, strict=True)]
    idle = [change for change, copy in zip(changed, copied, strict=True) if not copy]
    return [
        Observation("members that copied and explored", "1 of 1", _of(changed[:1]), holds=copied[0] and changed[0]),
        Observation("members that explored without copying", "0 of 3", _of(idle), holds=not any(idle)),
        Observation("best member explored", "no", _yes(changed[-1]), holds=not changed[-1]),
    ]


@probe("nan-ranks-last")
def nan_ranks_last(make: Make, seed: int) -> Sequence[Observation]:
    """Check the rank of a diverged member, and whether it copies another."""
    observations = []
    for mode in ("max", "min"):
        scheduler = _scheduler(make, seed, population_size=4, metric_mode=mode)
        _perform(scheduler, (math.nan, 1.0, 2.0, 3.0))
        diverged = scheduler.population[0]
        place = scheduler.ranked().index(diverged) + 1
        copies = scheduler.choose_source(diverged) is not None
        observations += [
            equal(f"rank of a NaN score among 4, metric_mode={mode}", 4, place),
            Observation(f"diverged member copies another, metric_mode={mode}", "yes", _yes(copies), holds=copies),
        ]
    return observations


@probe("missing-checkpoint-leaves-the-member")
def missing_checkpoint_leaves_the_member(make: Make, seed: int) -> Sequence[Observation]:
    """Exploit when the files of all other members are missing."""
    with tempfile.TemporaryDirectory() as folder:
        scheduler = _reported(make, seed, folder)
        worst, *others = scheduler.population
        paths = [Path(str(each.checkpoint_path)) for each in others]
        for path in paths:
            path.unlink()
        before = dict(worst.hyperparams)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            outcome = _outcome(scheduler, worst)
    words = [str(warning.message) for warning in caught if issubclass(warning.category, ResumeWarning)]
    told = sum(path.name in each for path in paths for each in words)
    kept = worst.hyperparams == before and scheduler.exploitation_count == 0
    return [
        equal("exploit of a missing file", "nothing copied", outcome),
        equal("warnings that name the missing file", 1, told),
        Observation("member and counters unchanged", "yes", _yes(kept), holds=kept),
    ]


@probe("global-generators-stay")
def global_generators_stay(make: Make, seed: int) -> Sequence[Observation]:
    """Check that building and using a scheduler leaves the global generators unchanged."""
    # A generator already seeded with the same seed would look unchanged.
    random.random(), np.random.random(), torch.rand(1)
    before = _generators()
    scheduler = _scheduler(make, seed)
    _perform(scheduler, range(10))
    scheduler.choose_source(scheduler.population[0])
    after = _generators()
    return [
        Observation(
            f"state of the global generator of {name}", "unchanged", "unchanged" if same else "reseeded", holds=same
        )
        for name, same in ((name, after[name] == before[name]) for name in before)
    ]


def _generators() -> dict[str, object]:
    """The whole state of every global generator, in values that compare bit by bit."""
    _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "random": random.getstate(),
        "numpy": (np.asarray(keys).tobytes(), position, has_gauss, cached),
        "torch": torch.get_rng_state().numpy().tobytes(),
    }


@probe("ints-stay-ints")
def ints_stay_ints(make: Make, seed: int) -> Sequence[Observation]:
    """Draw and perturb a hyperparameter with an integer range. Check the types."""
    (config,) = make.scheduler(seed, hyperparams=[EPOCHS]).config.hyperparams
    generator = np.random.default_rng(seed)
    drawn = [config.resample(generator) for _ in range(20)]
    perturbed = [config.perturb(5, generator) for _ in range(20)]
    return [
        equal(f"types of {what} values", "int", _types(values))
        for what, values in (("drawn", drawn), ("perturbed", perturbed))
    ]


@probe("log-scale-needs-a-range-above-zero")
def log_scale_needs_a_range_above_zero(make: Make, seed: int) -> Sequence[Observation]:
    """Configure a logarithmic range that starts at 0."""
    found = _first_draw(make, seed)
    return [equal("logarithmic range that starts at 0", "refused", found)]


@probe("older-checkpoints-are-removed")
def older_checkpoints_are_removed(make: Make, seed: int) -> Sequence[Observation]:
    """Count a member's files after ten reports."""
    with tempfile.TemporaryDirectory() as folder:
        scheduler = _scheduler(make, seed, population_size=2, checkpoint_dir=folder)
        member = scheduler.population[0]
        for step in range(10):
            scheduler.update_performance(member, 0.0, step, model_parameters=_parameters(1))
        files = len(list(Path(folder).iterdir()))
        newest = Path(str(member.checkpoint_path)).exists()
    return [
        Observation("checkpoint files after 10 reports", "2", str(files), holds=files <= 2),
        Observation("newest checkpoint file exists", "yes", _yes(newest), holds=newest),
    ]


@probe("failed-write-keeps-the-old-checkpoint")
def failed_write_keeps_the_old_checkpoint(make: Make, seed: int) -> Sequence[Observation]:
    """Report all members but one twice for one step, the second time on a full disk. Then let that one copy."""
    with tempfile.TemporaryDirectory() as folder:
        scheduler = _reported(make, seed, folder)
        worst, *others = scheduler.population
        with _file_size_limit(4096):
            failed = all(_raises(scheduler, each) for each in others)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResumeWarning)
            outcome = _outcome(scheduler, worst)
    return [
        Observation("failed write", "raises an error", "raises an error" if failed else "raises nothing", holds=failed),
        equal("exploit after a failed write", "copied", outcome),
    ]


def _scheduler(make: Make, seed: int, **settings: Any) -> PBTScheduler:
    scheduler = make.scheduler(seed, **{"hyperparams": [LR, EPOCHS], **settings})
    scheduler.initialize_population()
    return scheduler


def _perform(scheduler: PBTScheduler, performances: Sequence[float]) -> None:
    for member, performance in zip(scheduler.population, performances, strict=True):
        member.performance = float(performance)


def _reported(make: Make, seed: int, folder: str, **settings: Any) -> PBTScheduler:
    """Four members that saved parameters. The first is the worst, the last the best."""
    scheduler = _scheduler(make, seed, population_size=4, checkpoint_dir=folder, **settings)
    for member in scheduler.population:
        scheduler.update_performance(member, float(member.member_id), 5, model_parameters=_parameters(1))
    return scheduler


def _parameters(size: int) -> Any:
    return {"policy": {"weight": torch.ones(size)}, "policy.optimizer": {"state": {}, "param_groups": []}}


def _outcome(scheduler: PBTScheduler, member: PopulationMember) -> str:
    try:
        parameters, _, _ = scheduler.exploit_and_explore(member)
    except (OSError, RLCoreError) as error:
        return type(error).__name__
    return "nothing copied" if parameters is None else "copied"


def _raises(scheduler: PBTScheduler, member: PopulationMember) -> bool:
    try:
        scheduler.update_performance(member, 9.0, member.step, model_parameters=_parameters(100_000))
    except (OSError, RLCoreError):
        return True
    return False


def _first_draw(make: Make, seed: int) -> str:
    try:
        (config,) = make.scheduler(seed, hyperparams=[FROM_ZERO]).config.hyperparams
    except RLCoreError:
        return "refused"
    with np.errstate(all="ignore"):
        drawn = config.resample(np.random.default_rng(seed))
    return "accepted, draws NaN" if isinstance(drawn, float) and math.isnan(drawn) else "accepted, draws a number"


@contextmanager
def _file_size_limit(limit: int) -> Iterator[None]:
    """Let no file grow beyond ``limit`` bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _types(values: Sequence[object]) -> str:
    return ", ".join(sorted({type(value).__name__ for value in values}))


def _of(flags: Sequence[bool]) -> str:
    return f"{sum(flags)} of {len(flags)}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _some(count: int) -> str:
    return "some" if count else "0"
