"""Test cases as JUnit's XML, for what reads test results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from rlverify.reporting.claim_status import ClaimStatus

# What XML 1.0 has no way to write, escaped or not.
FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
ELEMENTS: Final = {ClaimStatus.FAILED: "failure", ClaimStatus.ERROR: "error", ClaimStatus.SET_ASIDE: "skipped"}


@dataclass(frozen=True)
class Case:
    """One test case.

    :param text: below the message of a case that did not pass; of one that did, what is worth knowing
    """

    suite: str
    name: str
    status: ClaimStatus
    message: str = ""
    text: str = ""
    seconds: float | None = None


def document(cases: Sequence[Case]) -> str:
    """The whole file: a suite for each run of cases that name one, with the counts that readers of it expect."""
    root = Element("testsuites", {"name": "rlverify", **_counts(cases)})
    for name, found in groupby(cases, key=lambda case: case.suite):
        group = list(found)
        suite = SubElement(root, "testsuite", {"name": name, **_counts(group)})
        for case in group:
            _add(suite, case)
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _counts(cases: Iterable[Case]) -> dict[str, str]:
    cases = list(cases)
    found = Counter(case.status for case in cases)
    times = [case.seconds for case in cases if case.seconds is not None]
    counts = {
        "tests": len(cases),
        "failures": found[ClaimStatus.FAILED],
        "errors": found[ClaimStatus.ERROR],
        "skipped": found[ClaimStatus.SET_ASIDE],
    }
    return {name: str(count) for name, count in counts.items()} | ({"time": f"{sum(times):.3f}"} if times else {})


def _add(suite: Element, case: Case) -> None:
    element = SubElement(suite, "testcase", classname=case.suite, name=_writable(case.name))
    if case.seconds is not None:
        element.set("time", f"{case.seconds:.3f}")
    if name := ELEMENTS.get(case.status):
        SubElement(element, name, message=_writable(case.message)).text = _writable(case.text)
    elif case.text:
        SubElement(element, "system-out").text = _writable(case.text)


def _writable(text: str) -> str:
    return FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
