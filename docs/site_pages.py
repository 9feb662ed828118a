"""Which files of the repository the site has: a hook of MkDocs, which would take those below docs/ alone."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
DOCUMENTS = "verification/documents/"
PATTERNS = (
    "*.md",
    "LICENSE",
    "docs/**/*.md",
    "docs/*.css",
    "docs/*.js",
    "reports/**/*.md",
    "reports/**/*.svg",
    f"{DOCUMENTS}*.md",
    "benchmarks/field/**/*.py",
    "examples/**/*.py",
)
REFERENCE = re.compile(r'<autoref[^>]* identifier="([^"]*)"[^>]*>(.*?)</autoref>')
ROLE = re.compile(r":(?:class|func|meth|attr):(?=<code>)")
NESTED = re.compile(r"^  (?=- )", re.MULTILINE)
LINES = re.compile(r"(\?plain=1#L\d+)-L\d+")
TABLE = re.compile(r"<table>(?=(?:(?!</table>| href=).)*</table>)", re.DOTALL)
FOREIGN = re.compile(r'<(?:script|link|img|iframe)[^>]* (?:src|href)="(?:https?:)?//[^>]*>')
SEARCH = 'data-md-component="search" role="dialog"'


def on_files(files: Files, config: Any) -> Files:
    """Replace the files below docs/ with those of the repository, each at its path there."""
    theme = [each for each in files if each.src_dir != config.docs_dir]
    paths = sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern)})
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    return Files([*theme, *(File(name, str(ROOT), config.site_dir, config.use_directory_urls) for name in names)])


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Show an audited document line by line, so that citations lead to their line; of several lines, to the first."""
    if not page.file.src_uri.startswith(DOCUMENTS):
        return NESTED.sub("    ", LINES.sub(r"\1", markdown))  # Python-Markdown wants four spaces
    lines = (f'<span id="L{n}">{n:4}  {html.escape(text)}</span>' for n, text in enumerate(markdown.splitlines(), 1))
    page.meta["search"] = {"exclude": True}
    return f"# Document {page.file.name[:3]}\n\n<pre>" + "\n".join(lines).replace("\n\n", "\n") + "</pre>"


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Leave roles of Sphinx out of the Python API; on other pages, restore what only looks like a reference to it.

    A table without links gets the focus itself, so that the keyboard can scroll it.
    """
    content = TABLE.sub('<table tabindex="0">', content)
    return ROLE.sub("", content) if page.file.name == "api" else REFERENCE.sub(r"[\2][\1]", content)


def on_post_page(output: str, page: Any = "404.html", **_: Any) -> str:
    """Name the search for screen readers, and warn of what the page would load from another host."""
    for tag in FOREIGN.findall(output):
        get_plugin_logger(__name__).warning("%s loads from another host: %s", page, tag)
    return output.replace(SEARCH, f'{SEARCH} aria-label="Search"')


on_post_template = on_post_page
