"""Whether the document's reset of LSTM states adds anything to a policy that resets them itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sb3_contrib.common.recurrent.type_aliases import RNNStates

from rlcore import DistributionalPPO
from rlverify import Observation, probe
from verification.probes.make import Make


@probe("a-reset-of-states-changes-what-is-learnt")
def a_reset_of_states_changes_what_is_learnt(make: Make, seed: int) -> Sequence[Observation]:
    """Train two identical models, one with the document's reset in the rollout loop."""

    class Resetting(make.algorithm):  # type: ignore[name-defined, misc]
        """Sets the LSTM states of environments whose episode has just ended to zero, in place."""

        zeroed = 0

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "_last_lstm_states" and isinstance(value, RNNStates) and self._last_episode_starts is not None:
                ended = torch.as_tensor(self._last_episode_starts, dtype=torch.bool)
                for state in (*value.pi, *value.vf):
                    type(self).zeroed += int((state[:, ended] != 0).sum())
                    state[:, ended] = 0.0
            super().__setattr__(name, value)

    plain, resetting = (_trained(each, seed) for each in (make, Make(algorithm=Resetting)))
    pairs = zip(plain.policy.state_dict().values(), resetting.policy.state_dict().values(), strict=True)
    others = not all(torch.equal(one, other) for one, other in pairs)
    acted = Resetting.zeroed > 0
    return [
        Observation("LSTM state entries that the reset changes", "some", "some" if acted else "none", acted),
        Observation(
            "weights trained with the reset, compared with none",
            "different",
            "different" if others else "the same",
            others,
        ),
    ]


def _trained(make: Make, seed: int) -> DistributionalPPO:
    """Building a model seeds every generator, so two models trained right after construction draw the same numbers."""
    return make.model(seed, n_epochs=1).learn(288)
