"""Public names can be imported from the top of the package and from the package that they belong to."""

from __future__ import annotations

import copy
import importlib
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import rlcore
from rlcore import (
    CheckpointError,
    ConfigFileError,
    NonFiniteGradientError,
    ResumeWarning,
    RLCoreError,
    SettingError,
    StateError,
)
from rlcore.errors import warn_caller
from tests.support.training import make_model


@pytest.mark.parametrize("package", ["rlcore.pbt", "rlcore.resume"])
def test_what_a_package_offers_is_public(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__ == sorted(module.__all__, key=lambda name: (not name.isupper(), name)) != []
    for name in set(module.__all__) & set(rlcore.__all__):
        assert getattr(module, name) is getattr(rlcore, name)


def test_every_public_name_exists() -> None:
    assert [name for name in rlcore.__all__ if not hasattr(rlcore, name)] == []


def test_the_version_is_that_of_the_distribution() -> None:
    assert rlcore.__version__ == metadata.version("rlverify")
    with pytest.raises(AttributeError, match="has no attribute 'version'"):
        _ = rlcore.version


@pytest.mark.parametrize(
    "error",
    [
        SettingError("gamma", "gamma=2 cannot be used"),
        CheckpointError("model.zip", "is damaged"),
        ConfigFileError("run.yaml", 3, "is no YAML"),
        NonFiniteGradientError("actor.weight", "holds NaN"),
        StateError("does not fit"),
    ],
)
def test_a_rebuilt_error_has_its_type_its_message_and_its_fields(error: RLCoreError) -> None:
    found = copy.copy(error)  # by what pickle asks for, too
    assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))


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
        (["rlcore.ppo.algorithm"], "test_public_names.py"),
        (["rlcore.ppo.algorithm", "stable_baselines3.common.base_class", "rlcore.pbt"], "test_public_names.py"),
        (["rlcore.optim", "torch.utils._contextlib"], "test_public_names.py"),
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
    others = [path for path in package.rglob("*.py") if path.name != "errors.py"]
    assert len(others) > 40
    assert [path.name for path in others if re.search(r"\bwarn\(|from warnings import", path.read_text("utf-8"))] == []


def test_what_starts_fresh_is_said_at_the_line_that_gave_the_parameters() -> None:
    model = make_model()
    model.learn(48)
    parameters = {key: state for key, state in model.get_parameters().items() if key != "vgs_state"}
    assert places(lambda: model.set_parameters(parameters)) == [Path(__file__).name]


ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_importing_everything_warns_of_nothing() -> None:
    script = (
        "import importlib, pkgutil, rlcore, rlverify, verification\n"
        "rooms = (rlcore, rlverify, verification)\n"
        "names = [m.name for p in rooms for m in pkgutil.walk_packages(p.__path__, p.__name__ + '.')]\n"
        "extras = {'ray', 'torchrl', 'skrl', 'rsl_rl', 'tianshou', 'triton'}\n"
        "for name in names:\n"
        "    if name.endswith('__main__'): continue\n"
        "    try: importlib.import_module(name)\n"
        "    except ModuleNotFoundError as error:\n"
        "        if error.name not in extras: raise\n"
        "print(len(names) > 80)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
