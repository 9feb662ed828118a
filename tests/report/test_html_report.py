"""The HTML report as text: complete, escaped, the same bytes for the same data, and nothing outside it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from rlverify.reporting.code_blocks import PlantedCode
from rlverify.reporting.collecting import collect
from rlverify.reporting.html_report import prose, quoted, render_html
from rlverify.reporting.record import Record
from rlverify.reporting.report_data import ReportData, anchor
from tests.report.assessed import ATTACK, LONG, assessed_data, bug, hostile, wrong
from tests.report.records import CLAIM, MISFIT, PROJECT, data, generic, measured, simple

VOID = {"meta", "link", "br", "input", "img", "rect", "path"}


class Page(HTMLParser):
    """The elements of a page, each with its attributes, and the text within elements of a kind."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def claims(self) -> dict[str, dict[str, str]]:
        return {each["id"]: each for each in self.all("details") if each.get("class") == "claim"}


@pytest.fixture(scope="module")
def found() -> ReportData:
    return assessed_data()


@pytest.fixture(scope="module")
def text(found: ReportData) -> str:
    return render_html(found)


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def part(text: str, start: str, end: str = "</section>") -> str:
    """The text from a mark to the next end."""
    return text.partition(start)[2].partition(end)[0]


def row(text: str, claim_id: str) -> str:
    return part(text, f'<details class="claim" id="{anchor(claim_id)}"', "Link to ")


def words(text: str) -> str:
    """What is shown of a text, with single spaces."""
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


def test_every_claim_is_there_once(found: ReportData, page: Page) -> None:
    rows = [each["id"] for each in page.all("details") if each.get("class") == "claim"]
    assert rows == [anchor(record.claim.id) for record in found.claims]
    assert len(rows) == len(set(rows)) == 31
    nulls = {each.get("id") for each in page.all("tr")}
    assert {anchor(record.claim.id) for record in found.nulls} < nulls


def test_all_elements_are_closed_and_ids_are_unique_and_links_have_targets(page: Page) -> None:
    assert page.open == []
    ids = Counter(attributes["id"] for _, attributes in page.elements if "id" in attributes)
    assert set(ids.values()) == {1}
    links = [each["href"] for each in page.all("a")]
    assert len(links) > 60
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    labelled = {each["for"] for each in page.all("label")}
    assert {each["id"] for each in [*page.all("select"), *page.all("input")]} == labelled


def test_the_same_data_give_the_same_bytes(text: str) -> None:
    assert render_html(assessed_data()) == text
    assert text.endswith("</html>\n")


def test_everything_is_escaped(text: str, page: Page) -> None:
    assert "<script>attack" not in text
    assert "<img" not in text
    assert "49" not in words(row(text, "TOY-20"))
    assert len(page.all("script")) == len(page.all("style")) == 1
    escaped = "&lt;/script&gt;&lt;/style&gt;&lt;script&gt;attack()&lt;/script&gt;&#34;&#39;&gt;&lt;img "
    assert text.count(escaped) > 25
    assert "000: Document 000 &lt;b&gt;" in text


def test_every_text_of_a_claim_is_shown() -> None:
    shown = row(render_html(generic(replace(data(), records=(hostile(),)))), "TOY-20")
    assert shown.count("&lt;img src=") == 27  # the hedge is under Limits as well
    assert shown.count(LONG) == 13


def test_nothing_is_loaded_from_anywhere(page: Page) -> None:
    addresses = [
        value for _, each in page.elements for name, value in each.items() if name in ("src", "href", "action")
    ]
    assert {each for each in addresses if not each.startswith("#")} == {"data:,"}
    (policy,) = [each["content"] for each in page.all("meta") if "http-equiv" in each]
    assert policy.startswith("default-src 'none'; ")


def test_filters_offer_what_the_claims_have(found: ReportData, text: str, page: Page) -> None:
    names = [each["name"] for each in page.all("select")]
    assert names == ["finding", "verdict", "severity", "document", "evidence"]
    claims = list(page.claims().values())
    for name in names:
        offered = re.findall(
            r'<option value="(.+?)">.+? \((\d+)\)</option>', part(text, f' name="{name}"', "</select>")
        )
        had = Counter(value for each in claims for value in each[f"data-{name}"].split())
        assert dict(offered) == {value: str(count) for value, count in had.items()}
    assert {"CONFIRMED", "REFUTED", "NO-EVIDENCE", "ERROR", "STALE", "REGRESSED", "NOT-REPRODUCED"} == {
        each["data-verdict"] for each in claims
    }
    few = Page(render_html(replace(found, records=(bug(21),))))
    offered = [each["value"] for each in few.all("option") if each["value"]]
    assert offered == ["bug-proven-real", "CONFIRMED", "high", "002", "code"]


