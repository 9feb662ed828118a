"""Faults: known bugs, each as one replacement of one member, planted at run time and removed again.

A fault is a module-level function with the signature of the member it replaces:

    @fault("ratio-of-zero", target="mypackage.optimizer:Gated.protection", pins="0123456789abcdef")
    def ratio_of_zero(self, utility, maximum):
        return torch.sigmoid(utility / maximum)

The member as it is without the fault is ``healthy("ratio-of-zero")``: a plain function, whose first argument is
``self`` (or ``cls``) where the member is a method. ``pins`` is the member's fingerprint; when it no longer fits,
planting raises an error that gives the new one, so that the fault is checked against the change before it is trusted.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from rlverify.project.registry import Registry
from rlverify.records.errors import FaultError, UnknownNameError

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Fault:
    """One known bug.

    :param owner: the class or module whose member is replaced: ``package.module:Class`` or ``package.module``
    :param member: the name of the method, property or function in it
    :param replacement: a function of the same signature
    :param pins: fingerprint of the healthy member
    :param area: the part of the core that it belongs to
    :param defined_in: the module that defines the fault, for the digest of the experiment
    :param claimed: whether a claim of the catalogue is about it; else only tests that must detect it name it
    """

    name: str
    owner: str
    member: str
    replacement: Callable[..., Any]
    pins: str
    area: str
    defined_in: str
    claimed: bool = True

    @property
    def target(self) -> str:
        """What it replaces: ``package.module:Class.member`` or ``package.module:function``."""
        return f"{self.owner}{'.' if ':' in self.owner else ':'}{self.member}"


FAULTS: Registry[Fault] = Registry("fault")


def fault(
    name: str, *, target: str, pins: str, area: str | None = None, claimed: bool = True
) -> Callable[[Function], Function]:
    """Register the decorated function as the fault ``name``.

    :param target: ``package.module:Class.member`` or ``package.module:function``
    :param area: where left out, the name of the module that defines the fault
    :param claimed: whether a claim should be about it; `rlverify audit` warns if there is none
    """
    module, _, path = str(target).partition(":")
    *classes, member = path.split(".")
    if not module or not member or ":" in path:
        raise FaultError(f"{name}: target {target!r} must read package.module:function or package.module:Class.member")

    def register(replacement: Function) -> Function:
        if inspect.isgeneratorfunction(replacement):
            raise FaultError(f"{name}: errors in a generator go unnoticed; return iter([...])")
        owner = ":".join(filter(None, (module, ".".join(classes))))
        home = replacement.__module__
        add_fault(Fault(name, owner, member, replacement, pins, area or home.rpartition(".")[2], home, claimed))
        return replacement

    return register


unclaimed = functools.partial(fault, claimed=False)
"""A fault that no claim is about: only tests that must detect it name it."""


def add_fault(new: Fault) -> Fault:
    """Register a fault that was not made by the decorator.

    :raises RegistrationError: if another fault has this name
    """
    FAULTS.add(new.name, new, new.defined_in)
    return new


def get_fault(name: str) -> Fault:
    """The registered fault of that name; its module must have been imported."""
    if name not in FAULTS.entries:
        raise UnknownNameError(f"no fault named {name!r} is registered; known: {', '.join(sorted(FAULTS.entries))}")
    return FAULTS.entries[name]
