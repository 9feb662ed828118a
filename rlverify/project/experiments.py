"""Experiments make paired runs that measure a number.

    @experiment("recovery-after-exploit")
    def recovery_after_exploit(seed: int) -> Mapping[str, float]:
        ...

One call is one paired run: everything that is drawn at random follows from the seed, and the result compares arms that
started alike. An experiment returns its quantities by name, each a finite number in the unit of the claim that names
it; several claims may name quantities of one experiment. It is called with the same arguments as a probe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

from rlverify.project.registry import Registry

Experiment: TypeAlias = Callable[..., Mapping[str, float]]
AnyExperiment = TypeVar("AnyExperiment", bound=Experiment)

EXPERIMENTS: Registry[Experiment] = Registry("experiment")


def experiment(name: str) -> Callable[[AnyExperiment], AnyExperiment]:
    """Register the decorated function as the experiment ``name``.

    :raises RegistrationError: if another experiment has this name
    """

    def register(function: AnyExperiment) -> AnyExperiment:
        EXPERIMENTS.add(name, function, function.__module__)
        return function

    return register
