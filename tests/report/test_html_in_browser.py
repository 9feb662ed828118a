"""The HTML report as its reader has it: in Chromium, by mouse, keyboard and address, on screen and on paper."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rlverify.reporting.html_report import render_html
from tests.report.assessed import assessed_data
from tests.report.in_browser import SCHEMES, WIDTHS, too_wide, violations

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "audit.html"
    path.write_text(render_html(assessed_data()), encoding="utf-8")
    return path.as_uri()


def shown(page: Any) -> list[str]:
    """The ids of the claims that can be seen."""
    ids: list[str] = page.evaluate(
        "[...document.querySelectorAll('.claim')].filter((row) => row.checkVisibility()).map((row) => row.id)"
    )
    return ids


def opened(page: Any) -> list[str]:
    """The ids of the claims whose rows show what is in them."""
    ids: list[str] = page.evaluate(
        """[...document.querySelectorAll('.claim')]
        .filter((row) => row.offsetHeight > row.querySelector('summary').offsetHeight + 50)
        .map((row) => row.id)"""
    )
    return ids


def count(page: Any) -> str:
    text: str = page.locator("#shown").inner_text()
    return text


def total(page: Any) -> int:
    number: int = page.locator(".claim").count()
    return number


@pytest.mark.parametrize("name", ["finding", "verdict", "severity", "document", "evidence"])
def test_each_choice_of_a_filter_shows_its_claims_and_their_count(name: str, page: Any) -> None:
    select = page.get_by_label({"evidence": "Evidence class"}.get(name, name.capitalize()), exact=True)
    choices = [each for each in select.locator("option").evaluate_all("all => all.map(each => each.value)") if each]
    assert len(choices) > 1
    for choice in choices:
        select.select_option(choice)
        found = page.locator(f".claim[data-{name}~='{choice}']")
        expected = found.evaluate_all("rows => rows.map((row) => row.id)")
        assert shown(page) == expected
        assert 0 < len(expected) < total(page)
        assert count(page) == f"{len(expected)} of {total(page)} claims match"
        offered = select.locator("option:checked").inner_text()
        assert offered.endswith(f" ({len(expected)})")
    select.select_option("")
    assert len(shown(page)) == total(page)


def test_filters_and_search_hold_together_and_can_be_cleared(page: Any) -> None:
    page.get_by_label("Severity").select_option("low")
    page.get_by_label("Document", exact=True).select_option("001")
    assert len(shown(page)) == 10
    page.get_by_label("Search").fill("NUMBER  fix 27.")
    assert shown(page) == ["toy-27"]
    assert count(page) == f"1 of {total(page)} claims match"
    page.get_by_label("Search").fill("no such word")
    assert shown(page) == []
    assert count(page) == f"0 of {total(page)} claims match"
    page.get_by_role("button", name="Clear filters").click()
    page.wait_for_function("document.getElementById('shown').textContent.startsWith('31 ')")
    assert len(shown(page)) == total(page) == 31


def test_search_looks_into_rows_that_are_closed_and_enter_keeps_the_page(page: Any, address: str) -> None:
    page.get_by_label("Search").fill("tests/b.py::test_b toy-05")
    assert shown(page) == ["toy-05"]
    page.keyboard.press("Enter")
    assert page.url == address
    assert shown(page) == ["toy-05"]


def test_the_count_is_announced(page: Any) -> None:
    assert page.get_by_role("status").get_attribute("aria-live") == "polite"
    assert count(page) == "31 of 31 claims match"


def test_an_address_opens_its_row(page: Any, address: str) -> None:
    page.goto("about:blank")
    page.goto(f"{address}#toy-41")
    assert opened(page) == ["toy-41"]
    box = page.locator("#toy-41").bounding_box()
    assert 0 <= box["y"] < 100
    assert page.evaluate("document.activeElement.parentElement.id") == "toy-41"


def test_a_link_opens_its_row_even_where_a_filter_hides_it(page: Any) -> None:
    page.get_by_label("Severity").select_option("critical")
    assert shown(page) == ["toy-21"]
    link = page.locator("#section-summary a[href='#toy-41']").first
    link.click()
    page.wait_for_function("document.getElementById('toy-41').open")
    assert opened(page) == ["toy-41"]
    assert set(shown(page)) == {"toy-21", "toy-41"}
    assert count(page) == "1 of 31 claims match, and TOY-41, which a link led to"
    page.locator("#toy-41 > summary").click()
    assert opened(page) == []
    link.click()  # the address stays the same
    assert opened(page) == ["toy-41"]
    page.get_by_label("Severity").select_option("low")
    assert "toy-41" not in shown(page)


def test_a_row_opens_by_keyboard(page: Any) -> None:
    page.locator("#toy-05 > summary").focus()
    page.keyboard.press("Enter")
    assert opened(page) == ["toy-05"]
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.claim').id") == "toy-05"


def test_the_first_tab_leads_past_the_summary(page: Any) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the claims"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "filter-text"


def test_all_shown_rows_expand_and_collapse(page: Any) -> None:
    page.get_by_label("Severity").select_option("low")
    page.get_by_role("button", name="Expand all").click()
    assert opened(page) == shown(page) != []
    page.get_by_label("Severity").select_option("")
    assert len(opened(page)) < total(page)
    page.get_by_role("button", name="Expand all").click()
    assert len(opened(page)) == total(page)
    page.get_by_role("button", name="Collapse all").click()
    assert opened(page) == []


def test_every_link_leads_to_something(page: Any) -> None:
    targets = page.evaluate(
        "[...document.links].map((link) => [link.getAttribute('href'), !!document.getElementById(link.hash.slice(1))])"
    )
    assert len(targets) > 60
    assert [href for href, there in targets if not there] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(width: int, page: Any) -> None:
    assert too_wide(page, width) == []


def test_on_paper_all_rows_are_open_and_controls_are_gone(page: Any) -> None:
    page.get_by_label("Severity").select_option("critical")
    page.emulate_media(media="print")
    assert len(opened(page)) == len(shown(page)) == total(page)
    assert not page.locator("#controls").is_visible()
    assert not page.get_by_role("navigation").is_visible()
    page.emulate_media(media="screen")
    assert shown(page) == ["toy-21"]
    assert opened(page) == []


def test_printing_opens_rows_and_closes_them_again(page: Any) -> None:
    page.locator("#toy-05 > summary").click()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert len(opened(page)) == total(page)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert opened(page) == ["toy-05"]


def test_without_javascript_all_rows_are_shown_and_open(browser: Any, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    rows = page.locator(".claim")
    assert rows.count() == 31
    assert all(row.is_visible() for row in rows.all())
    assert not page.locator("#controls").is_visible()
    assert page.locator("#shown").inner_text() == "31 claims"
    page.locator("#toy-05 > summary").click()
    assert page.locator("#toy-05 > .body").is_visible()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_scheme_has_its_own_ground(scheme: str, page: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    ground, text = page.evaluate(
        "(({backgroundColor, color}) => [backgroundColor, color])(getComputedStyle(document.body))"
    )
    assert (brightness(ground) > brightness(text)) is (scheme == "light")


def brightness(colour: str) -> int:
    return sum(int(number) for number in re.findall(r"\d+", colour)[:3])


@pytest.mark.parametrize(("scheme", "width"), SCHEMES)
def test_axe_finds_no_violation(scheme: str, width: int, page: Any) -> None:
    assert violations(page, scheme, width) == []