def test_a_claim_is_found_under_every_document_that_it_cites(page: Page) -> None:
    assert page.claims()["toy-41"]["data-document"] == "002 004"
    assert page.claims()["fnd-01"]["data-document"] == "ours 004"


def test_the_summary_has_the_ten_findings_that_matter_most(text: str) -> None:
    summary = part(text, 'id="section-summary"')
    assert "The 10 findings that matter most, of 25 causes" in summary
    ids = re.findall(r'<p class="name"><a href="#.*?">(.*?)</a>', summary)
    assert ids[:4] == ["TOY-21", "TOY-22", "TOY-41", "TOY-43"]
    assert len(ids) == 10
    first = part(summary, '<li>\n<p class="name">', "</li>")
    assert words(first) == (
        "TOY-21 claim 21 CONFIRMED real bug severity: critical · confidence: high "
        "With the bug: count | all: 0, expected 320. Action: Fix number 21. rlverify reproduce TOY-21"
    )


def test_a_row_has_the_code_of_the_bug_and_the_limits_of_its_verdict() -> None:
    claim = replace(CLAIM, basis="reconstruction", scale="toy")
    code = {"forgets": PlantedCode("toy:load", "def load(): ...", "def forgets(a: <int>): ...")}
    page = render_html(ReportData((measured(claim, healthy=2, faulty=0, documented_fix=2),), code=code))
    row = words(part(page, '<details class="claim" id="toy-01"'))
    assert "Code toy:load, healthy: def load(): ... with the bug: def forgets(a: &lt;int&gt;): ..." in row
    assert (
        "Limits The document gives only a title; the bug that is re-injected is our reconstruction. Measured on" in row
    )


def test_claims_of_one_cause_count_once(text: str) -> None:
    summary = part(text, 'id="section-summary"')
    shared = part(summary, '<a href="#toy-41">TOY-41</a>', "</li>")
    assert "A constant factor <code>c</code> cancels." in shared
    assert 'For the same reason: <a href="#toy-42">TOY-42</a> claim 42' in shared
    assert not re.findall(r'class="name"><a href="#toy-42"', text)


def test_the_plan_says_its_rule_and_what_to_do(text: str) -> None:
    sections = part(text, 'id="section-plan"').split("<h3>")[1:]
    assert [words(each).partition(" ")[0] for each in sections] == ["Now:", "Next:", "Later:"]
    assert "Now: critical severity" in words(sections[0])
    ids = [re.findall(r'<p class="name"><a href="#.*?">(.*?)</a>', each) for each in sections]
    assert ids == [["TOY-21"], [], ["TOY-22", "TOY-41", "TOY-43"]]
    empty = part(render_html(generic(data())), 'id="section-plan"')
    assert empty.count("<p>Nothing.</p>") == 3


def test_claims_are_counted_by_evidence_class(text: str) -> None:
    table = part(text, 'aria-label="Claims by evidence class"', "</table>")
    rows = [words(each) for each in table.split("<tr>")[2:]]
    assert rows == [
        "code code of the bug, the fix or the call 11 11 0 0 0 0",
        "formula formula or number 4 0 4 0 0 0",
        "reconstruction title only; our reconstruction 1 1 0 0 0 0",
        "implied not stated in this form, only implied 1 1 0 0 0 0",
        "not classified no class in the catalogue 14 5 5 0 0 4",
    ]


def test_a_statement_that_only_we_make_is_not_held_against_the_document() -> None:
    found = [wrong(2, basis="implied"), wrong(3, basis="reconstruction")]
    text = render_html(generic(replace(data(), records=tuple(found))))
    rows = [words(each) for each in part(text, 'aria-label="Claims by evidence class"', "</table>").split("<tr>")[2:]]
    assert [each.split()[-6:] for each in rows] == [["1", "0", "0", "1", "0", "0"]] * 2
    assert "contradicts document" not in text
    assert "Implied, not stated in this form: Restoring" in text


def test_a_row_has_statement_evidence_cause_fix_and_proof(text: str) -> None:
    shown = words(row(text, "TOY-01"))
    for told in (
        "TOY-01 a | b &lt;c&gt; CONFIRMED contradicts document real bug fix: NO EFFECT severity: not assessed",
        "Statement Restoring forgets the *count*.",
        "Result The defect is real. The fix leaves the symptom: count | all: 0",
        "Not as expected Expected: CONFIRMED; fix CURED.",
        "Cited lines 002:280-282 280 line 280 of 002 281 line 281 of 002 282 line 282 of 002",
        "Severity in the document critical",
        "symptom healthy with the fault with the fix count | all holds in 2/2 expected 320 observed 320 violated",
        "Root cause the state is not read Documented fix The state is read. NO EFFECT",
        "Tests that catch it tests/a.py::test_a tests/b.py::test_b",
        "Reproduce rlverify reproduce TOY-01",
    ):
        assert told in shown


