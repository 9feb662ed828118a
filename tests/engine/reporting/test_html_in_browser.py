"""The HTML report as its reader has it: in Chromium, by mouse, keyboard and address, on screen and on paper."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rlverify.reporting.html_report import render_html
from tests.engine.reporting.assessed import assessed_data
from tests.engine.reporting.in_browser import SCHEMES, WIDTHS, too_wide, violations

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "audit.html"
    path.write_text(render_html(assessed_data()), encoding="utf-8")
    return path.as_uri()


def shown(page: Any, header: str = "claim") -> list[str]:
    """What a column has in the rows that can be seen of the table that filters."""
    texts: list[str] = page.evaluate(
        """(header) => {
            const table = document.querySelector('form ~ .scroll table');
            const column = [...table.querySelectorAll('th')].findIndex((each) => each.textContent === header);
            const rows = [...table.querySelectorAll('tbody tr')].filter((row) => row.checkVisibility());
            return rows.map((row) => row.cells[column].textContent);
        }""",
        header,
    )
    return texts


def count(page: Any) -> str:
    text: str = page.get_by_role("status").inner_text()
    return text


@pytest.mark.parametrize("name", ["source", "evidence", "severity", "measured", "fix"])
def test_each_choice_of_a_filter_shows_its_claims_and_their_count(name: str, page: Any) -> None:
    select = page.get_by_role("combobox", name=name, exact=True)
    every = shown(page, name)
    choices = [each for each in select.locator("option").evaluate_all("all => all.map(each => each.value)") if each]
    assert choices == sorted(set(every))
    assert len(choices) > 1
    for choice in choices:
        select.select_option(choice)
        assert shown(page, name) == [each for each in every if each == choice]
        assert count(page) == f"{every.count(choice)} of 31 claims"
        assert select.locator("option:checked").inner_text() == f"{choice} ({every.count(choice)})"
    select.select_option("")
    assert shown(page, name) == every


def test_filters_and_search_hold_together_and_can_be_cleared(page: Any, address: str) -> None:
    assert count(page) == "31 of 31 claims"
    page.get_by_label("severity").select_option("low")
    page.get_by_label("source").select_option("001")
    assert len(shown(page)) == 10
    page.get_by_label("search").fill("CLAIM  toy-27")
    assert shown(page) == ["TOY-27 claim 27"]
    page.keyboard.press("Enter")
    assert (page.url, count(page)) == (address, "1 of 31 claims")
    page.get_by_label("search").fill("no such word")
    assert (shown(page), count(page)) == ([], "0 of 31 claims")
    page.get_by_role("button", name="Clear filters").click()
    page.wait_for_function("document.querySelector('[role=status]').textContent.startsWith('31 ')")
    assert len(shown(page)) == 31


@pytest.mark.parametrize("anchor", ["toy-41", "002-L281"])
def test_an_address_leads_to_its_place(anchor: str, page: Any, address: str) -> None:
    page.goto("about:blank")
    page.goto(f"{address}#{anchor}")
    assert -1 < page.locator(f"[id='{anchor}']").bounding_box()["y"] < 100


def test_the_first_tab_leads_to_the_claims(page: Any, address: str) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the claims"
    page.keyboard.press("Enter")
    assert page.url == f"{address}#all-claims-every-claim"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.type") == "search"


def test_on_paper_all_rows_are_there_and_controls_are_gone(page: Any) -> None:
    page.get_by_label("severity").select_option("critical")
    assert len(shown(page)) == 1
    page.emulate_media(media="print")
    assert len(shown(page)) == 31
    assert not page.get_by_role("search").is_visible()
    assert not page.get_by_role("navigation").is_visible()


def test_without_javascript_all_is_shown_and_nothing_can_be_filtered(browser: Any, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("#all-claims-every-claim ~ .scroll tbody tr").count() == 31
    assert all(row.is_visible() for row in page.locator("#all-claims-every-claim ~ .scroll tbody tr").all())
    assert page.locator("form").count() == 0
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


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(width: int, page: Any) -> None:
    assert too_wide(page, width) == []


@pytest.mark.parametrize(("scheme", "width"), SCHEMES)
def test_axe_finds_no_violation(scheme: str, width: int, page: Any) -> None:
    assert violations(page, scheme, width) == []
