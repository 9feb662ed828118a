"""Subjects: what is checked, and how to talk to it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from rlverify.checks.adapter import Adapter


@dataclass(frozen=True)
class Subject:
    """An algorithm to be checked.

    :param factory: makes a fresh model, with its environment and seeds
    :param adapter: how to talk to it; None to find that out from the model
    :param expected_failures: reasons for which rules may fail, by name of the rule; such a rule has to fail
    :param limit: seconds that each process of a check may take
    """

    name: str
    factory: Callable[[], Any]
    adapter: Adapter | None = None
    expected_failures: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    limit: float = 60.0

    def reproduction(self, check: str) -> str:
        """Lines that run one check of this subject again."""
        module, name = getattr(self.factory, "__module__", ""), getattr(self.factory, "__qualname__", "")
        if not name.isidentifier() or module in ("", "__main__"):
            return f"check_algorithm(factory, checks=[{check!r}])  # factory: that of {self.name}"
        return (
            "from rlverify.checks import check_algorithm\n"
            f"from {module} import {name}\n"
            f"print(check_algorithm({name}, checks=[{check!r}]))"
        )


def subject(
    factory: Callable[[], Any] | Any,
    *,
    name: str = "",
    adapter: Adapter | None = None,
    expected_failures: Mapping[str, str] | None = None,
    limit: float = 60.0,
) -> Subject:
    """A subject for the checks.

    :param factory: makes a model; or a model itself, of which every check gets a copy
    :param name: by default that of the factory or of the model's class; of a lambda, give one
    :param adapter: how to talk to the model; Stable-Baselines3 and sb3-contrib need none
    :param expected_failures: reasons for which rules may fail, by name of the rule. Strict: if such a rule passes, that
        is reported, so that the reason is removed
    :param limit: seconds that each process of a check may take
    """
    is_model = not isinstance(factory, type) and hasattr(factory, "learn")  # some models can be called, too
    if is_model or not callable(factory):
        model = factory
        return Subject(
            name or type(model).__name__, lambda: copy.deepcopy(model), adapter, expected_failures or {}, limit
        )
    plain = getattr(factory, "__name__", type(factory).__name__)
    shown = name or ("subject" if plain == "<lambda>" else plain)
    return Subject(shown, factory, adapter, expected_failures or {}, limit)
