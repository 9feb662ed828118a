"""Settings for properties whose single example takes a good part of a second."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import Phase, settings

USUAL_EXAMPLES: Final = 30
"""Examples of every other property in a usual run."""


def costly(examples: int, **others: Any) -> settings:
    """So many examples in a usual run, none of them shrunk; in a search, more in proportion, and shrunk.

    :param examples: of the derandomised profile
    """
    profile = settings.default
    if not profile.derandomize:
        return settings(max_examples=examples * profile.max_examples // USUAL_EXAMPLES, **others)
    phases = [phase for phase in profile.phases if phase not in (Phase.shrink, Phase.explain)]
    return settings(max_examples=examples, phases=phases, report_multiple_bugs=False, **others)
