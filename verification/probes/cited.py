"""Lines of the audited documents, for probes that read them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from rlverify.project.citations import Documents


@cache
def _documents() -> Documents:
    return Documents.read(Path(__file__).parents[1] / "documents")


def cited_text(cite: str) -> str:
    """Return the lines of a citation such as ``000:44-60``, unchanged."""
    return _documents().text(cite)
