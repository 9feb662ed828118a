"""The exit codes of ``rlverify``, and the rule that chooses one of them.

A claim *falls* if measurement contradicts the catalogue or its committed evidence: its healthy code is violated, its
verdict or its grade is another one, or a value differs. It also falls if it cannot be measured any more (a crash, a
fault that no run executes, undecided runs) while its committed evidence is as expected: the change under test did that.

- A claim that fell gives 1, whatever else went wrong.
- Without a fallen claim, 2 if the harness could not tell: no good evidence is committed for a claim that cannot be
  measured, the catalogue is broken, a folder cannot be written.
- Otherwise 1 if something committed is out of date: evidence, reports, plots, the kill matrix, or the pin of a fault;
  or if code under test cannot be imported, or a plot crashes that is measured again.

`rlverify scan` gives 0 if it found nothing, 1 if it found something, and 2 if a path or an option cannot be used.
"""

from __future__ import annotations

AS_EXPECTED = 0
CLAIM_FELL = 1
"""A claim fell, something committed is out of date, or a scan found something."""
HARNESS_FAILED = 2
"""No claim fell, and the harness could not tell of all of them."""
INTERRUPTED = 130
