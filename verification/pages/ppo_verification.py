"""The verification of PPO, as document 004: every finding of it put to the test again."""

from __future__ import annotations

from rlverify import page
from rlverify.reporting.markdown import render
from rlverify.reporting.report_data import ReportData


@page("ppo-verification.md", title="PPO verification", about="the findings of document 004", documents=["004"])
def ppo_verification(data: ReportData) -> str:
    """The page as GitHub-flavoured Markdown."""
    return render("ppo-verification.md.j2", data)
