"""The parts of a running training, in the order in which they are restored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from stable_baselines3.common.base_class import BaseAlgorithm

from rlcore.resume.buffers import capture_buffer, restore_buffer
from rlcore.resume.environments import capture_env, restore_env
from rlcore.resume.generators import with_action_space
from rlcore.resume.learnt import capture_learnt, restore_learnt
from rlcore.resume.log import capture_log, restore_log
from rlcore.resume.noise import capture_noise, restore_noise
from rlcore.resume.position import capture_position, restore_position
from rlcore.state.progress import capture_progress, restore_progress
from rlcore.types import StateDict


class Part(NamedTuple):
    """One part of a running training.

    :param capture: gives its present state, or None where there is nothing to save; it may share memory with the model
    :param restore: restores a state; raises StateError if it does not fit
    """

    capture: Callable[[BaseAlgorithm], StateDict | None]
    restore: Callable[[BaseAlgorithm, Any], None]


def _noise_of(model: BaseAlgorithm) -> StateDict | None:
    return capture_noise(model.action_noise)


def _put_noise(model: BaseAlgorithm, state: StateDict | None) -> None:
    restore_noise(model.action_noise, state)


PARTS: dict[str, Part] = {
    "learnt": Part(capture_learnt, restore_learnt),
    "replay_buffer": Part(capture_buffer, restore_buffer),
    "action_noise": Part(_noise_of, _put_noise),
    "progress": Part(capture_progress, restore_progress),
    "log": Part(capture_log, restore_log),
    "position": Part(capture_position, restore_position),
    "environments": Part(capture_env, restore_env),
}
"""All parts but the generators, which come last."""

GENERATORS = "generators"


def capture_parts(model: BaseAlgorithm, global_generators: StateDict) -> StateDict:
    """Return the state of every part by name.

    :param global_generators: their states where training is to go on
    """
    captured: StateDict = {name: part.capture(model) for name, part in PARTS.items()}
    return {**captured, GENERATORS: with_action_space(model, global_generators)}
