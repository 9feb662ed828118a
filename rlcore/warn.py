"""Warnings that name the caller's line, however deep below it they arise."""

from __future__ import annotations

import sys
import warnings

BENEATH = frozenset({"rlcore", "stable_baselines3", "sb3_contrib", "torch", "contextlib"})
"""Packages whose lines a caller can do nothing about: this one, and those through which it is called back."""


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn of ``message`` at the innermost line that belongs to none of the packages :data:`BENEATH`.

    :raises Warning: ``category``, where a filter makes an error of it
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in BENEATH:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
