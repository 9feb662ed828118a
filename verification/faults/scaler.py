"""Known bugs of variance gradient scaling."""

from __future__ import annotations

import copy
from typing import Any

from verification.faults import fault, healthy


@fault(
    "bug-09-scaler-linked-to-copies",
    target="rlcore.ppo.algorithm:DistributionalPPO._relink_scaler",
    pins="371e0a30d498e201",
)
def scaler_linked_to_copies(self: Any) -> None:
    """After a restore the scaler holds copies of the parameters, as one that travelled in a pickle does."""
    if self.variance_gradient_scaler is not None:
        self.variance_gradient_scaler.update_parameters(copy.deepcopy(list(self.policy.parameters())))


@fault(
    "bug-10-relink-wipes-statistics",
    target="rlcore.optim.scaler:VarianceGradientScaler.update_parameters",
    pins="ecda64dc06bc76e8",
)
def relink_wipes_statistics(self: Any, parameters: Any) -> None:
    """Relinking forgets what was measured of every tensor, while the step count survives."""
    healthy("bug-10-relink-wipes-statistics")(self, parameters)
    step_count, averages, global_observations = self._step_count, self._global_averages, self._global_observations
    self.reset_statistics()
    self._step_count, self._global_averages, self._global_observations = step_count, averages, global_observations


@fault(
    "bug-04-rebuilding-without-relinking",
    target="rlcore.ppo.algorithm:DistributionalPPO.rebuild_optimizer",
    pins="a1b7abc3b26ad761",
)
def rebuilding_without_relinking(self: Any) -> None:
    """The optimizer is rebuilt, the scaler keeps the references that it had."""
    self.policy.rebuild_optimizer()
