"""The generators as they were before gSDE drew the noise of a rollout."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm

from rlcore.state.generators import capture_generators
from rlcore.types import StateDict


class BeforeNoise:
    """Remembers the global generators whenever exploration noise is about to be drawn.

    With gSDE ``collect_rollouts`` draws noise before it calls ``on_rollout_start``, and draws it again when training is
    continued. So what is saved there has to hold the generators from before.

    :param model: with ``use_sde=True``
    """

    def __init__(self, model: BaseAlgorithm) -> None:
        self._owner: Any = getattr(model, "actor", model.policy)
        self._draw = self._owner.reset_noise
        self._owner.reset_noise = self._reset_noise
        self.generators: StateDict = capture_generators()

    def remove(self) -> None:
        """Stop remembering."""
        if vars(self._owner).get("reset_noise") == self._reset_noise:
            del self._owner.reset_noise

    def _reset_noise(self, *arguments: Any, **named: Any) -> None:
        self.generators = capture_generators()
        self._draw(*arguments, **named)
