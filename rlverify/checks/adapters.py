"""Finds the adapter of a model by the classes that it derives from."""

from __future__ import annotations

import importlib
from typing import Any

from rlverify.checks.adapter import Adapter

SB3 = "stable_baselines3.common.base_class.BaseAlgorithm"


def adapter_name(model: Any) -> str:
    """``sb3`` for an algorithm of Stable-Baselines3 or sb3-contrib, otherwise ``plain``."""
    return "sb3" if SB3 in {f"{base.__module__}.{base.__qualname__}" for base in type(model).__mro__} else "plain"


def adapter_named(name: str) -> Adapter:
    """The adapter of a name that `adapter_name` gave."""
    if name == "plain":
        return Adapter()
    adapter: Adapter = importlib.import_module("rlverify.checks.sb3").SB3Adapter()
    return adapter
