"""Findings as lines of text for people."""

from __future__ import annotations

from collections.abc import Sequence

from rlverify.scan.findings import ScanFinding


def text_of(findings: Sequence[ScanFinding]) -> str:
    """One line for each finding, one for each remedy, and one that counts the findings."""
    lines = [f"{each.place}: {each.severity}: {each.message} [{each.rule}]" for each in findings]
    remedies = dict.fromkeys(f"[{each.rule}] {each.remedy}" for each in findings)
    return "\n".join([*lines, *remedies, _count(findings)]) + "\n"


def _count(findings: Sequence[ScanFinding]) -> str:
    if not findings:
        return "nothing found"
    files = len({each.path for each in findings})
    return f"{_number(len(findings), 'finding')} in {_number(files, 'file')}"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
