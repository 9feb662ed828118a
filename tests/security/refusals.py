"""How a file is refused."""

from __future__ import annotations

import io

import pytest

from rlcore.checkpoint import load_container
from rlcore.errors import CheckpointError


def refused(source: io.BytesIO, said: str) -> None:
    """The file is not loaded, and the error says why."""
    with pytest.raises(CheckpointError, match=said):
        load_container(source)
