"""Known bugs in the files and results that a population uses to copy members."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from rlcore.checkpoint.container import PathOrFile
from rlcore.checkpoint.formats import Checkpoint
from rlcore.pbt.scheduler import PopulationMember
from rlcore.types import StateDict
from rlverify import fault, healthy


@fault(
    "fix-02-file-without-statistics", target="rlcore.pbt.scheduler:save_checkpoint", pins="94de031b1a7a5f7d", area="pbt"
)
def file_without_statistics(path: PathOrFile, parameters: StateDict, *, step: int, performance: float) -> None:
    """Save a member's file without the scaler's statistics."""
    kept: StateDict = {**parameters, "vgs_state": None}
    healthy("fix-02-file-without-statistics")(path, kept, step=step, performance=performance)


@fault("fix-03-older-files-refused", target="rlcore.checkpoint.formats:is_v1", pins="b7f1776b8bacf586", area="pbt")
def older_files_refused(payload: StateDict) -> bool:  # noqa: ARG001
    """Refuse a bare policy state dict as an unknown format."""
    return False


@fault(
    "fix-04-older-files-read-without-a-word",
    target="rlcore.pbt.scheduler:load_checkpoint",
    pins="81449c4ac75252b0",
    area="pbt",
)
def older_files_read_without_a_word(
    path: PathOrFile,
    *,
    map_location: str | torch.device = "cpu",
    require_digest: bool = False,
) -> Checkpoint:
    """Read a file with only a policy without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checkpoint: Checkpoint = healthy("fix-04-older-files-read-without-a-word")(
            path, map_location=map_location, require_digest=require_digest
        )
    return checkpoint


@fault(
    "fix-05-two-results",
    target="rlcore.pbt.scheduler:PBTScheduler.exploit_and_explore",
    pins="4bbdc9d99d5498c2",
    area="pbt",
)
def two_results(self: Any, member: PopulationMember, ranked: Any = None) -> Any:
    """Return parameters and hyperparameters only, as before the fix, without the format."""
    return healthy("fix-05-two-results")(self, member, ranked)[:2]
