"""Subjects: what is checked, how to talk to it, and the lines that check it again."""

from __future__ import annotations

import ast
import copy
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from rlverify.checks.adapters.adapter import Adapter
from rlverify.checks.engine.check_records import CheckFinding, ExpectedFailures
from rlverify.checks.engine.rule import RULES, Rule
from rlverify.checks.engine.session import TIERS, SubjectSession, Tier, TierName, tier_named
from rlverify.checks.state.leaves import NUMBERS
from rlverify.checks.state.parts import is_module
from rlverify.records.attempts import Crash, attempt


@dataclass
class Runs:
    """What is known about a subject after some checks.

    :param session: what runs it, or the finding of every check if it cannot be made; None before the first check
    :param findings: by rule
    :param reported: rules whose finding was reported; asked again, they are run again
    :param seconds: that the checks have taken
    """

    session: SubjectSession | CheckFinding | None = None
    findings: dict[str, CheckFinding] = field(default_factory=dict)
    reported: set[str] = field(default_factory=set)
    seconds: float = 0.0


@dataclass(frozen=True)
class Subject:
    """An algorithm to be checked.

    :param factory: makes a fresh model, with its environment and seeds
    :param adapter: how to talk to it; None to find that out from the model
    :param expected_failures: reasons for which rules may fail, or `KnownFailure`, by name of the rule; such a rule has
        to fail
    :param limit: seconds that each process of a check may take
    :param tier: ``smoke``, ``default`` or ``full``; see `rlverify.checks.engine.session`
    :param rules: the checks of a suite, by name; None for all rules that there are
    :param under_test: dotted names of the packages that a suite is about; empty if that is not known
    :param door: the function that checks it, if it is no algorithm
    :param runs: what the tests of one subject share, so that each does not run again what it rests on
    """

    name: str
    factory: Callable[[], Any]
    adapter: Adapter | None = None
    expected_failures: ExpectedFailures = field(default_factory=lambda: MappingProxyType({}))
    limit: float = 60.0
    tier: Tier = TIERS["default"]
    rules: Mapping[str, Rule] | None = None
    under_test: tuple[str, ...] = ()
    door: str = ""
    runs: Runs = field(default_factory=Runs, init=False, repr=False, compare=False)

    def rule(self, name: str) -> Rule:
        """The check of a name: that of the suite, or else the rule for any algorithm."""
        return (RULES if self.rules is None else self.rules).get(name) or RULES[name]

    def reproduction(self, check: str) -> str:
        """Lines that run one check of this subject again."""
        if self.door:
            return f"{self.door}(factory, checks=[{check!r}])  # factory: that of {self.name}"
        if self.rules is not None:
            return f"# `rlverify check MODULE:SUITE --check {check}`, where MODULE defines the suite"
        return reproduction(self.factory, self.adapter, check)


def subject(
    factory: Callable[[], Any] | Any,
    *,
    name: str = "",
    adapter: Adapter | None = None,
    expected_failures: ExpectedFailures | None = None,
    limit: float = 60.0,
    tier: TierName = "default",
) -> Subject:
    """A subject for the checks.

    :param factory: makes a model; or a model itself, of which every check gets a copy
    :param name: by default that of the factory or of the model's class; of a lambda, give one
    :param adapter: how to talk to the model; Stable-Baselines3 and sb3-contrib need none
    :param expected_failures: reasons for which rules may fail, or `KnownFailure`, by name of the rule. Strict: if such
        a rule passes, that is reported, so that the reason is removed
    :param limit: seconds that each process of a check may take
    :param tier: in ``smoke``, no check starts after seven seconds and none is proven; ``full`` has more proofs
    :raises ValueError: if there is no such tier, or an argument cannot be used
    """
    check_settings(adapter, limit)
    settings: dict[str, Any] = {
        "adapter": adapter,
        "expected_failures": expected_failures or {},
        "limit": limit,
        "tier": tier_named(tier),
    }
    if not callable(factory) or is_module(factory) or (hasattr(factory, "learn") and not isinstance(factory, type)):
        model = factory
        return Subject(name or type(model).__name__, lambda: copy.deepcopy(model), **settings)
    plain = getattr(getattr(factory, "func", factory), "__name__", type(factory).__name__)
    shown = name or ("subject" if plain == "<lambda>" else plain)
    return Subject(shown, factory, **settings)


