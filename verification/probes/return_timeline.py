"""Which update's return statistics each part of an update uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from torch import Tensor

from rlcore import DistributionalPPO
from rlverify import Observation, probe
from verification.probes.make import Make

UPDATE = 96
"""Steps from one update of a small model to the next."""

Scale = tuple[float, float]


class _Timeline(BaseCallback):
    """Records the snapshot when a rollout begins and when targets are scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.collecting: list[Scale] = []
        self.training: list[Scale] = []

    def watch(self, model: DistributionalPPO) -> None:
        """Record the snapshot at every scaling of targets."""
        scale, normalise = model.value_scale, model.value_scale.normalise

        def watched(returns: Tensor) -> Tensor:
            self.training.append(scale.snapshot)
            return normalise(returns)

        scale.normalise = watched  # type: ignore[method-assign]

    def _on_rollout_start(self) -> None:
        assert isinstance(self.model, DistributionalPPO)
        self.collecting.append(self.model.value_scale.snapshot)

    def _on_step(self) -> bool:
        return True


@probe("an-update-works-with-its-own-statistics")
def an_update_works_with_its_own_statistics(make: Make, seed: int) -> Sequence[Observation]:
    """Train three updates, with statistics of the last rollout only, so that they identify their update."""
    model, timeline = make.model(seed, n_epochs=1, return_scale_decay=0.0), _Timeline()
    timeline.watch(model)
    of_updates: list[Scale] = []
    for _ in range(3):
        timeline.training.clear()
        model.learn(model.n_steps * model.n_envs, timeline, reset_num_timesteps=False)
        returns = model.rollout_buffer.returns.astype(np.float64)
        of_updates.append((float(returns.mean()), float(returns.std())))
    collecting, training = timeline.collecting[-1], timeline.training[0]
    return [
        _of("update whose statistics update 3 uses to collect", 2, of_updates, collecting),
        _of("update whose statistics update 3 uses to train", 3, of_updates, training),
        _of("update whose statistics are in use after update 3", 3, of_updates, model.value_scale.snapshot),
    ]


def _of(symptom: str, expected: int, of_updates: Sequence[Scale], found: Scale) -> Observation:
    fitting = [number for number, each in enumerate(of_updates, start=1) if np.allclose(each, found, rtol=1e-5)]
    return Observation(symptom, str(expected), ", ".join(map(str, fitting)) or "none", holds=fitting == [expected])


@probe("moving-the-snapshot-changes-what-is-learnt")
def moving_the_snapshot_changes_what_is_learnt(make: Make, seed: int) -> Sequence[Observation]:
    """Train two identical models, with the snapshot in the documented and in the proposed place."""
    found, moved = (_trained(make, seed, is_moved) for is_moved in (False, True))
    pairs = zip(found.policy.state_dict().values(), moved.policy.state_dict().values(), strict=True)
    other = not all(torch.equal(one, another) for one, another in pairs)
    held = [model.get_parameters()["return_scale_state"]["std_snapshot"] for model in (found, moved)]
    saved = held[0] != held[1]
    return [
        Observation(
            "weights after four updates, compared with the documented order",
            "different",
            "different" if other else "the same",
            holds=other,
        ),
        Observation(
            "saved return scale after four updates, compared with the documented order",
            "different",
            "different" if saved else "the same",
            holds=saved,
        ),
    ]


def _trained(make: Make, seed: int, is_moved: bool) -> DistributionalPPO:
    """Building a model seeds every generator, so two models trained right after construction draw the same numbers."""
    model = make.model(seed, return_scale="snapshot", n_epochs=1)
    if is_moved:
        move_to_the_end(model)
    return model.learn(4 * UPDATE)


def move_to_the_end(model: DistributionalPPO) -> None:
    """Apply the document's FIX #1 to ``return_scale="snapshot"``: snapshot at the end of train(), not at its start."""
    scale = model.value_scale
    measure = scale.after_update

    def before_update(returns: NDArray[Any], output_layers: Any) -> float:  # noqa: ARG001
        return 1.0

    def after_update(returns: NDArray[Any]) -> None:
        measure(returns)
        scale.activate()

    scale.before_update = before_update  # type: ignore[method-assign]
    scale.after_update = after_update  # type: ignore[method-assign]
