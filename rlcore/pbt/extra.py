"""Packages of the extra ``ray``, which most users need not have."""

from __future__ import annotations

import importlib
from typing import Any

from rlcore.errors import SettingError


def imported(name: str, user: str) -> Any:
    """A package of the extra.

    :param user: what needs it, for the error
    :raises SettingError: if it is not installed
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SettingError(
            name, f"{user} needs the package {name}, which cannot be imported ({error}); pip install 'rlverify[ray]'"
        ) from error