def test_a_figure_is_shown_with_its_interval_and_a_part_with_its_whole(text: str) -> None:
    shown = words(row(text, "TOY-44"))
    assert "efficiency lost 15 to 25 % 0.5 % (-2 to 3) 1.25 24 0.8 8 seeds: mean 1.2, sd 6.0" in shown
    assert "Part of TOY-21 claim 21" in shown
    whole = words(row(text, "TOY-21"))
    assert "Parts, each measured on its own part statement measured TOY-44 claim 9 (figure)" in whole


def test_what_was_not_measured_says_so_with_the_command(text: str) -> None:
    assert "No evidence. Run rlverify audit --update ." in words(row(text, "TOY-03"))
    stale = words(row(text, "TOY-06"))
    assert f"Stale, so it does not count: {MISFIT}; the &lt;symptoms&gt; too" in stale


def test_plots_contradictions_checklists_and_null_faults_are_there(text: str) -> None:
    plots = part(text, 'id="section-plots"')
    assert plots.count("<svg ") == 1
    assert "first &amp; &lt;only&gt;" in plots
    assert "<style>" not in plots
    contradiction = words(part(text, 'id="con-01"', "</article>"))
    assert "CON-01: how many tests pass 000:18 : “24/24 PASSED” 001:21 : “22/24”" in contradiction
    assert contradiction.endswith("neither: the tests are not here See TOY-01 , TOY-02 .")
    assert "nothing runs code" in part(text, 'id="ready-1"', "</article>")
    assert "false alarm: 1 of 4" in part(text, 'id="section-nulls"')


def test_of_a_project_with_next_to_nothing_there_is_a_page_too() -> None:
    text = render_html(ReportData(()))
    assert "<title>Audit report</title>" in text
    page = Page(text)
    assert page.claims() == {}
    assert [each["href"] for each in page.all("a")] == [
        "#section-claims", "#section-summary", "#section-audited", "#section-plan", "#section-claims"
    ]  # fmt: skip


def test_a_link_to_a_claim_that_was_not_chosen_is_a_word() -> None:
    some = replace(assessed_data(), records=tuple(r for r in assessed_data().records if r.claim.id == "TOY-44"))
    text = render_html(some)
    assert "<dt>Part of</dt><dd>TOY-21</dd>" in text
    assert "See TOY-01, TOY-02." in text
    assert Page(text).open == []


def test_what_html_cannot_write_is_replaced() -> None:
    odd = measured(simple(1, title="bell \x07, nul \x00, half \ud800"), healthy=2, faulty=0)
    text = render_html(generic(replace(data(), records=(odd,))))
    assert "bell \ufffd, nul \ufffd, half \ufffd" in text
    text.encode()


def test_what_stands_between_backticks_is_code() -> None:
    assert prose("a `<b>` c` <d>") == "a <code>&lt;b&gt;</code> c` &lt;d&gt;"


def test_the_lines_of_every_document_are_counted() -> None:
    table = render_html(data()).partition('aria-label="Documents"')[2].partition("</table>")[0]
    rows = [re.findall(r"<td>(.*?)</td>", row)[2:] for row in table.split("<tr>")[2:]]
    assert rows == [["10", "4", "2", "1", "3"], ["20", "11", "5", "4", "0"], *[["-"] * 5] * 3]


def test_lines_of_a_document_that_is_not_there_are_not_quoted() -> None:
    assert quoted(generic(data()), "002:1-2") == []
    assert quoted(assessed_data(), "002:2-3") == [(2, "line 2 of 002"), (3, "line 3 of 002")]
    assert ATTACK in hostile().claim.title


def test_the_page_of_this_project_has_all_of_its_claims_and_quotes_what_they_cite() -> None:
    collected = collect(PROJECT, PROJECT.paths.reports, [Record(claim, None) for claim in PROJECT.claims])
    text = render_html(collected)
    assert "<title>Audit of rlcore</title>" in text
    assert ". Last measured in full on " in text
    page = Page(text)
    assert set(page.claims()) == {
        anchor(claim.id) for claim in PROJECT.claims if claim.kind != "null" and not claim.condition_of
    }
    assert len([each for each in page.all("details") if each.get("class") == "cited"]) == sum(
        len(claim.cites) for claim in PROJECT.claims if not claim.condition_of
    )
    assert collected.causes == PROJECT.catalogue.causes
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    assert {each["href"][1:] for each in page.all("a")} <= ids
