"""The HTML page of the field report as its reader has it in Chromium."""

from __future__ import annotations

from typing import Any

import pytest

from rlverify.reporting.field_report.field_pages import render_field_report
from tests.report.field_example import field_example
from tests.report.in_browser import SCHEMES, WIDTHS, too_wide, violations

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("field report") / "field-report.html"
    path.write_text(render_field_report(field_example(), "html"), encoding="utf-8")
    return path.as_uri()


def test_every_link_within_the_page_leads_to_something(page: Any) -> None:
    targets = page.evaluate(
        """[...document.links].filter((link) => link.getAttribute('href').startsWith('#'))
        .map((link) => [link.getAttribute('href'), !!document.getElementById(link.hash.slice(1))])"""
    )
    assert len(targets) == 4
    assert [href for href, there in targets if not there] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(width: int, page: Any) -> None:
    assert too_wide(page, width) == []


@pytest.mark.parametrize(("scheme", "width"), SCHEMES)
def test_axe_finds_no_violation(scheme: str, width: int, page: Any) -> None:
    assert violations(page, scheme, width) == []
