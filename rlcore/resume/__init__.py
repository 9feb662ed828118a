"""Exact resume of Stable-Baselines3's algorithms: save a running training, and continue it bit by bit."""

from rlcore.envs.adapters import PickledEnv, ResumableActionMasker, resumable_mujoco
from rlcore.resume.callback import SaveExactly, continue_learning, newest_exact
from rlcore.resume.file import load_exact, save_exact

__all__ = [
    "PickledEnv",
    "ResumableActionMasker",
    "SaveExactly",
    "continue_learning",
    "load_exact",
    "newest_exact",
    "resumable_mujoco",
    "save_exact",
]
