"""The claims and lines of documents that ``docs/tensorboard.md`` names, against the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlverify.project.content import Project, open_project
from tests.support.scalar_tables import PAGE, rows

ROOT = Path(__file__).parents[2]
TABLES = ("Logged", "Asked for and not logged")
ASKING = re.compile(r"monitor|track|log|validate|check|warning|монитор|логир", re.IGNORECASE)
CITE = re.compile(r"^\d{3}:\d+$")


@pytest.fixture(scope="module")
def project() -> Project:
    return open_project(ROOT)


def asked() -> Iterator[str]:
    """The claims and lines that the tables name."""
    for table in TABLES:
        for row in rows(table):
            yield from (each for each in row["asked by"].split(", ") if each != "-")


def line_of(cite: str) -> str:
    document, _, number = cite.partition(":")
    (path,) = (ROOT / "verification" / "documents").glob(f"{document}_*.md")
    return path.read_text(encoding="utf-8").splitlines()[int(number) - 1]


def test_every_claim_and_line_exists_and_the_line_asks(project: Project) -> None:
    claims = {claim.id for claim in project.claims}
    cites = [each for each in asked() if CITE.match(each)]
    assert {each for each in asked() if not CITE.match(each)} <= claims
    assert len(cites) > 20
    for cite in cites:
        assert ASKING.search(line_of(cite)), f"{cite}: {line_of(cite)}"


def test_every_claim_about_monitoring_is_in_a_table(project: Project) -> None:
    claims = {each.id for each in project.claims if each.area == "monitoring" and each.kind != "null"}
    claims |= {each.id for each in project.claims if each.id.startswith("MON-")}
    claims -= {each.id for each in project.claims if each.condition_of}
    missing = claims - {*asked()} - {"PPO-05-A"}  # which is about a mistake in the recommended code, not a quantity
    assert missing == set()


def test_every_line_of_the_list_to_monitor_is_in_a_table() -> None:
    items = [f"001:{number}" for number in range(372, 392) if line_of(f"001:{number}").strip().startswith("- ")]
    assert len(items) == 12
    assert {*items} <= {*asked()}


def test_the_page_is_linked_from_the_readme() -> None:
    assert f"docs/{PAGE.name}" in (ROOT / "README.md").read_text(encoding="utf-8")
