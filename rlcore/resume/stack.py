"""Whether a method of a model is running, which decides what a save or a signal means."""

from __future__ import annotations

import sys
from types import FrameType


def is_running(model: object, method: str, frame: FrameType | None = None) -> bool:
    """Say whether ``method`` of ``model`` is one of the calls that led here, or to ``frame``.

    :param method: ``learn`` or ``collect_rollouts``, also of a parent class
    """
    each: FrameType | None = frame or sys._getframe(1)
    while each is not None:
        if each.f_code.co_name == method and each.f_locals.get("self") is model:
            return True
        each = each.f_back
    return False
