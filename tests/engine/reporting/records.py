"""Report data of toy claims: every kind of verdict, every kind of hole, and one of everything that pages show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlverify.project.content import open_project
from rlverify.project.registry import Line, Plot
from rlverify.records.claims import Claim, DocumentedProblem, Figure, FixGrade, Verdict
from rlverify.records.measured import Evidence, FigureEvidence, SymptomEvidence, Variant, VariantEvidence
from rlverify.reporting.report_data import ReportData
from rlverify.verdicts.verdict import Record
from verification.pages.coverage import Contradiction, Coverage, Quotation, UntestedLines
from verification.pages.documents import Checklist, ChecklistItem, DocumentFacts, NamedTest
from verification.pages.overview import overview

PROJECT = open_project(Path(__file__).parents[3])
CLAIM = Claim(
    id="TOY-01",
    title="a | b <c>",
    kind="defect",
    area="state",
    document="002_toy",
    section="Bug 1",
    statement="Restoring forgets the *count*.",
    if_true="the count is 0 after restoring",
    documented_status="fixed",
    expected_verdict=Verdict.CONFIRMED,
    probe="restore",
    modules=("toy",),
    seeds=(0, 1),
    fault="forgets",
    documented_fix="remembers",
    fix_statement="The state is read.",
    expected_fix_grade=FixGrade.CURED,
    root_cause="the state is not read",
    severity="critical",
    killed_by=("tests/a.py::test_a", "tests/b.py::test_b"),
    cites=("002:280-282",),
)
NULL = replace(
    CLAIM, id="NULL-1", title="null", kind="null", expected_verdict=Verdict.NOT_REPRODUCED, documented_fix=None,
    fix_statement="", expected_fix_grade=None,
)  # fmt: skip
MISFIT = "measured with seeds 0, the claim asks for 0, 1"
FILES = {number: f"../verification/documents/{number}_toy.md" for number in ("000", "001", "002", "003", "004")}


def variant(name: Variant, held: int) -> VariantEvidence:
    """Two runs in which one symptom held as often as told, and another always."""
    symptoms = (
        SymptomEvidence("count | all", held, 2, "320", "320" if held == 2 else "0"),
        SymptomEvidence("ema", 2, 2, None, None),
    )
    return VariantEvidence(name, 2, held, None if name == "healthy" else True, symptoms)


def measured(claim: Claim, **held: int) -> Record:
    """A record of a claim; in how many of two runs each variant held."""
    names: tuple[Variant, ...] = ("healthy", "faulty", "documented_fix")
    variants = tuple(variant(name, held[name]) for name in names if name in held)
    return Record(claim, Evidence(claim.id, claim.seeds, variants))


def simple(number: int, **changes: object) -> Claim:
    """A claim without a documented fix."""
    plain = {
        "id": f"TOY-0{number}",
        "title": f"claim {number}",
        "fault": f"forgets-{number}",
        "documented_fix": None,
        "fix_statement": "",
        "expected_fix_grade": None,
        **changes,
    }
    return replace(CLAIM, **plain)  # type: ignore[arg-type]


def figure(low: float, high: float) -> Record:
    """A record of a figure: 15 to 25 % are claimed, and this interval was measured."""
    said = Figure("efficiency lost", "%", (15.0, 25.0), 24, 0.8, "8 seeds: mean 1.2, sd 6.0")
    claim = simple(
        9, kind="figure", document="figures", cites=("003:160",), fault=None, probe="", experiment="toy", figure=said,
        killed_by=(), severity="",
    )  # fmt: skip
    values = (low, high) * 12  # 24 runs; the interval is that of the test and not what they give
    found = FigureEvidence(values, (low + high) / 2, low, high, 1.25, said.claimed)
    return Record(claim, Evidence(claim.id, claim.seeds, (), figure=found))


def records() -> list[Record]:
    """Every kind of verdict and hole."""
    refuted = simple(4, kind="assurance", fault=None, expected_verdict=Verdict.REFUTED, killed_by=(), severity="")
    stale = measured(replace(CLAIM, id="TOY-06", title="claim 6"), healthy=2, faulty=0, documented_fix=2)
    return [
        measured(simple(2), healthy=2, faulty=0),
        measured(CLAIM, healthy=2, faulty=0, documented_fix=0),
        Record(simple(3), None),
        measured(refuted, healthy=0),
        measured(replace(CLAIM, id="TOY-05", title="claim 5"), healthy=2, faulty=0, documented_fix=2),
        measured(NULL, healthy=2, faulty=2),
        measured(replace(NULL, id="NULL-2"), healthy=2, faulty=0),
        measured(replace(NULL, id="NULL-3"), healthy=2, faulty=2),
        replace(stale, misfits=(MISFIT, "the <symptoms> too")),
        measured(replace(CLAIM, id="TOY-07", title="claim 7"), healthy=0, faulty=0, documented_fix=0),
        replace(measured(replace(NULL, id="NULL-4"), healthy=2, faulty=2), misfits=(MISFIT,)),
    ]


def data_of(found: Iterable[Record] = (), **changes: Any) -> ReportData:
    """Report data of some records, with the pages, the templates and the command of this project."""
    changes["facts"] = {"documents": DocumentFacts(), "overview": overview, **changes.get("facts", {})}
    return ReportData(
        records=tuple(found),
        files=FILES,
        pages=PROJECT.pages,
        templates=PROJECT.templates,
        command=PROJECT.settings.command,
        **changes,
    )


def data() -> ReportData:
    """One of everything that the pages show."""
    problem = DocumentedProblem(
        category="security",
        components=("loader", "files"),
        scenario=("A file is written.", "It is read, and runs."),
        impact="high",
        recommendation="read tensors only",
        priority="P0",
        probability="high",
        effort="low",
    )
    cites = ("000:44-60", "001:41-57")
    risk = simple(11, id="INT-01", title="files run code", document="000_toy", cites=cites, problem=problem)
    option = replace(CLAIM, id="INT-01-A", title="option", document="000_toy", cites=("000:60-72",), part_of="INT-01")
    config = simple(13, id="CFG-01", title="a setting", document="001_toy", cites=("001:400-405",), kind="assurance")
    finding = simple(14, id="FND-01", title="ours", document="findings", cites=("004:79-96",), kind="finding")
    checked = simple(15, id="PPO-01", title="snapshot", document="004_toy", cites=("004:56-60",), problem=problem)
    others = [
        measured(risk, healthy=2, faulty=0),
        measured(option, healthy=2, faulty=0, documented_fix=0),
        measured(config, healthy=2, faulty=0),
        measured(finding, healthy=2, faulty=0),
        measured(checked, healthy=2, faulty=2),
        figure(-2.0, 3.0),
    ]
    return data_of(
        (*records(), *others),
        has_matrix=True,
        facts={
            "documents": DocumentFacts(
                contradictions=(
                    Contradiction(
                        "CON-01",
                        "how many tests pass",
                        (Quotation("000:18", "24/24 PASSED"), Quotation("001:21", "22/24")),
                        "neither: the tests are not here",
                        ("TOY-01", "TOY-02"),
                    ),
                ),
                coverage={"000": Coverage(4, 2, 1, 3), "001": Coverage(11, 5, 4, 0)},
                untestable=(UntestedLines(("001:1-3", "001:9"), "title | date"), UntestedLines(("002:5",), "counts")),
                untested=(UntestedLines(("001:20-24", "001:22"), "effort | speed"),),
                checklists=(
                    Checklist(
                        "READY-1",
                        "Readiness",
                        "ready",
                        ("001:331-350",),
                        (
                            ChecklistItem("nothing runs code", "yes", True, ("001:338",), ("INT-01",)),
                            ChecklistItem("state survives", "yes", True, ("001:339",), ("TOY-01", "TOY-03")),
                            ChecklistItem("tests pass", "yes", True, ("001:339",), (), "002"),
                            ChecklistItem("documented", "yes", True, ("001:340",), ()),
                        ),
                    ),
                ),
                tests=(
                    NamedTest("002", "tests/a.py", "test_a", "passed", ("forgets", "bug-2")),
                    NamedTest("002", "tests/a.py", "test_b", "failed"),
                ),
            )
        },
        plots={"four-variances": toy_plot()},
    )


def generic(found: ReportData) -> ReportData:
    """The same data in a project that registers no page and has no template of its own."""
    return replace(found, pages=(), templates=None, command="rlverify")


def toy_plot() -> Plot:
    """Two lines, of which one has a gap."""
    lines = (Line("first & <only>", (0.0, 1.0, 4.0)), Line("second", (2.0, None, 3.0)))
    return Plot("A plot", "steps", "height", (0.0, 10.0, 20.0), lines, "What is seen.")
