"""The report for what reads test results: one suite a document, one case a claim, no times."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from rlverify.reporting.claim_status import ClaimStatus, status_of, told
from rlverify.reporting.phrasing import difference, statement
from rlverify.reporting.record import Record

# What XML 1.0 has no way to write, escaped or not.
FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
ELEMENTS: Final = {ClaimStatus.FAILED: "failure", ClaimStatus.ERROR: "error", ClaimStatus.SET_ASIDE: "skipped"}


class JUnitReport:
    """JUnit's XML: a claim that is not as expected fails, one that could not be measured is an error."""

    def format(self, records: Sequence[Record]) -> str:
        """The whole file, with the counts that readers of it expect."""
        root = Element("testsuites", {"name": "rlverify", **_counts(records)})
        for document, found in groupby(records, key=lambda record: record.claim.document):
            group = list(found)
            suite = SubElement(root, "testsuite", {"name": document, **_counts(group)})
            for record in group:
                _add_case(suite, record)
        indent(root)
        return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _counts(records: Sequence[Record]) -> dict[str, str]:
    found = Counter(map(status_of, records))
    return {
        "tests": str(len(records)),
        "failures": str(found[ClaimStatus.FAILED]),
        "errors": str(found[ClaimStatus.ERROR]),
        "skipped": str(found[ClaimStatus.SET_ASIDE]),
    }


def _add_case(suite: Element, record: Record) -> None:
    claim = record.claim
    case = SubElement(suite, "testcase", classname=claim.document, name=_writable(f"{claim.id} {claim.title}"))
    if name := ELEMENTS.get(status_of(record)):
        reason = SubElement(case, name, message=_writable(told(record)))
        reason.text = _writable(f"{statement(claim)}\nrlverify reproduce {claim.id}")
    elif record.contradicts_document:
        SubElement(case, "system-out").text = _writable(difference(record))


def _writable(text: str) -> str:
    return FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
