"""What the catalogue cites is in the documents, and the documents are unchanged."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rlverify.project.catalogue import load
from rlverify.project.citations import Citation, Documents
from rlverify.project.content import open_project
from rlverify.records.errors import CatalogueError
from rlverify.reporting.report_data import collect
from verification.pages.coverage import Coverage, coverage, load_tables, statements, total

PROJECT = open_project(Path(__file__).parents[3])
DOCUMENTS = PROJECT.documents
DIGESTS = {
    "000_923fc3d3e588f5b4": "fca4e15efb75b04ef16ab486cc2761f9d471a31b244c052e6f8f039cae14b37a",
    "001_98911a0f87a1dff4": "4622413657570b807b699c4802f127db6a286a9e18b449754d49216dd1e2b214",
    "002_aa7ab8580308805a": "2ca3f2e04953260a0a7bd3b05e47e0d2ef5ff0342c28c21b901c58d154cb8aca",
    "003_38991937a7fc0376": "b6c6cfdf08877cacd404c8273e913493043117ecef16b99c31fd21a543b0a66e",
    "004_2d6fc5efa1dace83": "29fd2e146de152d939bd2ee51a43f7697d5392d5552ccdc781d9dc657e01e655",
}
CLAIM = """
[[claim]]
id = "TOY-01"
title = "a title"
kind = "assurance"
area = "state"
section = "Bug 1"
statement = "a statement"
if_true = "a symptom"
documented_status = "fixed"
expected = "CONFIRMED"
probe = "restore"
modules = ["toyproject.target"]
seeds = [0, 1]
"""
CONTRADICTION = """
[[contradiction]]
id = "CON-01"
statement = "how many tests pass"
measured = "all of ours"
quotes = [{cite = "001:21", text = "22/24 теста проходят"}, {cite = "002:14", text = "**24/24**"}]
"""


def _load_text(folder: Path, text: str) -> None:
    (folder / "toy.toml").write_text('document = "toy"\n' + text, encoding="utf-8")
    load(folder, DOCUMENTS)


def test_the_documents_are_as_they_were_written() -> None:
    found = {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in DOCUMENTS.paths.values()}
    assert found == DIGESTS


def test_a_citation_is_the_lines_of_its_document() -> None:
    assert DOCUMENTS.text("001:20-21").splitlines()[1].startswith("| **Основная интеграция**")
    assert list(DOCUMENTS.cite("001:20-21").numbers) == [20, 21]
    assert DOCUMENTS.cite("001:21") == Citation("001", 21, 21)
    assert DOCUMENTS.paths["001"].name == "001_98911a0f87a1dff4.md"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("001", "is no citation; write document:first-last"),
        ("001:0-3", "is no citation"),
        ("007:1", "there is no document 007, only 000, 001"),
        ("001:9-3", "has the lines 1 to 468"),
        ("001:469", "has the lines 1 to 468"),
    ],
)
def test_what_no_document_holds_cannot_be_cited(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        DOCUMENTS.cite(text)
    with pytest.raises(ValueError, match=reason):
        DOCUMENTS.text(text)


def test_a_document_is_cited_by_its_file_name_up_to_the_first_underscore(tmp_path: Path) -> None:
    for name in ("notes.md", "plan_of_may.md", "table.txt"):
        (tmp_path / name).write_text(f"{name}\n\nlast", encoding="utf-8")
    documents = Documents.read(tmp_path)
    assert (documents.text("notes:1"), documents.text("plan:1-3")) == ("notes.md", "plan_of_may.md\n\nlast")
    with pytest.raises(ValueError, match="there is no document table, only notes, plan"):
        documents.cite("table:1")


def test_two_documents_with_one_key_are_an_error(tmp_path: Path) -> None:
    for name in ("plan_a.md", "plan_b.md"):
        (tmp_path / name).touch()
    with pytest.raises(CatalogueError, match=r"plan_b\.md: has the key 'plan', as plan_a\.md") as caught:
        Documents.read(tmp_path)
    assert (caught.value.file, caught.value.claim, caught.value.field) == ("plan_b.md", "", "")


def test_a_document_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_bytes(b"\xff")
    with pytest.raises(CatalogueError, match=r"notes\.md: cannot be read") as caught:
        Documents.read(tmp_path)
    assert (caught.value.file, caught.value.claim, caught.value.field) == ("notes.md", "", "")


def test_without_documents_no_line_can_be_cited(tmp_path: Path) -> None:
    assert Documents.read(tmp_path / "nowhere") == Documents()
    with pytest.raises(ValueError, match="there is no document notes, and no other either"):
        Documents().cite("notes:1")


def test_headings_labels_fences_and_empty_lines_are_no_statements() -> None:
    lines = (
        "# Title",
        "",
        "text",
        "```python",
        "# a comment",
        "```",
        "---",
        "## Heading",
        "  ```toml",
        "x = 1",
        "  ```",
    )
    assert statements(lines) == [3, 5, 10]
    headings = (
        "#",
        "###### six",
        "####### seven",
        "#1 is a number",
        "#\tTab",
        "~~~~",
        "# code",
        "~~~",
        "```",
        "~~~~ ",
        "#",
    )
    assert statements(headings) == [3, 4, 7]
    inline = (
        "```x``` is code",
        "## Heading",
        "````",
        "# code",
        "```",
        "a",
        "````python",
        "`````",
        "## Heading",
        "~~~ x",
        "# a",
    )
    assert statements(inline) == [1, 4, 6, 7, 11]
    labels = ("**Tests:**", "  **Tests of a part**:  ", "**Tests:** pass", "- **Tests:**", "**Passed**", "a **b:**")
    assert statements(labels) == [3, 4, 5, 6]


def test_a_line_is_tested_by_a_claim_or_a_checklist_unless_a_table_says_that_it_is_not(tmp_path: Path) -> None:
    documents = Documents(lines={"notes": tuple("abcdefg"), "plan": ("tests pass", "documented", "open")})
    lines = {"untested": "notes:2", "untestable": "notes:3"}
    tables = [f'[[{kind}]]\ncites = ["{cite}"]\nwhy = "a reason"\n' for kind, cite in lines.items()]
    quotes = '{cite = "notes:4", text = "d"}, {cite = "notes:5", text = "e"}'
    contradiction = f'[[contradiction]]\nid = "CON-01"\nstatement = "a"\nmeasured = "b"\nquotes = [{quotes}]\n'
    (tmp_path / "toy.toml").write_text("\n".join([*tables, contradiction]), encoding="utf-8")
    found = coverage(documents, ["notes:1-4", "plan:1"], load_tables(tmp_path, documents, ()))
    assert found == {
        "notes": Coverage(tested=2, untested=2, untestable=1, uncited=2),
        "plan": Coverage(tested=1, untested=0, untestable=0, uncited=2),
    }
    assert (found["notes"].lines, total(found.values())) == (7, Coverage(3, 2, 1, 4))


def test_every_line_of_the_documents_is_tested_or_has_a_reason_why_not() -> None:
    assert set(DOCUMENTS.lines) == {stem.partition("_")[0] for stem in DIGESTS}
    found = collect(PROJECT, PROJECT.paths.reports, ()).facts["documents"]
    assert {key: each.uncited for key, each in found.coverage.items()} == dict.fromkeys(DOCUMENTS.lines, 0)
    assert all(each.tested > each.untested > 0 for each in found.coverage.values())
    for document in DOCUMENTS.lines:
        assert found.untested_of(document)
        assert found.untestable_of(document)


def test_no_line_is_untested_only_because_a_contradiction_quotes_it() -> None:
    found = collect(PROJECT, PROJECT.paths.reports, ()).facts["documents"]
    given = DOCUMENTS.positions(cite for each in (*found.untested, *found.untestable) for cite in each.cites)
    measured = [cite for claim in PROJECT.claims for cite in claim.cites]
    measured += [cite for checklist in found.checklists for item in checklist.item for cite in item.cites]
    lines = {(key, number) for key in DOCUMENTS.lines for number in statements(DOCUMENTS.lines[key])}
    assert lines <= given | DOCUMENTS.positions(measured)


def test_what_speaks_for_or_against_a_document_says_of_which_lines() -> None:
    silent = [claim for claim in PROJECT.claims if not claim.cites]
    assert [claim.id for claim in silent if claim.against_document or claim.documented_fix] == []
    own = [claim for claim in silent if "@" not in claim.id]  # a condition cites what its claim does
    assert {claim.kind for claim in own} == {"finding", "null"}


def _load_tables(folder: Path, text: str) -> None:
    (folder / "toy.toml").write_text(text, encoding="utf-8")
    load_tables(folder, DOCUMENTS, ["TOY-01"])


def test_a_contradiction_keeps_its_words(tmp_path: Path) -> None:
    (tmp_path / "toy.toml").write_text(CONTRADICTION + 'settled_by = ["TOY-01"]', encoding="utf-8")
    (found,) = load_tables(tmp_path, DOCUMENTS, ["TOY-01"]).contradiction
    assert [quote.text for quote in found.quotes] == ["22/24 теста проходят", "**24/24**"]


@pytest.mark.parametrize(
    ("read", "text", "field", "reason"),
    [
        (_load_text, CLAIM + 'cites = ["001:900"]', "cites.0", "has the lines 1 to 468"),
        (_load_text, CLAIM + 'part_of = "TOY-02"', "part_of", "no other entry 'TOY-02'"),
        (_load_text, CLAIM + 'part_of = "TOY-01"', "part_of", "no other entry 'TOY-01'"),
        (_load_tables, CONTRADICTION.replace("22/24", "23/24"), "quotes", "'23/24 теста проходят' is not in 001:21"),
        (_load_tables, CONTRADICTION + 'settled_by = ["TOY-09"]', "settled_by", "there is no claim 'TOY-09'"),
        (_load_tables, '[[untestable]]\ncites = ["000:900"]\nwhy = "a title"\n', "cites", "has the lines"),
        (_load_tables, '[[untestable]]\ncites = ["000:1"]\n', "untestable.0.why", "required"),
    ],
)
def test_a_broken_entry_is_reported_with_its_field(
    read: Callable[[Path, str], None], tmp_path: Path, text: str, field: str, reason: str
) -> None:
    with pytest.raises(CatalogueError, match=reason) as caught:
        read(tmp_path, text)
    assert caught.value.field.startswith(field)


def test_an_interval_that_a_document_gives_is_in_a_cited_line() -> None:
    for claim in PROJECT.claims:
        if claim.figure is None or claim.figure.document_gives != "interval" or claim.condition_of or not claim.cites:
            continue
        ends = {abs(end) for end in claim.figure.claimed if math.isfinite(end)}
        lines = [line for cite in claim.cites for line in DOCUMENTS.text(cite).splitlines()]
        assert any(ends <= {float(number) for number in re.findall(r"\d+(?:\.\d+)?", line)} for line in lines), claim.id
