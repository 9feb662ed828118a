"""Known bugs of how settings are read."""

from __future__ import annotations

from verification.faults import fault


@fault("fnd-21-any-text-is-true", target="rlcore.ppo.config:flag_value", pins="a814bbae0c945bfa")
def any_text_is_true(value: object) -> object:
    """A flag is whatever bool() makes of it: "false" and "0" are True."""
    return bool(value)
