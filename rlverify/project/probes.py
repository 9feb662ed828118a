"""Probes look for symptoms, without knowing which variant of the code they measure.

    @probe("adam-keeps-its-learning-rate")
    def learning_rate(seed: int) -> Sequence[Observation]:
        ...

If the content package has a module ``probes/make.py`` with a class ``Make``, every probe is called with a fresh
``Make()`` before the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from rlverify.project.registry import Registry
from rlverify.records.runs import Observation

Probe: TypeAlias = Callable[..., Sequence[Observation]]
AnyProbe = TypeVar("AnyProbe", bound=Probe)

PROBES: Registry[Probe] = Registry("probe")


def probe(name: str) -> Callable[[AnyProbe], AnyProbe]:
    """Register the decorated function as the probe ``name``.

    :raises RegistrationError: if another probe has this name
    """

    def register(function: AnyProbe) -> AnyProbe:
        PROBES.add(name, function, function.__module__)
        return function

    return register
