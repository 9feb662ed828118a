"""Libraries that are not installed everywhere warn about their own imports, and change what others do."""

from __future__ import annotations

import pytest


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Leave these tests out unless they are asked for: with skrl, no distribution of torch validates its arguments."""
    return None if any("libraries" in each for each in config.args) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore"))
