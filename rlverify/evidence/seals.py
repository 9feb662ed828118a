"""Seals: each committed file of measurements carries a digest of its own content, so that an edit by hand is detected.

Whoever computes the digest again can forge a file all the same. So the gate also measures what a change touches.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlverify.evidence.files import canonical_json
from rlverify.records.errors import EvidenceError

KEY = "digest"


def sealed(content: Mapping[str, Any]) -> str:
    """Canonical JSON of the content with its digest."""
    return canonical_json({**content, KEY: _digest(json.loads(canonical_json(content)))})


def check_seal(text: str, path: Path, remedy: str) -> None:
    """Compare the digest in a file with its content.

    :param remedy: what measures it again
    :raises EvidenceError: if they differ
    """
    content = json.loads(text)
    said = content.pop(KEY)
    if said != _digest(content):
        raise EvidenceError(path, f"was edited after it was measured: its digest does not fit its content; {remedy}")


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:16]
