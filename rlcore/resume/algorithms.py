"""The algorithms whose training can be saved and continued exactly, by the names that files have for them."""

from __future__ import annotations

import inspect
from typing import Final

from sb3_contrib import QRDQN, TQC, TRPO, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm

ALGORITHMS: Final[dict[str, type[BaseAlgorithm]]] = {
    algorithm.__name__: algorithm
    for algorithm in (PPO, A2C, DQN, SAC, TD3, TRPO, RecurrentPPO, TQC, QRDQN, MaskablePPO)
}
"""Exact types: a subclass may keep more than its parent, so it is refused."""

_NOT_READ: Final = frozenset({"policy", "env", "seed", "device", "_init_setup_model"})
_A2C_OPTIMIZER: Final = frozenset({"use_rms_prop", "rms_prop_eps"})  # A2C keeps their effect in policy_kwargs


def setting_names(algorithm: type[BaseAlgorithm]) -> list[str]:
    """Return the parameters of the constructor of ``algorithm`` whose values a model keeps as attributes."""
    left_out = _NOT_READ | _A2C_OPTIMIZER
    return [name for name in inspect.signature(algorithm).parameters if name not in left_out]


def attribute_of(setting: str) -> str:
    """Return the name of the attribute in which a model keeps a setting."""
    return "_stats_window_size" if setting == "stats_window_size" else setting
