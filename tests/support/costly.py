"""Settings for properties whose single example takes a good part of a second."""

from __future__ import annotations

from typing import Any

from hypothesis import Phase, settings


def costly(examples: int, **others: Any) -> settings:
    """So many examples in a usual run, none of them shrunk, which takes minutes; many more, and shrunk, in a search.

    :param examples: of the derandomised profile; a search takes as many more as its profile does elsewhere
    """
    profile = settings.default
    if not profile.derandomize:
        return settings(max_examples=max(examples, profile.max_examples // 2), **others)
    phases = [phase for phase in profile.phases if phase not in (Phase.shrink, Phase.explain)]
    return settings(max_examples=examples, phases=phases, report_multiple_bugs=False, **others)
