"""The summary of one run in Markdown, for the page of a step on GitHub: what the console says, then all claims."""

from __future__ import annotations

from rlverify.reporting.outcome import Outcome
from rlverify.reporting.outcome_text import lines_of
from rlverify.reporting.step_summary import LIMIT, StepSummary

TITLES = {0: "as expected", 1: "failed", 2: "could not be measured"}


def summary_of_run(outcome: Outcome) -> str:
    """What happened as preformatted text, and the table of all claims folded in below it."""
    text = "\n".join(line.replace("```", "'''") for line in lines_of(outcome))
    head = f"# rlverify: {TITLES[outcome.exit_code]}\n\n```text\n{text}\n```\n\n"
    before, after = "<details><summary>All claims</summary>\n\n", "\n</details>\n"
    room = LIMIT - len((head + before + after).encode())
    failed = {each.subject: each.sentence for each in outcome.problems if each.kind == "other" and each.exit_code == 1}
    fallen = {each.claim.id: each.headline for each in outcome.fallen}
    return head + before + StepSummary(room).format(outcome.records, {**failed, **fallen}) + after
