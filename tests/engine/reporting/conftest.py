"""The browser in which the HTML pages are tested; a module of tests names its page in a fixture `address`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
QUIET = ("gpu", "background-networking", "component-update", "sync")


@dataclass
class Seen:
    """What a page did that it should not."""

    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The distribution's Chromium; none is ever downloaded."""
    if os.environ.get("CI"):
        pytest.skip("CI has no Chromium of the distribution")
    playwright = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is not installed")
    if not CHROMIUM.is_file():
        pytest.skip(f"{CHROMIUM} is missing; install the package chromium of the distribution")
    options = ["--no-sandbox", *(f"--disable-{each}" for each in QUIET)]
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=options)
        yield started
        started.close()


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def page(browser: Any, address: str, seen: Seen) -> Iterator[Any]:
    """A page that has just been opened; it must not complain or ask for anything."""
    opened = browser.new_page()
    opened.on("console", lambda message: seen.messages.append(f"{message.type}: {message.text}"))
    opened.on("pageerror", lambda error: seen.messages.append(str(error)))
    opened.on("request", lambda request: seen.requests.append(request.url))
    opened.goto(address)
    yield opened
    opened.close()
    assert seen.messages == []
    assert {url.partition("#")[0] for url in seen.requests} <= {address, "data:,"}