def check_settings(adapter: object, limit: object) -> None:
    """
    :raises ValueError: if an adapter is no object of a class with its methods, or a limit no positive number
    """
    if adapter is not None and not isinstance(adapter, Adapter):
        advice = "; call it" if isinstance(adapter, type) else ""
        raise ValueError(f"adapter={adapter!r:.60} is no Adapter{advice}")
    if isinstance(limit, bool) or not isinstance(limit, int | float) or limit <= 0:
        raise ValueError(f"limit={limit!r} is no positive number of seconds")


LINES: Final = 5


def reproduction(factory: Any, adapter: Any, check: str) -> str:
    """At most five lines that run; where there are none, a comment that says where the factory is.

    A lambda is written out with the imports of the names in it.
    """
    found = attempt(lambda: _lines(factory, adapter, check))
    if isinstance(found, Crash) or found is None or len(found) > LINES:
        return f"# run check_algorithm with checks=[{check!r}] on the factory in {_place(factory)}"
    return "\n".join(found)


def _lines(factory: Any, adapter: Any, check: str) -> list[str] | None:
    needed: dict[str, Any] = {}
    made = _expression(factory, needed)
    used = "" if adapter is None else _adapter(adapter, needed)
    if made is None or used is None:
        return None
    imports = _imports(needed)
    if imports is None:
        return None
    given = f", adapter={used}" if used else ""
    call = f"print(table(check_algorithm({made}{given}, checks=[{check!r}])))"
    return ["from rlverify.checks import check_algorithm, table", *imports, call]


def _expression(factory: Any, needed: dict[str, Any]) -> str | None:
    """What makes the subject, with the names that it needs."""
    name = _global_name(factory, getattr(factory, "__module__", ""))
    if name:
        needed[name] = factory
        return name
    if not isinstance(factory, types.FunctionType) or factory.__name__ != "<lambda>":
        return None
    nodes = [node for node in ast.walk(ast.parse(_file_of(factory).read_text("utf-8"))) if isinstance(node, ast.Lambda)]
    sources = [ast.unparse(node) for node in nodes if _is_node_of(node, factory.__code__)]
    if len(sources) != 1:
        return None
    known = inspect.getclosurevars(factory)
    used = {node.id for node in ast.walk(ast.parse(sources[0])) if isinstance(node, ast.Name)}
    needed.update({name: value for name, value in {**known.globals, **known.nonlocals}.items() if name in used})
    return None if known.unbound & used else sources[0]


def _is_node_of(node: ast.Lambda, code: types.CodeType) -> bool:
    """Whether code was compiled from a node, by the place of its body."""
    body = node.body
    return (body.lineno, body.end_lineno, body.col_offset, body.end_col_offset) in set(code.co_positions())


def _adapter(adapter: Any, needed: dict[str, Any]) -> str | None:
    kind = type(adapter)
    if not vars(adapter) and _global_name(kind, kind.__module__):
        needed[kind.__name__] = kind
        return f"{kind.__name__}()"
    return None


def _imports(needed: Mapping[str, Any]) -> list[str] | None:
    """Lines that give names their values, those of one module together; None if a value cannot be written."""
    modules: dict[str, list[str]] = {}
    lines: list[str] = []
    for name, value in needed.items():
        if isinstance(value, types.ModuleType):
            lines.append(f"import {value.__name__} as {name}" if value.__name__ != name else f"import {name}")
        elif isinstance(value, (*NUMBERS, types.NoneType)) and type(value) in (*NUMBERS, types.NoneType):
            lines.append(f"{name} = {value!r}")
        else:
            module = getattr(value, "__module__", "")
            own = _global_name(value, module)
            if not own:
                return None
            modules.setdefault(module, []).append(own if own == name else f"{own} as {name}")
    return [*(f"from {module} import {', '.join(names)}" for module, names in modules.items()), *lines]


def _global_name(value: Any, module: Any) -> str:
    """The name of a value in its module, if it can be imported from there; empty otherwise."""
    if not isinstance(module, str) or module in ("", "__main__") or module not in sys.modules:
        return ""
    own: dict[str, Any] = vars(sys.modules[module])
    return next((name for name, each in own.items() if each is value and name.isidentifier()), "")


def _file_of(factory: Callable[..., Any]) -> Path:
    return Path(inspect.getsourcefile(factory) or "")


def _place(factory: Any) -> str:
    code = getattr(factory, "__code__", None)
    return f"{code.co_filename}, line {code.co_firstlineno}" if code is not None else repr(type(factory).__qualname__)
