"""Report data in which claims are assessed, classified and hostile: what the HTML report shows that pages do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlverify.evidence.evidence_files import FullAudit
from rlverify.records.claims import Claim, DocumentedProblem
from rlverify.records.measured import Evidence, SymptomEvidence, VariantEvidence
from rlverify.reporting.report_data import ReportData
from rlverify.verdicts.verdict import Record
from tests.engine.reporting.records import FILES, data, figure, generic, measured, simple

ATTACK = (
    "</script></style><script>attack()</script>\"'>"
    "<img src=https://attack.example/x onerror=attack()> &amp; {{ 7 * 7 }}"
)
LONG = "word" * 100


def hostile() -> Record:
    """A claim of which every text is markup, with a word that fits no line."""
    texts = ("title", "section", "statement", "if_true", "documented_status", "fix_statement", "root_cause", "action")
    said = DocumentedProblem(ATTACK, (ATTACK,), (ATTACK,), ATTACK, ATTACK, ATTACK, ATTACK, ATTACK)
    changes: dict[str, Any] = dict.fromkeys((*texts, "severity", "hedge"), f"{ATTACK} {LONG}")
    claim = simple(20, id="TOY-20", problem=said, killed_by=(ATTACK,), modules=(LONG,), **changes)
    symptom = SymptomEvidence(f"{ATTACK} {LONG}", 0, 2, ATTACK, f"two\nlines {ATTACK}")
    faulty = VariantEvidence("faulty", 2, 0, True, (symptom,), (ATTACK,), None, ATTACK)
    healthy = VariantEvidence("healthy", 2, 2, None, (replace(symptom, held_runs=2),))
    return Record(claim, Evidence(claim.id, claim.seeds, (healthy, faulty)))


def bug(number: int, **changes: Any) -> Record:
    """A bug that is proven real."""
    claim = simple(number, **{"id": f"TOY-{number}", "assessed": "high", "basis": "code", "scale": "tensor", **changes})
    return measured(replace(claim, action=claim.action or f"Fix number {number}."), healthy=2, faulty=0)


def wrong(number: int, **changes: Any) -> Record:
    """A statement that measurement contradicts."""
    plain = {"fault": None, "kind": "assurance", "assessed": "medium", "basis": "formula", "killed_by": ()}
    claim: Claim = simple(number, **{"id": f"TOY-{number}", **plain, **changes})
    return measured(replace(claim, action=f"Do not rely on number {number}."), healthy=0)


def assessed_data() -> ReportData:
    """All that `data` has, and more than ten findings of every severity."""
    seen = figure(-2.0, 3.0)
    more = [
        bug(21, assessed="critical", scale="training"),
        bug(22, basis="reconstruction"),
        *(bug(number, assessed="low", document="001_toy", cites=("001:3",)) for number in range(23, 33)),
        wrong(41, cause="scale", cites=("002:1-2", "004:3")),
        wrong(42, cause="scale", assessed="low"),
        wrong(43, scale="toy"),
        replace(seen, claim=replace(seen.claim, id="TOY-44", scale="training", basis="formula", part_of="TOY-21")),
        bug(45, basis="implied", assessed="none"),
        hostile(),
    ]
    known = data()
    lines = {key: (f"# Document {key} <b>", *(f"line {number} of {key}" for number in range(2, 600))) for key in FILES}
    return replace(
        generic(known),
        records=(*known.records, *more),
        lines=lines,
        under_test=("toy",),
        full_audit=FullAudit("", "2026-11-26", {"torch": "2.13.0", "numpy": "2.4.6"}, "0123456789"),
    )
