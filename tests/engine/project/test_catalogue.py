"""What is loaded from the files of a catalogue, and what is reported of a broken one, to the letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlverify.project.catalogue import load
from rlverify.project.citations import Documents
from rlverify.records.claims import Claim, DocumentedProblem
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


def _load(folder: Path, text: str) -> tuple[Claim, ...]:
    (folder / "toy.toml").write_text(text, encoding="utf-8")
    return load(folder, DOCUMENTS)


def test_a_claim_keeps_what_the_document_says_about_its_problem(tmp_path: Path) -> None:
    problem = '[claim.problem]\ncategory = "state"\ncomponents = ["buffer"]\npriority = "P0"\n'
    (claim,) = _load(tmp_path, CLAIM + problem)
    assert claim.problem == DocumentedProblem(category="state", components=("buffer",), priority="P0")


def test_a_file_may_have_its_document_and_tables_for_pages(tmp_path: Path) -> None:
    assert len(_load(tmp_path, f'document = "toy"\n{CLAIM}[[untestable]]\nwhy = "a title"\n')) == 1


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
    "a misspelt field next to a missing one": (
        CLAIM.replace("title =", "titel ="),
        "TOY-01, titel: no such field; did you mean 'title'? (wrong as well: title)"),
    "another type": (f'{CLAIM}seeds = [1, "0"]', "TOY-01, seeds.1: Input should be a valid integer, got '0'"),
    "no expectation": (CLAIM.replace("expected", "#"), "TOY-01, expected: is missing"),
    "no probe": (CLAIM.replace("probe", "#"), "TOY-01, probe: is missing; a assurance is measured by its probe"),
    "a claim without id": (CLAIM + CLAIM.replace("id =", "#"), "entry 2, id: is missing"),
    "an id for two entries": (CLAIM + CLAIM, "TOY-01, id: already used in toy.toml"),
    "part of itself": (f'{CLAIM}part_of = "TOY-01"', "TOY-01, part_of: there is no other entry 'TOY-01'"),
    "one table": (CLAIM.replace("[[claim]]", "[claim]"), "claim: must be one or more [[claim]] tables"),
    "a number": ("claim = 3", "claim: must be one or more [[claim]] tables"),
    "a stray field": (f"xyz = 1\nabc = 2\n{CLAIM}", "xyz: is outside every [[claim]]"),
    "a misspelt table": (CLAIM.replace("[[claim]]", "[[claims]]"), "claims: is no table; did you mean [[claim]]?"),
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
