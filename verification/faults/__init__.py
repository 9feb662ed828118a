"""Faults: known bugs, each as one replacement of one member, planted at run time and taken out again.

A fault is a module-level function with the signature of the member it replaces:

    @fault("bug-05-ratio-of-zero", target="rlcore.optim.upgd:AdaptiveUPGD._protection", pins="0123456789abcdef")
    def ratio_of_zero(self, utility, maximum):
        return torch.sigmoid(utility / maximum)

The member as it is without the fault is ``healthy("bug-05-ratio-of-zero")``: a plain function, whose first argument is
``self`` (or ``cls``) where the member is a method. ``pins`` is the member's fingerprint; when it no longer fits,
planting raises an error that tells the new one, so that somebody looks at the change before the fault is trusted again.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, TypeVar

from verification.errors import FaultError, StaleFaultError, UnknownNameError
from verification.fingerprint import member_digest

Function = TypeVar("Function", bound=Callable[..., Any])

MISTAKES = (NameError, AttributeError, ImportError, TypeError)
"""What an error is that a fault raises by mistake; healthy code that it calls may raise them on purpose."""


@dataclass(frozen=True)
class Fault:
    """One known bug.

    :param owner: the class or module whose member is replaced: ``package.module:Class`` or ``package.module``
    :param member: the name of the method, property or function in it
    :param replacement: a function of the same signature
    :param pins: fingerprint of the healthy member
    :param area: the part of the core that it belongs to
    :param defined_in: the module that defines the fault, for the digest of the experiment
    :param claimed: whether a claim of the catalogue is about it; else only tests that must see it name it
    """

    name: str
    owner: str
    member: str
    replacement: Callable[..., Any]
    pins: str
    area: str
    defined_in: str
    claimed: bool = True


@dataclass
class Planted:
    """A fault in place, and what has become of it so far in this process.

    :param executions: how often it has run
    :param mistakes: errors in its own code (a misspelt name, say), which prove nothing, whoever catches them
    """

    fault: Fault
    executions: int = 0
    mistakes: list[str] = field(default_factory=list)


_registered: dict[str, Fault] = {}
_in_place: dict[tuple[str, str], Callable[..., Any]] = {}


def fault(
    name: str, *, target: str, pins: str, area: str | None = None, claimed: bool = True
) -> Callable[[Function], Function]:
    """Register the decorated function as the fault ``name``.

    :param target: ``package.module:Class.member`` or ``package.module:function``
    :param area: where left out, the name of the module that defines the fault
    :param claimed: whether the catalogue must have a claim about it
    """
    module, _, path = str(target).partition(":")
    *classes, member = path.split(".")
    if not module or not member:
        raise FaultError(f"{name}: target {target!r} must read package.module:function or package.module:Class.member")

    def register(replacement: Function) -> Function:
        if inspect.isgeneratorfunction(replacement):
            raise FaultError(f"{name}: what a generator does wrong is noticed by nobody; return iter([...])")
        owner = ":".join(filter(None, (module, ".".join(classes))))
        home = replacement.__module__
        add(Fault(name, owner, member, replacement, pins, area or home.rpartition(".")[2], home, claimed))
        return replacement

    return register


unclaimed = functools.partial(fault, claimed=False)
"""A fault that no claim is about: only tests that must see it name it."""


def add(new: Fault) -> Fault:
    """Register a fault that was made by hand; a second one of the same name raises FaultError."""
    if new.name in _registered:
        raise FaultError(
            f"two faults are named {new.name!r}: in {_registered[new.name].defined_in} and {new.defined_in}"
        )
    _registered[new.name] = new
    return new


def get(name: str) -> Fault:
    """The registered fault of that name; its module must have been imported."""
    if name not in _registered:
        raise UnknownNameError(f"no fault named {name!r} is registered; known: {', '.join(sorted(_registered))}")
    return _registered[name]


def registered() -> Mapping[str, Fault]:
    """All faults by name whose modules have been imported, wherever they stand."""
    return dict(_registered)


def null_fault_of(fault: Fault) -> Fault:
    """The fault that replaces the same member by itself: whatever notices it cries wolf."""

    def unchanged(*args: Any, **kwargs: Any) -> Any:
        return healthy_member(fault.owner, fault.member)(*args, **kwargs)

    return replace(fault, name=f"null-{fault.name}", replacement=unchanged)


def healthy(name: str) -> Callable[..., Any]:
    """The member that the fault ``name`` replaces, as it is without the fault."""
    return healthy_member(get(name).owner, get(name).member)


def load_all(package: str = __name__) -> Mapping[str, Fault]:
    """Import every module of a package of faults and return those it registered, by name."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(module.name)
    return {name: each for name, each in _registered.items() if each.defined_in.startswith(f"{package}.")}


