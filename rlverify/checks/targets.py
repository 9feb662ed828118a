"""Imports what a command line names, ``package.module:name`` or ``file.py:name``: a factory, a model or a subject."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from rlverify.checks.engine.session import TIERS, TierName
from rlverify.checks.engine.subjects import Subject, subject
from rlverify.checks.suites import Suite
from rlverify.records.attempts import Crash, attempt
from rlverify.records.errors import UsageError, suggestion

OPTIMIZER: Final = "torch.optim.optimizer.Optimizer"
FORM: Final = "name it as package.module:factory or path/to/file.py:factory"


@dataclass(frozen=True)
class Target:
    """A subject, and where it was found."""

    text: str
    subject: Subject
    file: Path
    line: int


def import_targets(
    texts: Sequence[str],
    folder: Path,
    limit: float | None = None,
    tier: TierName | None = None,
    *,
    strict: bool = False,
    as_is: bool = False,
) -> list[Target]:
    """The subjects of all targets; those of one name are named by their whole target.

    :raises UsageError: if one cannot be used
    """
    found = [each for text in dict.fromkeys(texts) for each in import_target(text, folder)]
    every = {"limit": limit, "tier": tier and TIERS[tier], "strict": strict or None, "as_is": as_is or None}
    given: dict[str, Any] = {name: value for name, value in every.items() if value is not None}
    named = zip(found, _unique(found), strict=True)
    return [replace(each, subject=replace(each.subject, name=name, **given)) for each, name in named]


def _unique(targets: Sequence[Target]) -> list[str]:
    """The names of subjects, with the whole target where two have one name."""
    names = [each.subject.name for each in targets]
    return [_full_name(each) if names.count(name) > 1 else name for each, name in zip(targets, names, strict=True)]


def _full_name(target: Target) -> str:
    """The whole target, with the seed if it is one of a suite."""
    _, bracket, seed = target.subject.name.rpartition("[seed=")
    return f"{target.text}{bracket}{seed}" if bracket else target.text


def import_target(text: str, folder: Path) -> list[Target]:
    """The subject that a target names; of a suite, its algorithm under each seed.

    :raises UsageError: if there is no such module or name, its import fails, or it is no factory, model or subject
    """
    place, separator, name = text.rpartition(":")
    if not separator or not place or not name:
        raise UsageError(f"{text!r} names no factory; {FORM}")
    module = _imported(text, place, folder)
    value = _attribute(text, module, name)
    if isinstance(value, type) and OPTIMIZER in {f"{each.__module__}.{each.__name__}" for each in value.__mro__}:
        raise UsageError(f"{text!r} is an optimizer; check it by `rlverify.checks.check_optimizer({name})` in Python")
    if isinstance(value, Suite):
        subjects = attempt(lambda: value.subjects)
        if isinstance(subjects, Crash):
            raise UsageError(f"{text!r}: {subjects.error}")
        return [Target(text, each, Path(module.__file__ or "."), 1) for each in subjects]
    if isinstance(value, Subject):
        return [Target(text, value, *_place(value.factory, module))]
    return [Target(text, subject(value, name=name), *_place(value, module))]


def _imported(text: str, place: str, folder: Path) -> ModuleType:
    """The module at a place: a file if it ends in .py, otherwise a dotted name."""
    is_file = place.endswith(".py")
    path = folder / place
    if is_file and not path.is_file():
        raise UsageError(f"{text!r}: there is no file {path}; {FORM}")
    searched = str(path.parent.resolve() if is_file else folder.resolve())
    if searched not in sys.path:
        sys.path.insert(0, searched)  # as `python file.py` and `python -m module` do
    with redirect_stdout(sys.stderr), _without_exit():
        module = attempt(lambda: _of_file(path) if is_file else importlib.import_module(place))
    if not isinstance(module, Crash):
        return module
    error = module.error
    if isinstance(error, ModuleNotFoundError) and not is_file and f"{place}.".startswith(f"{error.name}."):
        raise UsageError(f"{text!r}: there is no module {error.name!r} in {folder} or installed; {FORM}") from error
    raise UsageError(f"{text!r}: importing {place} raises {module.line}") from error


@contextmanager
def _without_exit() -> Iterator[None]:
    """Inside of the block, ``os._exit`` raises an error; what was registered with it does nothing later."""
    ends, is_inside = os._exit, True

    def refused(status: int) -> None:
        if is_inside:
            raise SystemExit(f"os._exit({status}) would end rlverify")

    os._exit = refused  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit, is_inside = ends, False


def _of_file(path: Path) -> ModuleType:
    """Import a file under its stem; it replaces a module of this name from elsewhere."""
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and Path(getattr(known, "__file__", None) or "").resolve() == path.resolve():
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _attribute(text: str, module: ModuleType, name: str) -> Any:
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            hint = suggestion(part, [each for each in dir(value) if not each.startswith("_")])
            where = getattr(value, "__name__", type(value).__name__)
            raise UsageError(f"{text!r}: {where} has no {part!r}{hint}")
        value = getattr(value, part)
    return value


def _place(value: Any, module: ModuleType) -> tuple[Path, int]:
    """File and line of what makes the models; the start of its module where that is not known."""
    code = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
    if code is not None:
        return Path(code.co_filename), code.co_firstlineno
    if inspect.isclass(value):
        try:
            return Path(inspect.getsourcefile(value) or ""), inspect.getsourcelines(value)[1]
        except (OSError, TypeError):  # built in, or from a zip
            pass
    return Path(module.__file__ or "."), 1
