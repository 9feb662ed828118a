"""Markdown pages as one HTML file: complete, escaped, with links that lead somewhere, and nothing from outside."""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode, b64encode
from collections import Counter
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest

from rlverify.reporting.html_report import html_of, render_html
from rlverify.reporting.rendering import draw
from rlverify.reporting.report_data import ReportData, anchor, collect
from rlverify.verdicts.verdict import Record
from tests.engine.reporting.assessed import LONG, assessed_data, hostile
from tests.engine.reporting.records import PROJECT, data, generic, toy_plot

VOID = {"meta", "link", "br", "img", "hr"}


class Page(HTMLParser):
    """The elements of a page, each with its attributes."""

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

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]


def check(text: str) -> Page:
    """A page that is whole, whose ids are there once, whose links lead somewhere, and which loads nothing."""
    page = Page(text)
    assert page.open == []
    assert [name for name, count in Counter(page.ids).items() if count > 1] == []
    links = [each["href"] for each in page.all("a") if "href" in each]
    assert [link for link in links if not link.startswith("https://") and link.removeprefix("#") not in page.ids] == []
    loaded = [each[name] for _, each in page.elements for name in ("src", "srcset", "action") if name in each]
    loaded += [each["href"] for each in page.all("link")]
    assert [each for each in loaded if not each.startswith("data:")] == []
    assert not re.search(r"url\(|@import", text)
    assert not [name for _, each in page.elements for name in each if name.startswith("on")]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (policy,) = [each["content"] for each in page.all("meta") if "http-equiv" in each]
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src 'sha256-{digest}'; img-src data:;" in policy
    return page


def part(text: str, start: str, end: str = "</section>") -> str:
    """The text from a mark to the next end."""
    return text.partition(start)[2].partition(end)[0]


def words(text: str) -> str:
    """What is shown of a text, with single spaces."""
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


@pytest.fixture(scope="module")
def text() -> str:
    return render_html(assessed_data())


@pytest.mark.parametrize(
    "found",
    [
        assessed_data(),
        data(),
        replace(assessed_data(), records=tuple(each for each in assessed_data().records if each.claim.id == "TOY-44")),
        ReportData(()),
        collect(PROJECT, PROJECT.paths.reports, [Record(claim, None) for claim in PROJECT.claims]),
    ],
    ids=["generic pages", "pages of this project", "one chosen claim", "no claim", "this project"],
)
def test_the_page_is_whole_and_has_every_claim(found: ReportData) -> None:
    text = render_html(found)
    page = check(text)
    assert text == render_html(found)
    assert text.endswith("</html>\n")
    claims = [anchor(record.claim.id) for record in found.claims]
    rows = re.findall(r'<tr>\n<td><a href="#(.*?)">', part(text, 'id="all-claims-every-claim"'))
    assert sorted(rows) == sorted(claims)
    assert {*claims, *(anchor(record.claim.id) for record in found.nulls)} <= {*page.ids}
    title = f"Audit of {', '.join(found.under_test)}" if found.under_test else "Audit report"
    assert f"<title>{title}</title>" in text


def test_all_pages_are_there_in_order_with_a_link_to_each(text: str) -> None:
    names = ["index", "all-claims", "claims"]
    assert re.findall(r'<section id="(.*?)">', text) == names
    navigation = re.findall(r'<li><a href="#(.*?)">(.*?)</a>', part(text, "<nav", "</nav>"))
    assert [name for name, _ in navigation] == ["all-claims-every-claim", *names]
    assert '<a class="skip" href="#all-claims-every-claim">Skip to the claims</a>' in text
    assert navigation[2] == ("all-claims", "All claims")


def test_every_text_is_escaped(text: str) -> None:
    assert "<script>attack" not in text
    assert "<img src=https" not in text
    escaped = "&lt;/script&gt;&lt;/style&gt;&lt;script&gt;attack()&lt;/script&gt;"
    assert text.count(escaped) > 20
    shown = part(render_html(generic(replace(data(), records=(hostile(),)))), '<a id="toy-20">')
    assert (shown.count("&lt;img src="), shown.count(LONG)) == (21, 11)


