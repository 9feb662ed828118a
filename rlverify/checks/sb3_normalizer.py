"""The statistics of VecNormalize."""

from __future__ import annotations

from typing import Any, Final

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecNormalize

from rlverify.checks.adapter import NotSupportedError

MOMENTS: Final = ("mean", "var", "count")


def normalizer_of(model: BaseAlgorithm) -> VecNormalize:
    """The VecNormalize of a model's environment."""
    found = model.get_vec_normalize_env()
    if found is None:
        raise NotSupportedError("the environment has no VecNormalize")
    return found


def statistics(model: BaseAlgorithm) -> dict[str, Any]:
    """Mean, variance and count of observations, by key of a dictionary space, and of returns."""
    normalizer = normalizer_of(model)
    own = getattr(normalizer, "obs_rms", {})
    observed = own if isinstance(own, dict) else {"": own}
    running = {f"obs_rms[{key!r}]" if key else "obs_rms": value for key, value in observed.items()}
    running["ret_rms"] = normalizer.ret_rms
    return {f"{name}.{moment}": getattr(each, moment) for name, each in running.items() for moment in MOMENTS}
