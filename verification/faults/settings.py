"""Known bugs of the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verification.faults import fault


@fault("bug-07-unknown-settings-ignored", target="rlcore.ppo.config:reject_unknown", pins="0f8ffbcf19410fd5")
def unknown_settings_ignored(given: dict[str, Any], where: str, homes: Mapping[str, Sequence[str]]) -> None:
    """What a level does not know is dropped there, and nobody is told."""
    for name in set(given) - set(homes[where]):
        del given[name]


@fault("fnd-21-any-text-is-true", target="rlcore.ppo.config:flag_value", pins="a814bbae0c945bfa")
def any_text_is_true(value: object) -> object:
    """A flag is whatever bool() makes of it: "false" and "0" are True."""
    return bool(value)
