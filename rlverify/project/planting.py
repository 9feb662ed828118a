"""Plants a fault: replaces one member of the healthy code while a block runs, and counts how often it is executed."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from rlverify.project.fingerprint import member_digest
from rlverify.project.registry import Fault, get_fault
from rlverify.records.errors import FaultError, StaleFaultError, suggestion

MISTAKES = (NameError, AttributeError, ImportError, TypeError)
"""What an error is that a fault raises by mistake; healthy code that it calls may raise them on purpose."""


@dataclass
class Planted:
    """A planted fault, and what has happened with it so far in this process.

    :param is_production: whether a module, given by its dotted name, is code under test; None if nobody asks
    :param by_production: whether code under test called it, directly or through others
    :param mistakes: errors in its own code (a misspelt name, say), which prove nothing, even if they are caught
    """

    fault: Fault
    owner: type | ModuleType
    original: Callable[..., Any]
    is_production: Callable[[str], bool] | None = None
    executions: int = 0
    by_production: bool = False
    mistakes: list[str] = field(default_factory=list)


PIN_ADVICE: Final = "check the fault against the new code, then run `rlverify repin "
"""How the advice on a stale fault begins."""

FOR_TOOLS: Final = re.compile(r"\s+# (noqa|type: ignore).*$")
"""A comment that is for a linter or a type checker, and no reader."""

DOCSTRING: Final = re.compile(r'^ +r?"{3}.*?"{3}\n', re.DOTALL | re.MULTILINE)

_in_place: dict[tuple[str, str], Callable[..., Any]] = {}


def null_fault_of(fault: Fault) -> Fault:
    """The fault that replaces the same member by itself: a test or probe that detects it gives a false alarm."""

    def unchanged(*args: Any, **kwargs: Any) -> Any:
        return healthy_member(fault.owner, fault.member)(*args, **kwargs)

    return replace(fault, name=f"null-{fault.name}", replacement=unchanged)


def healthy(name: str) -> Callable[..., Any]:
    """The member that the fault ``name`` replaces, as it is without the fault."""
    return healthy_member(get_fault(name).owner, get_fault(name).member)


@contextmanager
def plant(fault: Fault, is_production: Callable[[str], bool] | None = None) -> Iterator[Planted]:
    """Plant a fault for every user of the class or module, and remove it again whatever happens.

    Faults of different members can be planted at the same time. Processes that are forked inherit the fault.

    :param is_production: as in `Planted`
    :raises StaleFaultError: if the member has changed since the fault was written; nothing is replaced
    :raises FaultError: if another fault already replaces the member, or the signatures differ
    """
    key = (fault.owner, fault.member)
    if key in _in_place:
        raise FaultError(f"{fault.name}: {fault.owner}.{fault.member} is already replaced by another fault")
    owner = _resolve_owner(fault)
    found = _find_member(owner, fault)
    original = _function_of(found)
    _check_target(fault, original)
    planted = Planted(fault, owner, original, is_production)
    own = fault.member in vars(owner)
    _in_place[key] = original
    setattr(owner, fault.member, _dressed_as(found, _counted(planted)))
    try:
        yield planted
    finally:
        if own:
            setattr(owner, fault.member, found)
        else:
            delattr(owner, fault.member)
        del _in_place[key]


def healthy_member(owner: str, member: str) -> Callable[..., Any]:
    """The plain function of a member, as it is without any fault."""
    if (owner, member) in _in_place:
        return _in_place[owner, member]
    return _function_of(inspect.getattr_static(_import_owner(owner), member))


@dataclass(frozen=True)
class SourceCode:
    """The source of a function, and its ``file:line``; a file outside the project has no line, as versions differ."""

    text: str
    place: str


def source_of_fault(fault: Fault, root: Path) -> tuple[SourceCode, SourceCode] | None:
    """The healthy member that a fault replaces, and its replacement; None if one is missing.

    :param root: the folder to which their files are relative
    """
    try:
        healthy_function = _function_of(_find_member(_resolve_owner(fault), fault))
        return _code(healthy_function, root, DOCSTRING), _code(fault.replacement, root)
    except (StaleFaultError, OSError, TypeError):
        return None


def _code(function: Callable[..., Any], root: Path, left_out: re.Pattern[str] = re.compile("(?!)")) -> SourceCode:
    file = Path(inspect.getsourcefile(inspect.unwrap(function)) or "")
    is_inside = file.is_relative_to(root)
    place = f"{file.relative_to(root).as_posix()}:{source_lines(function)[1]}" if is_inside else function.__module__
    return SourceCode(left_out.sub("", source_of(function), count=1), place)


def source_of(function: Callable[..., Any]) -> str:
    """Return the source of a function without decorators and comments for tools."""
    lines = textwrap.dedent("".join(source_lines(function)[0])).strip().splitlines()
    return "\n".join(FOR_TOOLS.sub("", line) for line in lines)


def source_lines(function: Callable[..., Any]) -> tuple[list[str], int]:
    """The lines of a function below its decorators, and the number of the first in its file."""
    lines, first = inspect.getsourcelines(inspect.unwrap(function))
    definitions = (number for number, line in enumerate(lines) if line.lstrip().startswith(("def ", "async def ")))
    start = next(definitions, 0)  # a lambda has none
    return lines[start:], first + start


def _import_owner(owner: str) -> type | ModuleType:
    module, _, path = owner.partition(":")
    found: Any = importlib.import_module(module)
    for part in filter(None, path.split(".")):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def _resolve_owner(fault: Fault) -> type | ModuleType:
    try:
        return _import_owner(fault.owner)
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and not fault.owner.startswith(error.name or "?"):
            raise
        raise StaleFaultError(
            f"fault {fault.name}: its target {fault.owner} does not exist ({error}); point it elsewhere"
        ) from error


def _find_member(owner: type | ModuleType, fault: Fault) -> Any:
    try:
        return inspect.getattr_static(owner, fault.member)
    except AttributeError as error:
        hint = suggestion(fault.member, dir(owner)) or "; point it elsewhere"
        raise StaleFaultError(f"fault {fault.name}: {fault.owner} has no member {fault.member!r}{hint}") from error


def _function_of(found: Any) -> Callable[..., Any]:
    inner = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    if isinstance(found, type) or not callable(inner):
        raise FaultError(f"{found!r} is not a function, method or property, so no fault can replace it")
    return inner


def _dressed_as(found: Any, function: Callable[..., Any]) -> Any:
    """The function in the same kind of member as the one it replaces."""
    if isinstance(found, property):
        return found.getter(function)
    if isinstance(found, (staticmethod, classmethod)):
        return type(found)(function)
    return function


def _counted(planted: Planted) -> Callable[..., Any]:
    @functools.wraps(planted.original)
    def counted(*args: Any, **kwargs: Any) -> Any:
        planted.executions += 1
        if planted.is_production is not None and not planted.by_production:
            planted.by_production = _has_caller(planted.is_production)
        try:
            return planted.fault.replacement(*args, **kwargs)
        except MISTAKES as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            if last.filename == inspect.getfile(planted.fault.replacement):
                planted.mistakes.append(f"{type(error).__name__}: {error} (line {last.lineno})")
            raise

    return counted


def _has_caller(is_production: Callable[[str], bool]) -> bool:
    """Whether the planted function was called by such a module, directly or through others."""
    frame = inspect.currentframe()
    while frame is not None:
        if is_production(frame.f_globals.get("__name__", "")):
            return True
        frame = frame.f_back
    return False


def _check_target(fault: Fault, original: Callable[..., Any]) -> None:
    current = member_digest(original)
    if current != fault.pins:
        raise StaleFaultError(
            f"fault {fault.name} is stale: {fault.owner}.{fault.member} has changed since it was written "
            f"(pinned {fault.pins!r}, now {current!r}); {PIN_ADVICE}{fault.name}`"
        )
    expected, given = _parameters(original), _parameters(fault.replacement)
    if given != expected and given != ["*args", "**kwargs"]:
        raise FaultError(f"fault {fault.name} takes ({', '.join(given)}), but its target takes ({', '.join(expected)})")


def _parameters(function: Callable[..., Any]) -> list[str]:
    found = inspect.signature(function).parameters.values()
    stars = {each.name: "*" for each in found if each.kind is each.VAR_POSITIONAL}
    stars |= {each.name: "**" for each in found if each.kind is each.VAR_KEYWORD}
    return [stars.get(each.name, "") + each.name for each in found]


SHOWN = 3
"""How many places one hint names."""


def unreached_hint(planted: Planted, is_production: Callable[[str], bool]) -> str | None:
    """Why production code does not run the fault, while it is planted; None if it does, or if nothing is known."""
    if planted.by_production:
        return None
    found = [*_holders(planted.original, is_production)]
    return "; ".join(found[:SHOWN]) or None


def _holders(original: Callable[..., Any], is_production: Callable[[str], bool]) -> Iterator[str]:
    """The modules under test that use the healthy function by a name of their own."""
    for module_name, module in sorted(sys.modules.items()):
        if not is_production(module_name):
            continue
        for name, value in list(vars(module).items()):
            if value is original and _reads(module, name):
                uses = f"uses its own `{name}`" if original.__module__ == module_name else f"imports `{name}` by name"
                yield f"`{_file(module)}` {uses}; target `{module_name}:{name}`"


def _reads(module: ModuleType, name: str) -> bool:
    """Whether the code of a module uses one of its names, and does not only pass it on, as a package does."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError):
        return False
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return any(node.id == name and isinstance(node.ctx, ast.Load) for node in nodes)


def _file(module: ModuleType) -> str:
    """The path of a module below the folder that it is imported from."""
    parts = module.__name__.split(".")
    file = Path(inspect.getfile(module))
    return "/".join([*parts, file.name] if file.stem == "__init__" else [*parts[:-1], file.name])