@pytest.mark.parametrize(
    ("markdown", "html"),
    [
        ("<b onclick=x>y</b>", "<p>&lt;b onclick=x&gt;y&lt;/b&gt;</p>"),
        ("<script>x</script>", "&lt;script&gt;x&lt;/script&gt;"),
        ('<a id="x" onclick="y">z', "<p>&lt;a id=&quot;x&quot; onclick=&quot;y&quot;&gt;z</p>"),
        ("![y](https://attack.example/x)", "<p>y</p>"),
        ("![<b>](x.png)", "<p>&lt;b&gt;</p>"),
        ("[y](javascript:x)", "<p>[y](javascript:x)</p>"),
        ("`<b>`", "<p><code>&lt;b&gt;</code></p>"),
        ("```\n<b>\n```", '<pre tabindex="0"><code>&lt;b&gt;\n</code></pre>'),
        ("x <!-- <b> --> y", "<p>x  y</p>"),
        ("<!-- x -->", ""),
        ("<details><summary>x</summary>\n\ny\n\n</details>", "<details><summary>x</summary>\n<p>y</p>\n</details>"),
        ("| a |\n|---|\n| b<br>c \\| d |", "<td>b<br>c | d</td>"),
        ("bell \x07, half \ud800", "<p>bell \ufffd, half \ufffd</p>"),
    ],
)
def test_what_a_page_may_write_is_kept_and_all_else_is_text(markdown: str, html: str) -> None:
    text = html_of("t", {"a.md": f"# T\n\n{markdown}"})
    assert html in part(text, "<h1", "</section>").partition("</h1>\n")[2]
    check(text)
    text.encode()


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("b.md", "b"),
        ("b.md#two-words", "b-two-words"),
        ("#two-words", "a-two-words"),
        ("#two-words-1", "a-two-words-1"),
        ("b.md#named", "named"),
        ("documents/000_x.md?plain=1#L2-L3", "000-L2"),
        ("documents/000_x.md?plain=1#L3", "000-L3"),
        ("documents/001_x.md?plain=1#L1", None),  # whose lines are not known
        ("elsewhere.md#x", None),
        ("../measured/x.md", None),
        ("http://elsewhere.example", None),
        ("https://elsewhere.example", "https://elsewhere.example"),
    ],
)
def test_links_lead_to_places_in_the_file(link: str, target: str | None) -> None:
    pages = {
        "a.md": f"# A\n\n[x]({link})\n\n## Two `words`!\n\n## Two words",
        "b.md": '# B <1>\n\n<a id="named"></a>\n## Two words\n',
    }
    documents = {"documents/000_x.md": ("000", ["one", "<two>", "three"]), "documents/001_x.md": ("001", ())}
    text = html_of("t & u", pages, documents=documents)
    check(text)
    address = target if target is None or target.startswith("https") else f"#{target}"
    assert (f'<p><a href="{address}">x</a></p>' if target else "<p><a>x</a></p>") in text
    is_cited = target is not None and target.startswith("000")
    assert ('<span id="000-L2"><i>2</i> &lt;two&gt;</span>' in text) == is_cited
    assert ("<h2>Document 000: 000_x.md</h2>" in text) == is_cited
    assert "Document 001" not in text
    assert "<title>t &amp; u</title>" in text
    assert '<li><a href="#b">B &lt;1&gt;</a></li>' in text
    assert '<a class="skip" href="#a">Skip to the pages</a>' in text
    assert '<h2 id="a-a">A</h2>' in text
    assert '<h3 id="b-two-words">Two words</h3>' in text


def test_one_page_keeps_its_headings_and_has_no_navigation() -> None:
    text = html_of("t", {"a.md": "# A\n\n[x](#b)\n\n## B\n"})
    assert (len(check(text).all("h1")), '<h2 id="b">B</h2>' in text, "<nav" in text) == (1, True, False)


def test_a_table_scrolls_under_the_name_of_its_heading() -> None:
    text = html_of("t", {"a.md": '# A\n\n## B "1"\n\n| x | |\n|---|---|\n| y | z |\n'})
    assert re.findall(r"<tr>\n(.*)\n(.*)\n</tr>", text) == [("<th>x</th>", "<td></td>"), ("<td>y</td>", "<td>z</td>")]
    assert '<div class="scroll" role="group" tabindex="0" aria-label="B &quot;1&quot;"><table>' in text
    check(text)


def test_a_plot_is_in_the_file() -> None:
    pictures = {"plots/a.svg": draw(toy_plot())}
    text = html_of("t", {"a.md": '# A\n\n![a "plot"](plots/a.svg) ![b](plots/b.svg)'}, pictures=pictures)
    (image,) = check(text).all("img")
    assert image["alt"] == 'a "plot"'
    assert b64decode(image["src"].removeprefix("data:image/svg+xml;base64,")).decode() == pictures["plots/a.svg"]
    assert "</span> b</p>" in text


def test_a_claim_has_its_evidence_and_the_lines_that_it_cites(text: str) -> None:
    section = unescape(words(part(text, '<a id="full-toy-01">', "</details>")))
    for told in (
        "CONFIRMED ; its fix: NO EFFECT (expected CURED).",
        "The documented fix: The state is read.",
        "count | all 320 0 0",
        "ema as expected as expected as expected",
        "Reproduce: rlverify reproduce TOY-01",
    ):
        assert told in section
    assert '<span id="002-L281"><i>281</i> line 281 of 002</span>' in text
    assert 'Lines: <a href="#002-L280">002:280-282</a>' in text


def test_all_but_the_index_and_the_claims_is_folded(text: str) -> None:
    opened = re.findall(r'<section id="([\w-]+)">\n(<details><summary>.*</summary>)?', text)
    assert opened == [("index", ""), ("all-claims", ""), ("claims", "<details><summary>Claims</summary>")]
    assert "<code>rlcore</code> has none of them" in part(render_html(data()), '<section id="index">')
    assert re.search(r"<h2>Document 002: .*</h2>\n<details><summary>599 lines</summary>", text)
