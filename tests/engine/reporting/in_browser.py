"""What is asked of every HTML page in a browser."""

from __future__ import annotations

from typing import Any

import pytest

WIDTHS = (400, 1400)
SCHEMES = (("light", 1400), ("dark", 400))


def open_details(page: Any) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")


def too_wide(page: Any, width: int) -> list[str]:
    """With all details open, the elements that are wider than the window, except for those in what scrolls."""
    page.set_viewport_size({"width": width, "height": 900})
    open_details(page)
    scrolled = page.evaluate("document.documentElement.scrollWidth")
    found: list[str] = page.evaluate(
        """(width) => [...document.body.querySelectorAll('*')]
        .filter((each) => !each.closest('.skip') && !each.parentElement.closest('.scroll, pre'))
        .filter((each) => each.getBoundingClientRect().right > width)
        .map((each) => each.outerHTML.slice(0, 200))""",
        width,
    )
    return found if scrolled == width else [f"the page is {scrolled} pixels wide", *found]


def violations(page: Any, scheme: str, width: int) -> list[tuple[str, list[str]]]:
    """With all details open, what axe finds: the rule, and the elements that violate it."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the extra `browser` is not installed")
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    open_details(page)
    response = axe.Axe().run(page).response
    passed = len(response["passes"])
    found = [(each["id"], [node["html"] for node in each["nodes"]]) for each in response["violations"]]
    return found if passed > 20 else [(f"only {passed} rules passed", []), *found]
