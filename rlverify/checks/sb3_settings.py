"""Makes models of Stable-Baselines3 with the settings of another, some of them changed."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from rlverify.checks.adapter import UNKNOWN, NotSupportedError

RENAMED: Final = {"policy": "policy_class"}
"""Arguments of constructors that the model keeps under another name."""
NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def arguments(model: BaseAlgorithm) -> dict[str, Any]:
    """The arguments of the constructor that the model keeps as attributes; others have their defaults."""
    kept = {name: RENAMED.get(name, name) for name in _argument_names(type(model))}
    return {name: getattr(model, attribute) for name, attribute in kept.items() if hasattr(model, attribute)}


def _argument_names(kind: type) -> list[str]:
    """The names of a constructor's arguments; those of the classes above it too, as long as it passes on any."""
    found: list[str] = []
    for base in kind.__mro__:
        if "__init__" not in base.__dict__:
            continue
        parameters = list(inspect.signature(base.__dict__["__init__"]).parameters.values())[1:]
        found += [each.name for each in parameters if each.kind in NAMED]
        if all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in parameters):
            break
    return found


def unknown_settings(model: BaseAlgorithm) -> dict[str, dict[str, Any]]:
    """Unknown names in ``policy_kwargs`` and in what it holds, by their place."""
    policy = model.policy_kwargs
    optimizer = {**policy.get("optimizer_kwargs", {}), UNKNOWN: 1}
    changed: dict[str, dict[str, Any]] = {
        f"policy_kwargs[{UNKNOWN!r}]": {UNKNOWN: 1},
        f"policy_kwargs['optimizer_kwargs'][{UNKNOWN!r}]": {"optimizer_kwargs": optimizer},
        f"policy_kwargs['net_arch'][{UNKNOWN!r}]": {"net_arch": {UNKNOWN: [8]}},
    }
    return {place: {"policy_kwargs": {**policy, **change}} for place, change in changed.items()}


def one_sample_settings(model: BaseAlgorithm) -> Mapping[str, Any]:
    """Settings with which a minibatch has one sample."""
    if isinstance(model, OffPolicyAlgorithm):
        return {"batch_size": 1}
    if not isinstance(model, OnPolicyAlgorithm):
        raise NotSupportedError(f"it is not known how {type(model).__name__} forms minibatches")
    samples = model.n_steps * model.n_envs
    if hasattr(model, "batch_size") and samples > 2:
        return {"batch_size": samples - 1}
    if not hasattr(model, "batch_size") and model.n_envs == 1:
        return {"n_steps": 1}
    raise NotSupportedError("no batch size leaves a remainder of one sample")
