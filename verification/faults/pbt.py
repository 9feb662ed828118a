"""Known bugs of the population's scheduler."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlcore.checkpoint.formats import Checkpoint, load_checkpoint
from rlcore.errors import SettingError
from rlcore.pbt.hyperparams import PBTConfig
from rlcore.pbt.scheduler import PopulationMember
from rlverify import fault, healthy


@fault("fnd-01-nobody-exploits", target="rlcore.pbt.scheduler:truncation_count", pins="b08d4100308439d6")
def nobody_exploits(size: int, ratio: float) -> int:
    """Round the share down, which gives 0 in a small population."""
    return int(size * ratio)


@fault("fnd-02-copies-itself", target="rlcore.pbt.scheduler:eligible_sources", pins="c3470a8d7994b9f1")
def copies_itself(
    member: PopulationMember,  # noqa: ARG001
    candidates: Sequence[PopulationMember],
    metric_mode: str,  # noqa: ARG001
) -> list[PopulationMember]:
    """Allow every member of the best group as a source, even the member itself."""
    return list(candidates)


@fault("fnd-03-opponent-drawn-twice", target="rlcore.pbt.scheduler:tournament_source", pins="518d648db52b4ec9")
def opponent_drawn_twice(
    member: PopulationMember, members: Sequence[PopulationMember], config: PBTConfig, generator: np.random.Generator
) -> PopulationMember | None:
    """Draw once to decide whether to copy, and again for the source. A worse second draw is not copied."""
    draw = healthy("fnd-03-opponent-drawn-twice")
    source: PopulationMember | None = None
    if draw(member, members, config, generator) is not None:
        source = draw(member, members, config, generator)
    return source


@fault("fnd-04-all-explore", target="rlcore.pbt.scheduler:PBTScheduler.explores", pins="d3f8301ab1b31387")
def all_explore(self: Any, *, exploited: bool) -> bool:  # noqa: ARG001
    """Explore whether or not the member copied."""
    return True


@fault("fnd-05-nan-compared", target="rlcore.pbt.scheduler:ranking_key", pins="fe8b9ac191c9b5ed")
def nan_compared(member: PopulationMember, metric_mode: str) -> tuple[bool, float]:
    """Sort NaN by comparison, which is always False, so that its member keeps its place."""
    performance = member.performance
    if performance is None:
        return False, 0.0
    return True, performance if metric_mode == "max" else -performance


@fault("fnd-06-missing-file-escapes", target="rlcore.pbt.scheduler:read_source", pins="743dee9ae99d887b")
def missing_file_escapes(source: PopulationMember) -> Checkpoint | None:
    """Open and read the file without checking that it exists and is complete."""
    with Path(str(source.checkpoint_path)).open("rb") as file:
        return load_checkpoint(file)


@fault("fnd-07-global-generators-reseeded", target="rlcore.pbt.scheduler:make_generator", pins="0bf6c66e49612b47")
def global_generators_reseeded(seed: int | None) -> np.random.Generator:
    """Seed all global generators in the constructor."""
    random.seed(seed)
    np.random.seed(seed)
    if seed is not None:
        torch.manual_seed(seed)
    generator: np.random.Generator = healthy("fnd-07-global-generators-reseeded")(seed)
    return generator


@fault("fnd-08-ints-become-floats", target="rlcore.pbt.hyperparams:HyperparamConfig._fitted", pins="c29d576de2e8551e")
def ints_become_floats(self: Any, value: float) -> float:
    """Clip an integer hyperparameter without rounding it."""
    return float(min(max(value, self.min_value), self.max_value))


@fault("fnd-09-log-of-zero", target="rlcore.pbt.hyperparams:HyperparamConfig._check_log_scale", pins="cafe5162047ba61f")
def log_of_zero(self: Any, low: float) -> None:
    """Accept a logarithmic range that starts at 0."""


@fault("fnd-12-files-never-removed", target="rlcore.pbt.scheduler:prune", pins="495fb9f107fdcb86")
def files_never_removed(folder: Path, member: PopulationMember) -> None:
    """Keep every checkpoint of every member."""


@fault(
    "fnd-13-file-written-in-place", target="rlcore.checkpoint.container:_write_through_sibling", pins="3b889adce7ecc5c4"
)
def file_written_in_place(target: Path, content: Any) -> None:
    """Overwrite the old file in place, so that a failed write leaves neither version."""
    with target.open("w+b") as file:
        file.write(content) if isinstance(content, bytes) else content(file)


@fault("fnd-38-warm-up-not-waited-for", target="rlcore.pbt.population:check_warm_up", pins="ff539b3a2a13e853")
def warm_up_not_waited_for(config: PBTConfig, settings: Any, n_envs: int) -> None:
    """Do not check how many optimizer steps come before the first exploit."""


@fault("int-07-fix-interval-times-batch-size", target="rlcore.pbt.population:check_warm_up", pins="ff539b3a2a13e853")
def interval_times_batch_size(config: PBTConfig, settings: Any, n_envs: int) -> None:  # noqa: ARG001
    """Apply document 000's rule: perturbation_interval * update_batch_size > vgs.warmup_steps."""
    if config.perturbation_interval * settings.batch_size <= settings.vgs_warmup_steps:
        raise SettingError("perturbation_interval", "the warm-up is not over by the rule of document 000")


@fault(
    "int-08-two-values-returned",
    target="rlcore.pbt.scheduler:PBTScheduler.exploit_and_explore",
    pins="4bbdc9d99d5498c2",
)
def two_values_returned(self: Any, member: PopulationMember, ranked: Any = None) -> Any:
    """Return parameters and hyperparameters only, as before the fix, without the format."""
    parameters, hyperparams, _ = healthy("int-08-two-values-returned")(self, member, ranked)
    return parameters, hyperparams
