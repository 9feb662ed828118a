"""Known bugs of the return scale."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray
from torch import nn

from rlcore.ppo.adaptive import Moments, ReturnScale
from rlcore.ppo.adaptive import ScaleRule as Rule
from rlverify import fault, healthy


@fault("fnd-24-heads-left-uncorrected", target="rlcore.ppo.adaptive:preserve_outputs", pins="517e19cd8815ad66")
def heads_left_uncorrected(layer: nn.Linear, before: Moments, after: Moments) -> None:
    """The statistics move and the critics go on saying what they said under the old ones."""


@fault("fnd-25-scale-of-the-update-before", target="rlcore.ppo.adaptive:ReturnScale.__init__", pins="49dc7b8ea77d3dba")
def scale_of_the_update_before(self: Any, rule: Rule | None = None, decay: float = 0.9, min_std: float = 1e-4) -> None:
    """Whatever is asked for, the documented order: snapshot before the rollout, statistics after the update."""
    healthy("fnd-25-scale-of-the-update-before")(self, rule and "snapshot", decay, min_std)


class _SnapshotAfterTraining(ReturnScale):
    """The snapshot at the end of train(), once the statistics hold the rollout, and not at its start."""

    def before_update(self, returns: NDArray[Any], output_layers: Iterable[nn.Linear]) -> float:  # noqa: ARG002
        """The scale stays that of before the rollout."""
        return 1.0

    def after_update(self, returns: NDArray[Any]) -> None:
        super().after_update(returns)
        self.activate()


@fault("fnd-25-fix-snapshot-after-training", target="rlcore.ppo.adaptive:ReturnScale.__init__", pins="49dc7b8ea77d3dba")
def snapshot_after_training(self: Any, rule: Rule | None = None, decay: float = 0.9, min_std: float = 1e-4) -> None:
    """Document 004: whatever is asked for, a snapshot that is taken when an update is over."""
    healthy("fnd-25-fix-snapshot-after-training")(self, rule and "snapshot", decay, min_std)
    if rule is not None:
        self.__class__ = _SnapshotAfterTraining


class _SnapshotBeforeCollecting(ReturnScale):
    """One snapshot, when a rollout begins, of the latest statistics that there are."""

    def before_update(self, returns: NDArray[Any], output_layers: Iterable[nn.Linear]) -> float:  # noqa: ARG002
        """The snapshot is there."""
        return 1.0


@fault(
    "ppo-02-fix-snapshot-before-collecting", target="rlcore.ppo.adaptive:ReturnScale.__init__", pins="49dc7b8ea77d3dba"
)
def snapshot_before_collecting(self: Any, rule: Rule | None = None, decay: float = 0.9, min_std: float = 1e-4) -> None:
    """The alternative of document 004: whatever is asked for, a snapshot at the start of collecting only."""
    healthy("ppo-02-fix-snapshot-before-collecting")(self, rule and "snapshot", decay, min_std)
    if rule is not None:
        self.__class__ = _SnapshotBeforeCollecting
