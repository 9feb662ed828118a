"""Warnings name the line of whoever called this package, not a line inside it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import rlcore
from rlcore import ResumeWarning
from rlcore.warn import warn_caller
from tests.support.training import make_model


def call(function: Callable[[], object]) -> object:
    return function()


def warn() -> None:
    warn_caller("words", ResumeWarning)


def moved(function: Callable[..., Any], module: str) -> Callable[..., Any]:
    """A copy of ``function`` in another module."""
    code = function.__code__.replace(co_filename=f"<{module}>")
    return FunctionType(code, {"__name__": module, "warn_caller": warn_caller, "ResumeWarning": ResumeWarning})


def places(function: Callable[[], object]) -> list[str]:
    """The files that the warnings of a call name."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [Path(warning.filename).name for warning in caught]


@pytest.mark.parametrize(
    ("modules", "named"),
    [
        (["rlcore.ppo.algorithm"], "test_warn.py"),
        (["rlcore.ppo.algorithm", "stable_baselines3.common.base_class", "rlcore.pbt"], "test_warn.py"),
        (["rlcore.optim", "torch.utils._contextlib"], "test_warn.py"),
        (["rlcore", "mine", "rlcore"], "<mine>"),
        (["rlcore", "rlcoreful"], "<rlcoreful>"),
    ],
)
def test_the_innermost_line_of_another_package_is_named(modules: list[str], named: str) -> None:
    function = moved(warn, modules[0])
    for module in modules[1:]:
        function = partial(moved(call, module), function)
    assert places(function) == [named]


def test_all_warnings_of_this_package_take_this_way() -> None:
    package = Path(rlcore.__file__).parent
    others = [path for path in package.rglob("*.py") if path.name != "warn.py"]
    assert len(others) > 40
    assert [path.name for path in others if re.search(r"\bwarn\(|from warnings import", path.read_text("utf-8"))] == []


def test_what_starts_fresh_is_said_at_the_line_that_gave_the_parameters() -> None:
    model = make_model()
    model.learn(48)
    parameters = {key: state for key, state in model.get_parameters().items() if key != "vgs_state"}
    assert places(lambda: model.set_parameters(parameters)) == [Path(__file__).name]
