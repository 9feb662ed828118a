"""Markdown pages as one HTML file that needs no network: style, script, plots and cited documents are in it."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import PurePosixPath
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from rlverify.reporting.markdown import TEMPLATES, environment
from rlverify.reporting.rendering import render_all
from rlverify.reporting.report_data import ReportData

MARKDOWN: Final = MarkdownIt("commonmark", {"html": True}).enable("table")
OWN_HTML: Final = re.compile(r'(</?(?:details|summary)>|<br>|<a id="[\w.-]+">|</a>)')
"""The HTML that templates write; any other is shown as text."""
COMMENT: Final = re.compile("<!--.*?-->", re.DOTALL)
FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\u007e\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What HTML has no way to write: control characters and halves of surrogate pairs."""
FIRST: Final = ("index.md", "all-claims.md")
TABLE: Final = "all-claims-every-claim"
"""The heading of the table that the script filters."""


def render_html(data: ReportData) -> str:
    """All pages of the report as one file; the same data give the same bytes."""
    texts = render_all(replace(data, in_full=True))
    pages = {name: texts[name] for name in (*FIRST, *texts) if name.endswith(".md")}
    documents = {file: (key, data.lines.get(key, ())) for key, file in data.files.items()}
    title = f"Audit of {', '.join(data.under_test)}" if data.under_test else "Audit report"
    return html_of(title, pages, pictures=texts, documents=documents)


def html_of(
    title: str,
    pages: Mapping[str, str],
    *,
    pictures: Mapping[str, str] | None = None,
    documents: Mapping[str, tuple[str, Sequence[str]]] | None = None,
) -> str:
    """Markdown pages as one HTML file, in their order.

    Links between pages lead to their sections, and links to lines of a document to the document at the end. Links to
    other files become text.
    """
    book = _Book(pages, pictures or {}, documents or {})
    sections = [(book.stem(name), book.section(name), len(pages) > 1 and name not in FIRST) for name in pages]
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    text = environment(None).get_template("report.html.j2").render(
        title=title,
        style=(TEMPLATES / "report.css").read_text(encoding="utf-8"),
        script=script,
        script_digest=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        sections=[(stem, book.titles[stem], html, is_folded) for stem, html, is_folded in sections],
        documents=book.cited_documents(),
        table=TABLE if any(f'id="{TABLE}"' in html for _, html, _ in sections) else "",
    )  # fmt: skip
    return FORBIDDEN.sub("\ufffd", text)


class _Book:
    """Pages that become one file, so that their headings get names of their own."""

    def __init__(
        self,
        pages: Mapping[str, str],
        pictures: Mapping[str, str],
        documents: Mapping[str, tuple[str, Sequence[str]]],
    ) -> None:
        self._pages, self._pictures, self._documents = pages, pictures, documents
        self._named = {name for text in pages.values() for name in re.findall(r'<a id="([\w.-]+)">', text)}
        self._cited: set[str] = set()
        self.titles: dict[str, str] = {}

    def stem(self, page: str) -> str:
        """The name of a page's section."""
        return PurePosixPath(page).stem

    def section(self, page: str) -> str:
        """The HTML of a page, whose headings are one level lower if there are others."""
        tokens = MARKDOWN.parse(self._pages[page])
        headings: Counter[str] = Counter()
        title = ""
        for token, following in zip(tokens, [*tokens[1:], Token("", "", 0)], strict=True):
            if token.type == "heading_open":
                title = _words(following)
                self.titles.setdefault(self.stem(page), title)
                name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")  # as GitHub names it
                headings[name] += 1
                token.attrSet("id", self._anchor(page, name + f"-{headings[name] - 1}" * (headings[name] > 1)))
            if token.type in ("heading_open", "heading_close"):
                token.tag = f"h{min(int(token.tag[1]) + (len(self._pages) > 1), 6)}"
            elif token.type == "table_open":
                _become(token, f'<div class="scroll" role="group" tabindex="0" aria-label="{escape(title)}"><table>\n')
            elif token.type == "table_close":
                _become(token, "</table></div>\n")
            elif token.type in ("fence", "code_block"):
                _become(token, f'<pre tabindex="0"><code>{escape(token.content)}</code></pre>\n')
            elif token.type == "html_block":
                _become(token, _own_html(token.content))
            for child in token.children or ():
                self._inline(child, page)
        html: str = MARKDOWN.renderer.render(tokens, MARKDOWN.options, {})
        return html.replace("<th></th>", "<td></td>")  # which screen readers would announce as a header

    def _inline(self, token: Token, page: str) -> None:
        """Lead links and pictures into the file."""
        if token.type == "html_inline":
            token.content = _own_html(token.content)
        elif token.type == "image":
            _become(token, self._picture(str(token.attrs["src"]), token.content))
        elif token.type == "link_open":
            target = self._target(str(token.attrs["href"]), page)
            if target is None:
                token.attrs = {}  # an <a> without an address is text
            else:
                token.attrSet("href", target)

    def _target(self, link: str, page: str) -> str | None:
        if link.startswith("https://"):
            return link
        place, _, anchor = link.partition("#")
        place = place.partition("?")[0]
        if place in self._documents and self._documents[place][1]:
            self._cited.add(place)
            return f"#{self._documents[place][0]}-{anchor.partition('-')[0]}"
        if (place or page) not in self._pages:
            return None
        return f"#{self._anchor(place or page, anchor)}"

    def _anchor(self, page: str, name: str) -> str:
        """Return the anchor in the one file of what has a name in a page; names given by templates stay as they are."""
        if name in self._named or len(self._pages) == 1:
            return name
        return f"{self.stem(page)}-{name}" if name else self.stem(page)

    def _picture(self, source: str, words: str) -> str:
        if source not in self._pictures:
            return escape(words)
        data = b64encode(self._pictures[source].encode()).decode()
        image = f'<img alt="{escape(words)}" src="data:image/svg+xml;base64,{data}">'
        return f'<span class="scroll" role="group" tabindex="0" aria-label="Plot">{image}</span>'

    def cited_documents(self) -> list[tuple[str, str, list[str]]]:
        """Key, file name and lines of each document to which a link led."""
        found = [(*self._documents[file], PurePosixPath(file).name) for file in sorted(self._cited)]
        return [(key, name, [escape(line) for line in lines]) for key, lines, name in found]


def _words(token: Token) -> str:
    """The text of a heading, without its markup."""
    return "".join(each.content for each in token.children or () if each.type in ("text", "code_inline"))


def _own_html(text: str) -> str:
    parts = OWN_HTML.split(COMMENT.sub("", text))
    return "".join(part if number % 2 else escape(part) for number, part in enumerate(parts))


def _become(token: Token, html: str) -> None:
    """Show HTML in place of a token."""
    token.type, token.content, token.children = "html_block", html, None
