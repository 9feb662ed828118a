"""Files that callbacks write next to a model file, and whether they belong to it."""

from __future__ import annotations

from typing import Final

from stable_baselines3.common.callbacks import BaseCallback, CallbackList, CheckpointCallback, EventCallback

STATISTICS_APART: Final = (
    "CheckpointCallback(save_vecnormalize=True) writes statistics that do not belong to the model file of the same "
    "name: a model file holds the state in which the rollout began, and the other file that of a later step. The model "
    "file has its own statistics, which load() gives to the environments; set save_vecnormalize=False."
)


def writes_statistics_apart(callback: BaseCallback) -> bool:
    """Whether a callback, or one that it calls, saves VecNormalize's statistics in a file of their own."""
    if isinstance(callback, CallbackList):
        return any(writes_statistics_apart(each) for each in callback.callbacks)
    if isinstance(callback, EventCallback) and callback.callback is not None:
        return writes_statistics_apart(callback.callback)
    return isinstance(callback, CheckpointCallback) and callback.save_vecnormalize
