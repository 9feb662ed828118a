"""Subjects: what is checked, how to talk to it, and the lines that check it again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from rlverify.checks.adapters.adapter import Adapter
from rlverify.checks.engine.check_records import CheckFinding, ExpectedFailures
from rlverify.checks.engine.isolation import Server
from rlverify.checks.engine.rule import RULES, Rule
from rlverify.checks.engine.session import TIERS, SubjectSession, Tier, TierName, tier_named
from rlverify.checks.engine.twins import Twin
from rlverify.checks.state.parts import is_module


@dataclass
class Runs:
    """What is known about a subject after some checks.

    :param session: what runs it, or the finding of every check if it cannot be made; None before the first check
    :param reported: rules whose finding was reported; asked again, they are run again
    :param twin: what `twin_of` gave, or nothing before the first failure
    :param server: a process with a trained model, of which each process of a check is a fork; None if there is none. It
        ends with this object
    """

    session: SubjectSession | CheckFinding | None = None
    findings: dict[str, CheckFinding] = field(default_factory=dict)
    reported: set[str] = field(default_factory=set)
    seconds: float = 0.0
    twin: tuple[Twin | None, ...] = ()
    server: Server | None = None


@dataclass(frozen=True)
class Subject:
    """An algorithm to be checked.

    :param factory: makes a fresh model, with its environment and seeds
    :param adapter: how to talk to it; None to find that out from the model
    :param expected_failures: reasons for which rules may fail, or `KnownFailure`, by name of the rule; such a rule has
        to fail
    :param strict: whether failures count that the library's own class has as well
    :param as_is: whether settings that only cost time stay as they are
    :param rules: the checks of a suite, by name; None for all rules that there are
    :param door: the function that checks it, if it is no algorithm
    """

    name: str
    factory: Callable[[], Any]
    adapter: Adapter | None = None
    expected_failures: ExpectedFailures = field(default_factory=lambda: MappingProxyType({}))
    limit: float = 60.0
    tier: Tier = TIERS["default"]
    strict: bool = False
    as_is: bool = False
    rules: Mapping[str, Rule] | None = None
    door: str = ""
    runs: Runs = field(default_factory=Runs, init=False, repr=False, compare=False)

    @property
    def known_rules(self) -> dict[str, Rule]:
        """All rules that can be run on it, by name: those of the suite, and those for any algorithm."""
        return {**RULES, **(self.rules or {})}

    def reproduction(self, check: str) -> str:
        """Return a line that runs one check of this subject again, or says where to find its factory."""
        if self.door:
            return f"{self.door}(factory, checks=[{check!r}])  # factory: that of {self.name}"
        if self.rules is not None:
            return f"# `rlverify check MODULE:SUITE --check {check}`, where MODULE defines the suite"
        return f"# run check_algorithm with checks=[{check!r}] on the factory in {_place(self.factory)}"


def subject(
    factory: Callable[[], Any] | Any,
    *,
    name: str = "",
    adapter: Adapter | None = None,
    expected_failures: ExpectedFailures | None = None,
    limit: float = 60.0,
    tier: TierName = "default",
    strict: bool = False,
    as_is: bool = False,
) -> Subject:
    """A subject for the checks.

    :param factory: makes a model; or a model itself, of which every check gets a copy
    :param name: by default that of the factory or of the model's class; of a lambda, give one
    :param adapter: how to talk to the model; Stable-Baselines3 and sb3-contrib need none
    :param expected_failures: reasons for which rules may fail, or `KnownFailure`, by name of the rule. Strict: if such
        a rule passes, that is reported, so that the reason is removed
    :param limit: seconds that each process of a check may take
    :param tier: in ``smoke``, no check starts after seven seconds and none is proven; ``full`` has more proofs
    :param strict: whether failures count that the library's own class has as well, of which the model is or derives
    :param as_is: whether settings that only cost time, such as the length of a rollout, stay as they are
    :raises ValueError: if there is no such tier, or an argument cannot be used
    """
    check_settings(adapter, limit)
    is_model = not callable(factory) or is_module(factory)
    if is_model or (hasattr(factory, "learn") and not isinstance(factory, type)):
        made, plain = (lambda: copy.deepcopy(factory)), type(factory).__name__
    else:
        made, plain = factory, getattr(getattr(factory, "func", factory), "__name__", type(factory).__name__)
    shown = name or ("subject" if plain == "<lambda>" else plain)
    return Subject(shown, made, adapter, expected_failures or {}, limit, tier_named(tier), strict, as_is)


def check_settings(adapter: object, limit: object) -> None:
    """
    :raises ValueError: if an adapter is no object of a class with its methods, or a limit no positive number
    """
    if adapter is not None and not isinstance(adapter, Adapter):
        advice = "; call it" if isinstance(adapter, type) else ""
        raise ValueError(f"adapter={adapter!r:.60} is no Adapter{advice}")
    if isinstance(limit, bool) or not isinstance(limit, int | float) or limit <= 0:
        raise ValueError(f"limit={limit!r} is no positive number of seconds")


def _place(factory: Any) -> str:
    code = getattr(factory, "__code__", None)
    return f"{code.co_filename}, line {code.co_firstlineno}" if code is not None else repr(type(factory).__qualname__)