@contextmanager
def plant(fault: Fault) -> Iterator[Planted]:
    """Put a fault in place for every user of the class or module, and take it out again whatever happens.

    Faults of different members can be planted at the same time. Processes that are forked inherit the fault.

    :raises StaleFaultError: if the member has changed since the fault was written; nothing is replaced
    :raises FaultError: if another fault already replaces the member, or the signatures differ
    """
    key = (fault.owner, fault.member)
    if key in _in_place:
        raise FaultError(f"{fault.name}: {fault.owner}.{fault.member} is already replaced by another fault")
    owner = _resolve_owner(fault)
    found = _find_member(owner, fault)
    original = _function_of(found)
    _check_target(fault, original)
    planted = Planted(fault)
    own = fault.member in vars(owner)
    _in_place[key] = original
    setattr(owner, fault.member, _dressed_as(found, _counted(planted, original)))
    try:
        yield planted
    finally:
        if own:
            setattr(owner, fault.member, found)
        else:
            delattr(owner, fault.member)
        del _in_place[key]


def healthy_member(owner: str, member: str) -> Callable[..., Any]:
    """The plain function of a member, as it is without any fault.

    :param owner: as in `Fault`
    """
    if (owner, member) in _in_place:
        return _in_place[owner, member]
    return _function_of(inspect.getattr_static(_import_owner(owner), member))


def _import_owner(owner: str) -> type | ModuleType:
    module, _, path = owner.partition(":")
    found: Any = importlib.import_module(module)
    for part in filter(None, path.split(".")):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def _resolve_owner(fault: Fault) -> type | ModuleType:
    try:
        return _import_owner(fault.owner)
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and not fault.owner.startswith(error.name or "?"):
            raise
        raise StaleFaultError(
            f"fault {fault.name}: its target {fault.owner} is gone ({error}); point it elsewhere"
        ) from error


def _find_member(owner: type | ModuleType, fault: Fault) -> Any:
    try:
        return inspect.getattr_static(owner, fault.member)
    except AttributeError as error:
        raise StaleFaultError(f"fault {fault.name}: {fault.owner} no longer has a member {fault.member!r}") from error


def _function_of(found: Any) -> Callable[..., Any]:
    inner = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    if isinstance(found, type) or not callable(inner):
        raise FaultError(f"{found!r} is not a function, method or property, so no fault can replace it")
    return inner


def _dressed_as(found: Any, function: Callable[..., Any]) -> Any:
    """The function in the same kind of member as the one it replaces."""
    if isinstance(found, property):
        return property(function, found.fset, found.fdel, found.__doc__)
    if isinstance(found, (staticmethod, classmethod)):
        return type(found)(function)
    return function


def _counted(planted: Planted, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def counted(*args: Any, **kwargs: Any) -> Any:
        planted.executions += 1
        try:
            return planted.fault.replacement(*args, **kwargs)
        except MISTAKES as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            if last.filename == inspect.getfile(planted.fault.replacement):
                planted.mistakes.append(f"{type(error).__name__}: {error} (line {last.lineno})")
            raise

    return counted


def _check_target(fault: Fault, original: Callable[..., Any]) -> None:
    current = member_digest(original)
    if current != fault.pins:
        raise StaleFaultError(
            f"fault {fault.name} is stale: {fault.owner}.{fault.member} has changed since it was written "
            f'(pinned {fault.pins!r}, now {current!r}); check the fault against the new code, then set pins="{current}"'
        )
    expected, given = _parameters(original), _parameters(fault.replacement)
    if given != expected and given != ["*args", "**kwargs"]:
        raise FaultError(f"fault {fault.name} takes ({', '.join(given)}), but its target takes ({', '.join(expected)})")


def _parameters(function: Callable[..., Any]) -> list[str]:
    found = inspect.signature(function).parameters.values()
    stars = {each.name: "*" for each in found if each.kind is each.VAR_POSITIONAL}
    stars |= {each.name: "**" for each in found if each.kind is each.VAR_KEYWORD}
    return [stars.get(each.name, "") + each.name for each in found]
