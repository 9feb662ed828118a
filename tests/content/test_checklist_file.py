"""The checklists of documents, and what is reported of a broken one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlverify.project.citations import Documents
from rlverify.records.errors import CatalogueError
from verification.pages.documents import CHECKLISTS, Checklist, ChecklistItem, load_checklists

DOCUMENTS = Documents(lines={"notes": ("# Readiness", "", "- tests pass", "- state survives")})
RULES = """
[[checklist]]
id = "READY-1"
title = "Readiness"
documented = "ready"
cites = ["notes:1-4"]

[[checklist.item]]
item = "state survives"
documented = "yes"
met = true
cites = ["notes:4"]
claims = ["BUG-01"]
core_claims = ["ALL-01"]

[[checklist.item]]
item = "tests pass"
documented = "no"
met = false
cites = ["notes:3"]
tests = "002"

[[checklist]]
id = "READY-2"
title = "Documentation"
documented = "complete"
cites = ["notes:1"]
item = [{item = "written", documented = "yes", met = true, cites = ["notes:1"]}]
"""


def test_checklists_keep_every_field(tmp_path: Path) -> None:
    (tmp_path / CHECKLISTS).write_text(RULES, encoding="utf-8")
    survives = ChecklistItem("state survives", "yes", True, ("notes:4",), ("BUG-01",), core_claims=("ALL-01",))
    passing = ChecklistItem("tests pass", "no", False, ("notes:3",), (), tests="002")
    written = ChecklistItem("written", "yes", True, ("notes:1",), ())
    assert load_checklists(tmp_path, DOCUMENTS) == (
        Checklist("READY-1", "Readiness", "ready", ("notes:1-4",), (survives, passing)),
        Checklist("READY-2", "Documentation", "complete", ("notes:1",), (written,)),
    )


@pytest.mark.parametrize(
    ("old", "new", "field", "reason"),
    [
        ("met = false\n", "", "0.item.1.met", "Field required"),
        ('claims = ["BUG-01"]', 'claim = ["BUG-01"]', "0.item.0.claim", "Unexpected keyword"),
        ('id = "READY-2"', "id = ", "", "cannot be read: "),
        ("tests pass", "\udcff", "", "cannot be read: "),
    ],
)
def test_a_broken_checklist_is_reported_with_its_place(
    tmp_path: Path, old: str, new: str, field: str, reason: str
) -> None:
    assert old in RULES
    (tmp_path / CHECKLISTS).write_bytes(RULES.replace(old, new, 1).encode("utf-8", "surrogateescape"))
    with pytest.raises(CatalogueError) as raised:
        load_checklists(tmp_path, DOCUMENTS)
    assert (raised.value.file, raised.value.claim, raised.value.field) == (CHECKLISTS, "", field)
    place = f"{CHECKLISTS}, {field}" if field else CHECKLISTS
    assert str(raised.value).startswith(f"catalogue {place}: ")
    assert reason in str(raised.value)


def test_a_checklist_cites_lines_that_are_there(tmp_path: Path) -> None:
    (tmp_path / CHECKLISTS).write_text(RULES.replace('["notes:4"]', '["notes:9"]', 1), encoding="utf-8")
    with pytest.raises(CatalogueError, match=r"READY-1, cites: .* has the lines 1 to 4"):
        load_checklists(tmp_path, DOCUMENTS)
