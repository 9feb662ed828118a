"""Report pages that a project registers for its documents.

    @page("bug-report.md", title="Bug report", about="the bugs of the release notes", documents=["notes"])
    def bug_report(data: ReportData) -> str:
        return render("bug-report.md.j2", data)

The sections of the claims about a document are on its page. Claims that no page asks for are on ``claims.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from rlverify.project.registry import Registry
from rlverify.records.errors import RegistrationError

# The argument is a rlverify.reporting.report_data.ReportData, which this package is below.
PageRenderer: TypeAlias = Callable[[Any], str]
AnyRenderer = TypeVar("AnyRenderer", bound=PageRenderer)


@dataclass(frozen=True)
class Page:
    """A page of the report.

    :param name: its file name within the folder of reports
    :param about: what is on it, as the end of a line
    :param documents: keys of the documents, or stems of the catalogue files, whose claims have their sections on it
    :param render: from a ``ReportData`` to the whole page as GitHub-flavoured Markdown
    """

    name: str
    title: str
    about: str
    documents: tuple[str, ...]
    render: PageRenderer


OF_AUDIT: Final = (
    "index.md", "action-plan.md", "wrong-statements.md", "contradictions.md", "all-claims.md", "claims.md",
)  # fmt: skip
"""Pages of the engine that an audit writes."""
RESERVED: Final = (*OF_AUDIT, "kill-matrix.md")
"""Pages of the engine; a project changes them with a template of the same name."""

PAGES: Registry[Page] = Registry("page")


def page(name: str, *, title: str, about: str, documents: Iterable[str]) -> Callable[[AnyRenderer], AnyRenderer]:
    """Register the decorated function as what renders the page ``name``.

    The function is called with a `rlverify.reporting.report_data.ReportData` and returns the page as Markdown.
    `rlverify.reporting.markdown.render` renders a template of the folder ``pages/templates`` in the content package.

    :param documents: keys of the documents, or stems of the catalogue files, whose claims have their sections on it
    :raises RegistrationError: if another page has this name, or a page of the engine
    """
    if name in RESERVED or "/" in name or not name.endswith(".md"):
        raise RegistrationError(
            f"a page cannot be named {name!r}; choose a file name that ends with .md, other than {', '.join(RESERVED)}"
        )

    def register(function: AnyRenderer) -> AnyRenderer:
        PAGES.add(name, Page(name, title, about, tuple(documents), function), function.__module__)
        return function

    return register
