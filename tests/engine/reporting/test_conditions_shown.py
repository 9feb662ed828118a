"""What the pages show of conditions, and of criteria that were changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlverify.records.claims import EarlierCriterion, Verdict
from rlverify.reporting.phrasing import told
from rlverify.reporting.rendering import render_all
from rlverify.verdicts.verdict import ClaimStatus, Record, status_of
from tests.engine.project.test_conditions import CONFIRMED, under
from tests.engine.reporting.records import CLAIM, data_of, figure, generic, measured
from verification.pages.ranking import STATUSES, status_of_statement

SPREAD = (
    "CONFIRMED under the claim's own condition; of 2 other conditions: CONFIRMED under 1, REFUTED under 1 (the "
    "opposite was measured)"
)
DEPENDING = replace(CONFIRMED, conditions=(under(Verdict.CONFIRMED), under(Verdict.REFUTED)))


def pages(*records: Record, **changes: object) -> dict[str, str]:
    return dict(render_all(generic(data_of(records, **changes))))


def ours(*records: Record) -> dict[str, str]:
    return dict(render_all(data_of(records)))


def test_a_verdict_that_depends_is_shown_with_every_condition() -> None:
    text = pages(DEPENDING)["claims.md"]
    assert f"**UNDECIDED**; its fix: **CURED**. Conditions: {SPREAD}." in text
    assert "| x | CONFIRMED | 0.5 times (0.2 to 0.8) | count: 0 to 1 times | 5 |" in text
    assert "| x | REFUTED | 2.5 times (2 to 3) | count: 0 to 1 times | 5 |" in text
    assert "(expected" not in text.partition("## TOY-01")[2].partition("|")[0]


def test_a_condition_without_evidence_is_a_hole() -> None:
    record = replace(CONFIRMED, conditions=(under(None),))
    found = pages(record)
    assert "| x | NO EVIDENCE |" in found["claims.md"]
    assert status_of_statement(record) == STATUSES[-1]
    assert "## Missing" in found["index.md"]
    assert "**1 without a verdict**: TOY-01 (no result under: x)." in found["index.md"]


FAILED = measured(CLAIM, healthy=2, faulty=0, documented_fix=0)
AGAINST = measured(replace(CLAIM, against_document=True, basis="code"), healthy=2, faulty=0, documented_fix=2)
REFUTED_FIGURE = figure(30.0, 40.0)  # REFUTED, where CONFIRMED is expected
CONFIRMED_FIX, REFUTED_FIX, NO_RESULT = (
    under(each, of_fix=True) for each in (Verdict.CONFIRMED, Verdict.REFUTED, None)
)


@pytest.mark.parametrize(
    ("record", "status"),
    [
        (CONFIRMED, 0),
        (replace(CONFIRMED, conditions=(CONFIRMED_FIX,)), 0),
        (replace(CONFIRMED, conditions=(REFUTED_FIX,)), 3),
        (replace(CONFIRMED, conditions=(NO_RESULT,)), 4),
        (FAILED, 1),
        (replace(FAILED, conditions=(CONFIRMED_FIX,)), 3),
        (replace(FAILED, conditions=(CONFIRMED_FIX, NO_RESULT)), 4),
        (replace(AGAINST, conditions=(REFUTED_FIX,)), 1),
        (replace(AGAINST, conditions=(NO_RESULT,)), 1),
        (replace(AGAINST, claim=replace(AGAINST.claim, basis="implied"), conditions=(REFUTED_FIX,)), 2),
        (measured(CLAIM, healthy=0, faulty=0, documented_fix=0), 4),
    ],
)
def test_a_claim_is_counted_where_it_is_listed(record: Record, status: int) -> None:
    assert status_of_statement(record) == STATUSES[status]
    counts = ["1" if each == status else "0" for each in range(5)]
    found = ours(record)
    assert f"| All statements | 1 | {' | '.join(counts)} |" in found["index.md"]
    listed = "[TOY-01](" in found["wrong-statements.md"].partition("## Verdicts that depend")[2]
    assert listed == (status == 3)
    assert f"[{int(listed)} claims](wrong-statements.md" in found["index.md"]


@pytest.mark.parametrize(("verdict", "number"), [(Verdict.REFUTED, 1), (Verdict.UNDECIDED, 0)])
def test_the_index_counts_for_how_many_the_opposite_was_measured(verdict: Verdict, number: int) -> None:
    text = ours(replace(CONFIRMED, conditions=(under(verdict),)))["index.md"]
    assert f"The opposite was measured for {number} of them" in text


@pytest.mark.parametrize(
    ("own", "status"),
    [(CONFIRMED, ClaimStatus.PASSED), (FAILED, ClaimStatus.FAILED), (REFUTED_FIGURE, ClaimStatus.FAILED)],
)
def test_the_status_of_a_claim_is_that_of_its_own_measurement(own: Record, status: ClaimStatus) -> None:
    record = replace(own, conditions=(under(Verdict.REFUTED, expected=Verdict.CONFIRMED), under(Verdict.CONFIRMED)))
    assert (record.verdict, record.as_expected) == (Verdict.UNDECIDED, False)
    assert status_of(record) == status
    assert told(record) == told(own)


def test_conditions_of_a_fix_have_a_table_of_their_own() -> None:
    claim = replace(CLAIM, invariant="The noise has one size.")
    record = replace(CONFIRMED, claim=claim, conditions=(under(Verdict.REFUTED, of_fix=True),))
    text = pages(record)["claims.md"]
    assert "No setting can change the verdict: The noise has one size." in text
    assert "The fix under other conditions:" in text
    assert "The claim under other conditions:" not in text
    assert "| x | does not cure | 2.5 times (2 to 3) |" in text
    assert "its fix: **UNDECIDED**" in text
    assert "another verdict, or none: [1 claims]" in ours(record)["index.md"]
    assert "| All statements | 1 | 0 | 0 | 0 | 1 | 0 |" in ours(record)["index.md"]
    assert "[TOY-01](" in ours(record)["wrong-statements.md"].partition("## Verdicts that depend")[2]


def test_a_claim_may_have_conditions_of_both_kinds() -> None:
    record = replace(CONFIRMED, conditions=(under(Verdict.CONFIRMED), under(Verdict.CONFIRMED, of_fix=True)))
    text = pages(record)["claims.md"]
    assert text.index("The claim under other conditions") < text.index("The fix under other conditions")
    assert "cures" in text.partition("The fix under other conditions")[2]


def test_earlier_criteria_of_a_claim_and_of_its_conditions_are_shown() -> None:
    earlier = EarlierCriterion("at most 10", Verdict.REFUTED, "2026-11-21", "The run was too short.")
    one = under(Verdict.CONFIRMED)
    told = "was: at most 10. Verdict: REFUTED. Changed because: The run was too short."
    own = replace(CONFIRMED, claim=replace(CLAIM, earlier=(earlier,)))
    assert f"Until 2026-11-21, the criterion {told}" in pages(own)["claims.md"]
    of_condition = replace(CONFIRMED, conditions=(replace(one, claim=replace(one.claim, earlier=(earlier,))),))
    assert f"Until 2026-11-21, the criterion (x) {told}" in pages(of_condition)["claims.md"]


def test_conditions_that_agree_make_a_figure_surer() -> None:
    lonely = figure(30.0, 40.0)
    lonely = replace(lonely, claim=replace(lonely.claim, basis="formula", scale="toy"))
    assert lonely.confidence == "medium"
    assert replace(lonely, conditions=(under(Verdict.REFUTED),)).confidence == "high"
    assert replace(lonely, conditions=(under(None), under(Verdict.REFUTED, of_fix=True))).confidence == "medium"
    assert replace(lonely, claim=replace(lonely.claim, invariant="Always.")).confidence == "high"


def test_a_remark_of_the_project_is_in_the_section_of_its_claim() -> None:
    told = "- In a training run: episode length -30 %"
    assert told in pages(CONFIRMED, facts={"remarks": {"TOY-01": told}})["claims.md"]
    assert "In a training run" not in pages(CONFIRMED)["claims.md"]
