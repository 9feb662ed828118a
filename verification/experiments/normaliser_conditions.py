"""What a normaliser left behind costs, under other conditions than those of `verification.experiments.normaliser`."""

from __future__ import annotations

from collections.abc import Mapping

from rlverify import experiment
from verification.experiments.normaliser import MEMBER, SOURCE, UPDATES, compared, normalised, statistics_of
from verification.experiments.second_environment import in_drift
from verification.experiments.training import trained
from verification.probes.make import Make


@experiment("normaliser-left-behind-half")
def half(make: Make, seed: int) -> Mapping[str, float]:
    """Half as many updates before the exploit."""
    return left_behind(make, seed, UPDATES // 2)


@experiment("normaliser-left-behind-double")
def double(make: Make, seed: int) -> Mapping[str, float]:
    """Twice as many updates before the exploit."""
    return left_behind(make, seed, 2 * UPDATES)


@experiment("normaliser-left-behind-drift")
def in_the_second_environment(make: Make, seed: int) -> Mapping[str, float]:
    """In Drift."""
    return left_behind(in_drift(make), seed, UPDATES)


def left_behind(make: Make, seed: int, updates: int) -> Mapping[str, float]:
    """The policy of a source behind its own statistics and behind those of the member that took it over."""
    source = trained(make, 2 * seed, updates, wrapper=normalised, **SOURCE)
    member = trained(make, 2 * seed + 1, updates, wrapper=normalised, **MEMBER)
    return compared(make, seed, source, statistics_of(source), statistics_of(member))
