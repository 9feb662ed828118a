"""The exit codes of ``rlverify``; the worst of a run counts."""

from __future__ import annotations

AS_EXPECTED = 0
CLAIM_FELL = 1
"""A claim fell, or the committed evidence or reports are out of date."""
HARNESS_FAILED = 2
"""A claim could not be measured, the catalogue is broken, a folder cannot be written."""
INTERRUPTED = 130
