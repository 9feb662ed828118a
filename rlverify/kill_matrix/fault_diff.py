"""The difference between a fault and the healthy member that it replaces."""

from __future__ import annotations

import difflib
import inspect
import textwrap
from collections.abc import Callable
from itertools import dropwhile
from typing import Any

from rlverify.project.faults import Fault
from rlverify.project.planting import healthy_member

LINES = 40


def difference(fault: Fault) -> str:
    """Unified, without decorators, and cut where it gets long."""
    healthy, faulty = _lines(healthy_member(fault.owner, fault.member)), _lines(fault.replacement)
    name = f"{fault.owner}.{fault.member}"
    found = [*difflib.unified_diff(healthy, faulty, f"{name}, healthy", fault.name, n=2, lineterm="")]
    more = [f"... and {len(found) - LINES} more lines"] if len(found) > LINES else []
    return "\n".join([*found[:LINES], *more])


def _lines(function: Callable[..., Any]) -> list[str]:
    source = textwrap.dedent(inspect.getsource(function)).splitlines()
    return [*dropwhile(lambda line: not line.startswith(("def ", "async def ")), source)]
