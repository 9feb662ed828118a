"""The example of a script in the manner of CleanRL, which needs no library."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rlverify.checks import Script, Status
from tests.engine.libraries.findings import all_decided, checked, failed, loses

EXAMPLE = Path(__file__).parents[3] / "examples" / "script"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Script]]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import ppo  # type: ignore[import-not-found,unused-ignore]

    yield ppo.script
    del sys.modules["ppo"]  # another example has a module of this name


def test_every_check_is_decided_and_shows_what_the_script_leaves_out(script: Callable[[], Script]) -> None:
    found = all_decided(script)
    assert failed(found.values()) == {"resume_is_exact", "truncation_is_not_termination"}
    assert not loses(found["resume_is_exact"], "optimizer")


def test_a_script_that_does_not_save_is_checked_for_the_rest(script: Callable[[], Script]) -> None:
    def unsaved() -> Script:
        made = script()
        made.save = made.load = None
        return made

    assert checked(unsaved, "load_returns_a_model").status is Status.NOT_APPLICABLE
    assert checked(unsaved, "pieces_equal_whole").status is Status.PASS


def test_a_forgotten_optimizer_is_found(script: Callable[[], Script]) -> None:
    def load(run: Any, folder: Path) -> None:
        run.agent.load_state_dict(torch.load(folder / "model.pt")["agent"])

    def forgets() -> Script:
        made = script()
        made.load = load
        return made

    assert loses(checked(forgets, "resume_is_exact"), "optimizer")


def test_parameters_that_no_optimizer_holds_are_found(script: Callable[[], Script]) -> None:
    def half() -> Script:
        made: Any = script()
        made.optimizer = torch.optim.Adam(made.agent.actor.parameters())
        return made  # type: ignore[no-any-return]

    assert checked(half, "optimizers_hold_the_parameters").status is Status.FAIL
