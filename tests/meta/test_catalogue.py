"""What is loaded from the files of a catalogue, and what is reported of a broken one, to the letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlverify.project.catalogue import Catalogue, load
from rlverify.project.citations import Documents
from rlverify.records.claims import Cause, Contradiction, DocumentedProblem, Quotation, UntestedLines
from rlverify.records.errors import CatalogueError

DOCUMENTS = Documents(lines={"notes": ("24/24 tests pass", "22/24 tests: pass")})
CLAIM = """
[[claim]]
id = "TOY-01"
title = "a title"
statement = "a statement"
kind = "assurance"
expected = "CONFIRMED"
probe = "restore"
"""
CONTRADICTION = """
[[contradiction]]
id = "CON-01"
statement = "how many tests pass"
measured = "all of ours"
settled_by = ["TOY-01"]
quotes = [{cite = "notes:1", text = "24/24"}, {cite = "notes:2", text = "22/24"}]
"""
UNTESTABLE = '[[untestable]]\ncites = ["notes:1"]\nwhy = "a title"\n'
UNTESTED = UNTESTABLE.replace("untestable", "untested")


def _load(folder: Path, text: str) -> Catalogue:
    (folder / "toy.toml").write_text(text, encoding="utf-8")
    return load(folder, DOCUMENTS)


def test_a_contradiction_keeps_every_field(tmp_path: Path) -> None:
    assert _load(tmp_path, CLAIM + CONTRADICTION).contradictions == (
        Contradiction(
            "CON-01",
            "how many tests pass",
            (Quotation("notes:1", "24/24"), Quotation("notes:2", "22/24")),
            "all of ours",
            ("TOY-01",),
        ),
    )


def test_a_claim_keeps_what_the_document_says_about_its_problem(tmp_path: Path) -> None:
    problem = '[claim.problem]\ncategory = "state"\ncomponents = ["buffer"]\npriority = "P0"\n'
    (claim,) = _load(tmp_path, CLAIM + problem).claims
    assert claim.problem == DocumentedProblem(category="state", components=("buffer",), priority="P0")


def test_untested_lines_keep_their_reason(tmp_path: Path) -> None:
    catalogue = _load(tmp_path, CLAIM + UNTESTED)
    assert catalogue.untested == (UntestedLines(("notes:1",), "a title"),)
    assert (catalogue.untestable, catalogue.cites) == ((), ("notes:1",))


def test_a_file_may_give_its_version_and_its_document(tmp_path: Path) -> None:
    assert len(_load(tmp_path, f'schema_version = 1\ndocument = "toy"\n{CLAIM}').claims) == 1


BROKEN = {
    "a misspelt field": (f"{CLAIM}titel = 1", "TOY-01, titel: no such field; did you mean 'title'?"),
    "a field like no other": (f"{CLAIM}xyz = 1", "TOY-01, xyz: no such field"),
    "two unknown fields": (f"{CLAIM}xyz = 1\nzyx = 1", "TOY-01, xyz: no such field (wrong as well: zyx)"),
    "three unknown fields": (
        f"{CLAIM}xyz = 1\nzyx = 1\nyyy = 1", "TOY-01, xyz: no such field (wrong as well: zyx, yyy)"),
    "a misspelt field of an inner table": (
        f"{CLAIM}[claim.problem]\nproblems = 1\n", "TOY-01, problem.problems: no such field"),
    "another of them": (
        f'{CLAIM}[claim.problem]\ncategry = "x"\n', "TOY-01, problem.categry: no such field; did you mean 'category'?"),
    "a misspelt field of a quotation": (
        CLAIM + CONTRADICTION.replace("quotes = [", 'quotes = [{cite = "notes:1", text = "24", txt = ""}, '),
        "CON-01, quotes.0.txt: no such field; did you mean 'text'?"),
    "text instead of a list": (
        f'{CLAIM}modules = "toy"', """TOY-01, modules: must be a list, as in ["..."], got 'toy'"""),
    "another id": (f'{CLAIM}part_of = "toy_1"',
        "TOY-01, part_of: must be of capital letters and digits, joined by hyphens as in BUG-1, got 'toy_1'"),
    "another id in a list": (
        CONTRADICTION.replace("TOY-01", "toy_1"),
        "CON-01, settled_by.0: must be of capital letters and digits, joined by hyphens as in BUG-1, got 'toy_1'"),
    "a name": (CLAIM.replace("restore", "Re Store"),
        "TOY-01, probe: must be of small letters and digits, joined by hyphens as in a-name, got 'Re Store'"),
    "another type": (f'{CLAIM}seeds = [1, "0"]', "TOY-01, seeds.1: Input should be a valid integer, got '0'"),
    "no expectation": (CLAIM.replace("expected", "#"), "TOY-01, expected: is missing"),
    "no probe": (CLAIM.replace("probe", "#"), "TOY-01, probe: is missing; a assurance is measured by its probe"),
    "words that are not there": (
        CLAIM + CONTRADICTION.replace("quotes = [", 'quotes = [{cite = "notes:2", text = "pass: 22"}, '),
        "CON-01, quotes.0: 'pass: 22' is not in notes:2"),
    "a claim without id": (CLAIM + CLAIM.replace("id =", "#"), "entry 2, id: is missing"),
    "lines without reason": (f'{UNTESTABLE}[[untestable]]\ncites = ["notes:1"]', "untestable 2, why: is missing"),
    "untested lines without reason": ('[[untested]]\ncites = ["notes:1"]', "untested 1, why: is missing"),
    "untested and untestable lines": (
        UNTESTABLE + UNTESTED.replace("notes:1", "notes:1-2"),
        "untested: notes:1-2 is untestable as well; remove one of the two"),
    "an id for two entries": (CLAIM + CLAIM, "TOY-01, id: already used in toy.toml"),
    "part of itself": (f'{CLAIM}part_of = "TOY-01"', "TOY-01, part_of: there is no other entry 'TOY-01'"),
    "settled by nothing": (CONTRADICTION, "CON-01, settled_by: there is no other entry 'TOY-01'"),
    "one table": (CLAIM.replace("[[claim]]", "[claim]"), "claim: must be one or more [[claim]] tables"),
    "a number": ("claim = 3", "claim: must be one or more [[claim]] tables"),
    "numbers": ("untestable = [3]", "untestable: must be one or more [[untestable]] tables"),
    "no table": ('document = "toy"', "claim: must be one or more [[claim]] tables"),
    "another document": (f'document = "other"\n{CLAIM}', "document: must be 'toy', the name of the file"),
    "a stray field": (f"xyz = 1\nabc = 2\n{CLAIM}", "abc: is outside every [[claim]]"),
    "a misspelt table": (CLAIM.replace("[[claim]]", "[[claims]]"), "claims: is no table; did you mean [[claim]]?"),
    "a version of text": (
        f'schema_version = "1"\n{CLAIM}',
        "schema_version: '1' is unknown; this rlverify reads up to version 1; upgrade it, or correct the file"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_entry_is_one_line(case: str, tmp_path: Path) -> None:
    text, told = BROKEN[case]
    with pytest.raises(CatalogueError) as caught:
        _load(tmp_path, text)
    *claim, field = told.partition(": ")[0].split(", ")
    assert str(caught.value) == f"catalogue toy.toml, {told}"
    assert (caught.value.file, caught.value.claim, caught.value.field) == ("toy.toml", *(claim or [""]), field)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "toy.toml").write_bytes(b'document = "\xff"')
    with pytest.raises(CatalogueError) as caught:
        load(tmp_path, DOCUMENTS)
    assert str(caught.value).startswith("catalogue toy.toml: cannot be read: ")
    assert (caught.value.file, caught.value.claim, caught.value.field) == ("toy.toml", "", "")


def test_a_folder_without_a_catalogue_is_named(tmp_path: Path) -> None:
    (tmp_path / "toy.txt").touch()
    missing = tmp_path / "nowhere"
    reasons = {
        tmp_path: "holds no .toml file, so there is nothing to verify",
        missing: "cannot be read: No such file or directory",
    }
    for folder, reason in reasons.items():
        with pytest.raises(CatalogueError) as caught:
            load(folder, DOCUMENTS)
        assert str(caught.value) == f"catalogue {folder}: {reason}"
        assert (caught.value.file, caught.value.claim, caught.value.field) == (str(folder), "", "")


def test_claims_that_name_a_cause_share_it(tmp_path: Path) -> None:
    cause = '[[cause]]\nid = "one-cause"\ntext = "A constant factor cancels."\n'
    found = _load(tmp_path, CLAIM + 'cause = "one-cause"\n' + cause)
    assert (found.claims[0].cause, found.causes) == ("one-cause", (Cause("one-cause", "A constant factor cancels."),))
