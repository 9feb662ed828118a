"""The page of the field report: complete, escaped, with links that lead somewhere."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.field.effects import EPISODES, MEASURED, SEEDS
from benchmarks.field.page import EFFECT_OF, render_field_report, reproduction
from benchmarks.field.records import read_field_report, text_of
from tests.benchmarks.field.field_example import WHERE, field_example, optimizer
from tests.content.test_links import anchors, links
from tests.engine.reporting.test_html_report import part
from tests.support.repository_copy import ROOT

COMMITTED = ROOT / "reports" / "measured"

ESCAPED = r"a|b &lt;img src=x> \_lead `c|<d>` \*e\* snake_case &amp; done"
"""`HOSTILE` in Markdown outside of tables."""
SHARED = "set_parameters_copies"


@pytest.fixture(scope="module")
def markdown() -> str:
    return render_field_report(field_example())


def test_each_case_is_one_line_with_what_was_seen_where_and_why(markdown: str) -> None:
    cases = part(markdown, f"### {SHARED}\n", "\n### ").partition("What the check saw:\n\n")[2].partition("\n\n")[0]
    seen = f"{ESCAPED} (at {WHERE}); a copy is `unchanged`"
    assert cases.splitlines() == [
        f"- PPO, defaults: {seen}",
        f"- PPO, other settings: {seen}",
        f"- TRPO, defaults: {seen}",
    ]


def test_the_columns_of_a_table_are_as_many_in_every_row(markdown: str) -> None:
    text = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(tables) == 4
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table


def test_the_text_about_effects_is_of_what_is_measured(markdown: str) -> None:
    assert set(EFFECT_OF) == set(MEASURED)
    assert (len(SEEDS), EPISODES) == (3, 20)
    assert "Mean over three seeds" in markdown
    assert "means of 20 episodes" in " ".join(markdown.split())


def test_what_could_not_be_checked(markdown: str) -> None:
    assert "\n## Not checked\n\n- SAC, defaults: its process &lt;ended> with exit code -11\n" in markdown
    fine = replace(field_example(), algorithms=field_example().algorithms[:-1])
    assert "Not checked" not in render_field_report(fine)


def test_the_lines_that_check_an_optimizer_again_run(capsys: pytest.CaptureFixture[str]) -> None:
    exec(reproduction(optimizer("SGD"), "missing_gradients_are_skipped"), {})  # noqa: S102 - what a reader would run
    assert capsys.readouterr().out.startswith("pass, proven by 1 fault\n")


def test_every_link_of_the_markdown_leads_to_one_place(markdown: str) -> None:
    inner = [link[1:] for link in links(markdown) if link.startswith("#")]
    assert len(inner) == 1 + 3  # the table of optimizers; findings
    assert set(inner) <= anchors(markdown)
    headings = Counter(re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", markdown, flags=re.DOTALL), re.MULTILINE))
    assert set(headings.values()) == {1}


def test_a_report_about_one_kind_has_no_empty_table() -> None:
    found = field_example()
    only_algorithms = render_field_report(replace(found, optimizers=()))
    only_optimizers = render_field_report(replace(found, algorithms=(), reproductions=()))
    assert ("Optimizers of torch" in only_algorithms, "Algorithms by checks" in only_algorithms) == (False, True)
    assert ("Optimizers of torch" in only_optimizers, "Algorithms by checks" in only_optimizers) == (True, False)


def test_the_committed_page_is_what_the_committed_data_render_to() -> None:
    data = COMMITTED / "field-report.json"
    report = read_field_report(data)
    assert text_of(report) == data.read_text(encoding="utf-8")
    page = COMMITTED / "field-report.md"
    command = "python -m benchmarks.field report"
    assert page.read_text(encoding="utf-8") == render_field_report(report), f"run `{command}`"
