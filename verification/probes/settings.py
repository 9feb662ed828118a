"""What is taken for a setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlcore import SettingError
from verification.model import Observation
from verification.probes import probe
from verification.probes.make import SMALL_NETWORK, Make

TEXTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("variance_gradient_scaling='false'", {"variance_gradient_scaling": "false"}),
    ("normalize_advantage='0'", {"normalize_advantage": "0"}),
    ("policy_kwargs['ortho_init']='false'", {"policy_kwargs": {**SMALL_NETWORK, "ortho_init": "false"}}),
    (
        "optimizer_kwargs['amsgrad']='false' of Adam",
        {"optimizer_class": "adam", "optimizer_kwargs": {"amsgrad": "false"}},
    ),
)


@probe("text-for-a-flag-is-refused")
def text_for_a_flag_is_refused(make: Make, seed: int) -> Sequence[Observation]:
    """Give a text where a bool is asked for, at every level at which there are flags."""
    return [_given(make, seed, case, settings) for case, settings in TEXTS]


def _given(make: Make, seed: int, case: str, settings: dict[str, Any]) -> Observation:
    try:
        make.model(seed, **settings)
    except SettingError:
        return Observation(case, "refused", "refused", holds=True)
    return Observation(case, "refused", "taken for True", holds=False)
