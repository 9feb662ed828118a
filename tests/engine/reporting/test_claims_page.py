"""The pages that every project has, index and claims, and the templates that a project can replace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from rlverify.kill_matrix.committed import kill_matrix
from rlverify.project.catalogue import load
from rlverify.project.citations import Documents
from rlverify.records.claims import Claim
from rlverify.records.matrix import Matrix
from rlverify.reporting.rendering import render_all
from rlverify.reporting.report_data import ReportData
from rlverify.verdicts.verdict import Record
from tests.engine.reporting.records import MISFIT, data, figure, generic, measured

PAGES = ("claims.md", "index.md", "all-claims.md")
SIX_FIELDS = """
[[claim]]
id = "BUG-1"
title = "State is forgotten"
statement = "Restoring forgets the count."
probe = "restore"
fault = "forgets"
expected = "CONFIRMED"
"""
OTHER_KINDS = """
[[claim]]
id = "FND-1"
kind = "finding"
title = "State is remembered"
statement = "Restoring keeps the count."
probe = "restore"
modules = ["toy"]
expected = "CONFIRMED"

[[claim]]
id = "NULL-1"
kind = "null"
title = "Nothing changes"
statement = "The same member is put back."
probe = "restore"
fault = "null"
expected = "NOT REPRODUCED"
"""
MINIMAL_FIGURE = """
[[claim]]
id = "FIG-1"
kind = "figure"
title = "Efficiency is lost"
statement = "A fifth of the efficiency is lost."
experiment = "toy"
modules = ["toy"]
expected = "CONFIRMED"
figure = { quantity = "efficiency lost", unit = "%", claimed = [15.0, 25.0], runs = 24, power = 0.8, pilot = "8 seeds" }
"""
# A claim without its figure has no evidence of one that fits: see the test of a stale figure.
OPTIONAL = [each.name for each in fields(Claim) if each.default is not MISSING and each.name != "figure"]
FLAWS = {
    "an empty value": r"\(empty\)|\(\)|(?<!\!)\[\]",
    "an empty cell": r"^\| +\||\| +\|",
    "an empty item": r"^- [\w ]+:$",
    "punctuation after nothing": r"[^\S\n][,;:.](?=\s|$)",
    "punctuation twice": r"[,;:.]\s*[,;:.](?=\s|$)",
    "an end without an end": r"[,;]$",
    "two spaces": r"\S {2,}",
    "a space at the end": r" $",
    "a missing value": r"\bNone\b(?!\.)|Undefined",
}


def claims_of(folder: Path, text: str) -> tuple[Claim, ...]:
    (folder / "bugs.toml").write_text(text, encoding="utf-8")
    return load(folder, Documents())


def flaws(text: str) -> list[tuple[str, str]]:
    """What shows that a field is missing, with the text around it; code and the targets of links do not count."""
    shown = re.sub(r"\]\([^)\n]*\)", "]", re.sub(r"```.*?```|`[^`\n]*`|<a [^>]*></a>", "x", text, flags=re.DOTALL))
    return [
        (kind, shown[max(0, found.start() - 40) : found.end() + 20])
        for kind, pattern in FLAWS.items()
        for found in re.finditer(pattern, shown, re.MULTILINE)
    ]


def uneven_tables(text: str) -> list[str]:
    """Tables of which a row has more or fewer cells than another."""
    blocks = (
        [line.replace("\\|", "") for line in block.splitlines() if line[:1] == "|"] for block in text.split("\n\n")
    )
    return ["\n".join(rows) for rows in blocks if len({row.count("|") for row in rows}) > 1]


@pytest.mark.parametrize("name", PAGES)
def test_the_whole_page_of_a_project_that_registers_none(name: str, snapshot: SnapshotAssertion) -> None:
    assert render_all(generic(data()))[name] == snapshot


def test_without_a_registered_page_there_are_index_claims_and_plots() -> None:
    assert set(render_all(generic(data()))) == {*PAGES, "plots/four-variances.svg"}


def test_where_every_claim_has_a_page_of_its_own_there_is_no_page_of_claims() -> None:
    assert "claims.md" not in render_all(data())


def test_claims_of_a_document_without_a_page_are_on_the_page_of_claims() -> None:
    some = replace(data(), pages=tuple(page for page in data().pages if page.name != "bug-report.md"))
    texts = render_all(some)
    assert '<a id="toy-01"></a>\n## TOY-01: ' in texts["claims.md"]
    assert '<a id="int-01"></a>' in texts["potential-problems.md"]
    assert '<a id="int-01"></a>' not in texts["claims.md"]
    assert "](claims.md#toy-01)" in texts["all-claims.md"]
    assert "](potential-problems.md#int-01)" in texts["all-claims.md"]


def test_the_index_leads_to_the_kill_matrix_once_it_is_measured() -> None:
    assert "(kill-matrix.md)" in render_all(generic(data()))["index.md"]
    missing = render_all(replace(generic(data()), has_matrix=False))["index.md"]
    assert "(kill-matrix.md)" not in missing
    assert "- Kill matrix: not measured yet. Run `rlverify matrix --update`" in missing


@pytest.mark.parametrize("found", ["as expected", "contradicting", "stale", "without evidence", "regressed"])
def test_a_claim_with_the_six_required_fields_is_shown_without_gaps(found: str, tmp_path: Path) -> None:
    held: Mapping[str, int] = {
        "healthy": 0 if found == "regressed" else 2,
        "faulty": 2 if found == "contradicting" else 0,
    }
    (claim,) = claims_of(tmp_path, SIX_FIELDS)
    record = Record(claim, None) if found == "without evidence" else measured(claim, **held)
    record = replace(record, misfits=(MISFIT,) if found == "stale" else ())
    texts = render_all(ReportData((record,)))
    assert set(texts) == set(PAGES)
    assert {name: flaws(text) for name, text in texts.items()} == {name: [] for name in texts}
    assert ("## BUG-1: State is forgotten\n" in texts["claims.md"]) is (found == "as expected")
    assert "- Claim (defect): Restoring forgets the count.\n- Source: catalogue file bugs\n" in texts["claims.md"]
    assert "| [BUG-1](claims.md#bug-1) State is forgotten | bugs |" in texts["all-claims.md"]
    told = ": NOT REPRODUCED. The planted bug had no observable effect."
    assert (told in texts["index.md"]) is (found == "contradicting")


@pytest.mark.parametrize("held", [0, 2])
def test_a_claim_of_another_kind_with_its_required_fields_is_shown_without_gaps(held: int, tmp_path: Path) -> None:
    finding, null = claims_of(tmp_path, OTHER_KINDS)
    texts = render_all(ReportData((measured(finding, healthy=held), measured(null, healthy=2, faulty=held))))
    assert {name: flaws(text) for name, text in texts.items()} == {name: [] for name in texts}
    assert "- Source: a finding of our own\n" in texts["claims.md"]
    assert f"gives a false alarm: {int(held == 0)} of 1." in texts["claims.md"]


@pytest.mark.parametrize(("low", "high"), [(17.0, 23.0), (-2.0, 3.0), (10.0, 20.0)])
def test_a_figure_with_its_required_fields_is_shown_without_gaps(low: float, high: float, tmp_path: Path) -> None:
    (claim,) = claims_of(tmp_path, MINIMAL_FIGURE)
    texts = render_all(ReportData((replace(figure(low, high), claim=claim),)))
    assert {name: flaws(text) for name, text in texts.items()} == {name: [] for name in texts}
    assert f"({low:g} to {high:g})" in texts["claims.md"]


@pytest.mark.parametrize("is_generic", [True, False])
@pytest.mark.parametrize("name", OPTIONAL)
def test_every_optional_field_may_be_missing_on_every_page(name: str, is_generic: bool) -> None:
    whole = data() if not is_generic else generic(data())
    default = next(each.default for each in fields(Claim) if each.name == name)
    records = tuple(replace(each, claim=replace(each.claim, **{name: default})) for each in whole.records)  # type: ignore[arg-type]
    changed = replace(whole, records=tuple(Record(each.claim, each.evidence, each.misfits) for each in records))
    before, after = render_all(whole), render_all(changed)
    assert set(after) == set(before)
    pages = [page for page in after if page.endswith(".md")]
    assert {page: uneven_tables(after[page]) for page in pages} == {page: [] for page in pages}
    new = {page: set(flaws(after[page])) - set(flaws(before[page])) for page in pages}
    assert new == {page: set() for page in pages}


def test_a_figure_that_became_a_claim_with_a_probe_is_stale_and_shown() -> None:
    was = figure(17.0, 23.0)
    claim = replace(was.claim, kind="assurance", probe="restore", experiment="", figure=None)
    text = render_all(
        ReportData(
            (Record(claim, was.evidence, ("measured as a figure, the claim is now an assurance",)),), files=data().files
        )
    )["claims.md"]
    assert "Stale, so it does not count: measured as a figure, the claim is now an assurance." in text
    assert "| symptom |" not in text


def templates(folder: Path, **files: str) -> Path:
    """A folder with templates of a project."""
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name.replace('_', '-')}.md.j2").write_text(text, encoding="utf-8")
    return folder


def test_a_template_of_the_project_replaces_the_engine_s_of_the_same_name(tmp_path: Path) -> None:
    own = templates(tmp_path / "own", claims="# Ours\n\n{{ data.claims | length }} claims\n")
    engine, replaced = (render_all(replace(generic(data()), templates=each)) for each in (None, own))
    assert replaced["claims.md"] == f"# Ours\n\n{len(data().claims)} claims\n"
    assert replaced["index.md"] == engine["index.md"]


def test_a_template_of_the_project_can_include_and_extend_the_engine_s(tmp_path: Path) -> None:
    own = templates(
        tmp_path / "own",
        claims='{% include "rlverify/claims.md.j2" %}\n\nA line of ours.\n',
        kill_matrix='{% extends "rlverify/kill-matrix.md.j2" %}{% block limits %}Limits of ours.\n{% endblock %}',
    )
    engine, extended = (render_all(replace(generic(data()), templates=each)) for each in (None, own))
    assert extended["claims.md"] == f"{engine['claims.md']}\nA line of ours.\n"
    plain, ours = (kill_matrix(Matrix("core", (), {}), (), each) for each in (None, own))
    assert "Limits of ours." in ours
    assert "0 tests took part" in plain
    assert "0 tests took part" not in ours
    assert ours.partition("## Survivors")[2] == plain.partition("## Survivors")[2] != ""
