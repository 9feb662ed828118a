"""The probe of the one claim that is no figure."""

# ruff: noqa: ARG001 - a probe takes what its caller gives

from __future__ import annotations

from collections.abc import Sequence

from figureproject.probes.make import Make

from rlverify import Observation, probe


@probe("middle")
def middle(make: Make, seed: int) -> Sequence[Observation]:
    found = make.middle(0, 2)
    return [Observation("middle of 0 and 2", "1", f"{found:g}", found == 1)]
