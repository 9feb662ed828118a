"""Known bugs of the return scale."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray
from torch import nn

from rlcore.ppo.returns import Moments, ReturnScale, Rule, SnapshotReturnScale
from rlverify import fault


@fault("fnd-24-heads-left-uncorrected", target="rlcore.ppo.returns:preserve_outputs", pins="f2039fb1cbc45fa7")
def heads_left_uncorrected(layer: nn.Linear, before: Moments, after: Moments) -> None:
    """The statistics move and the critics go on saying what they said under the old ones."""


@fault("fnd-25-scale-of-the-update-before", target="rlcore.ppo.returns:make_return_scale", pins="97fbfe9d51c92e37")
def scale_of_the_update_before(rule: Rule | None, decay: float, min_std: float) -> ReturnScale:
    """Whatever is asked for, the documented order: snapshot before the rollout, statistics after the update."""
    return ReturnScale() if rule is None else SnapshotReturnScale(decay, min_std)


class _SnapshotAfterTraining(SnapshotReturnScale):
    """The snapshot at the end of train(), once the statistics hold the rollout, and not at its start."""

    def before_update(self, returns: NDArray[Any], output_layers: Iterable[nn.Linear]) -> float:  # noqa: ARG002
        """The scale stays that of before the rollout."""
        return 1.0

    def after_update(self, returns: NDArray[Any]) -> None:
        super().after_update(returns)
        self.activate()


@fault("fnd-25-fix-snapshot-after-training", target="rlcore.ppo.returns:make_return_scale", pins="97fbfe9d51c92e37")
def snapshot_after_training(rule: Rule | None, decay: float, min_std: float) -> ReturnScale:
    """Document 004: whatever is asked for, a snapshot that is taken when an update is over."""
    return ReturnScale() if rule is None else _SnapshotAfterTraining(decay, min_std)


class _SnapshotBeforeCollecting(SnapshotReturnScale):
    """One snapshot, when a rollout begins, of the latest statistics that there are."""

    def before_update(self, returns: NDArray[Any], output_layers: Iterable[nn.Linear]) -> float:  # noqa: ARG002
        """The snapshot is there."""
        return 1.0


@fault("ppo-02-fix-snapshot-before-collecting", target="rlcore.ppo.returns:make_return_scale", pins="97fbfe9d51c92e37")
def snapshot_before_collecting(rule: Rule | None, decay: float, min_std: float) -> ReturnScale:
    """The alternative of document 004: whatever is asked for, a snapshot at the start of collecting only."""
    return ReturnScale() if rule is None else _SnapshotBeforeCollecting(decay, min_std)
