"""Reads the settings of a project: the table ``[tool.rlverify]`` of its ``pyproject.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from rlverify.records.errors import SettingsError, suggestion


def toml_of(path: Path, broken: Callable[[str], Exception]) -> dict[str, Any]:
    """What a regular file says, unchecked; another could be waited for without end."""
    if path.exists() and not path.is_file():
        raise broken("is no regular file")
    try:
        return tomllib.loads(path.read_bytes().decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise broken(f"cannot be read: {error}") from error


FILE: Final = "pyproject.toml"
TABLE: Final = "tool.rlverify"
WORKING: Final = ".rlverify"
"""Folder for what is not committed."""

PackageName = Annotated[str, StringConstraints(pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")]
Text = Annotated[str, StringConstraints(min_length=1)]


@dataclass(frozen=True)
class ReportPaths:
    """Where the committed evidence and reports are.

    :param reports: the folder of reports
    :param root: the folder in which the working folder ``.rlverify`` is; None for the one in which the reports are
    """

    reports: Path
    root: Path | None = None

    @property
    def evidence(self) -> Path:
        """Folder of the committed evidence."""
        return self.reports / "evidence"

    @property
    def working(self) -> Path:
        """Folder for what is not committed."""
        return (self.root or self.reports.parent) / WORKING

    @property
    def runs(self) -> Path:
        """Folder of the paired runs that have ended."""
        return self.working / "runs"


@dataclass(frozen=True)
class Settings:
    """The settings of one project. Every path is absolute.

    :param content: dotted name of the package with ``faults``, ``probes``, ``experiments``, ``plots`` and ``pages``
    :param under_test: dotted names of the packages that are verified
    :param catalogue: folder of the TOML files with the claims; None for ``catalogue`` in the content package
    :param documents: folder of the documents that claims cite; None for ``documents`` in the content package
    :param pythonpath: folders from which the packages are imported, before any other
    """

    root: Path
    content: str
    under_test: tuple[str, ...]
    catalogue: Path | None
    documents: Path | None
    reports: Path
    tests: Path
    pythonpath: tuple[Path, ...]
    libraries: tuple[str, ...]
    suites: tuple[str, ...]
    command: str


class _Table(BaseModel):
    """The table as it is written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    content: PackageName
    under_test: Annotated[tuple[PackageName, ...], Field(min_length=1)]
    catalogue: Text | None = None
    documents: Text | None = None
    reports: Text = "reports"
    tests: Text = "tests"
    pythonpath: tuple[Text, ...] = (".", "src")
    libraries: tuple[Text, ...] = ()
    suites: tuple[Text, ...] = ()
    command: Text = "rlverify"


def find_root(start: Path) -> Path:
    """The nearest folder, from ``start`` upwards, whose ``pyproject.toml`` has the table ``[tool.rlverify]``."""
    for folder in (start, *start.parents):
        if (folder / FILE).is_file() and settings_in(folder / FILE) is not None:
            return folder
    raise SettingsError(
        start,
        "",
        f"no {FILE} with a table [{TABLE}] here or above; run `rlverify init` here, or name the project's folder "
        "with --project",
    )


def load_settings(root: Path) -> Settings:
    """The settings of the project in a folder.

    :raises SettingsError: naming the file, and the key if one of them is unknown, missing or wrong
    """
    path = root / FILE
    content = settings_in(path)
    if content is None:
        raise SettingsError(path, "", f"has no table [{TABLE}]; run `rlverify init` in {root}")
    try:
        table = _Table.model_validate(content)
    except ValidationError as error:
        problems = error.errors()  # a misspelt key comes before the one that is missing because of it
        first = min(problems, key=lambda problem: problem["type"] != "extra_forbidden")
        raise SettingsError(path, *_explain(first)) from error
    for key in table.model_fields_set & {"catalogue", "documents", "tests", "pythonpath"}:
        value = getattr(table, key)
        for each in (value,) if isinstance(value, str) else value:
            if not (root / each).exists():
                raise SettingsError(path, key, f"there is no {each!r} in {root}; create it, or correct the path")
    given = dict(table)
    for key in ("catalogue", "documents", "reports", "tests"):
        given[key] = None if given[key] is None else root / given[key]
    given["pythonpath"] = tuple((root / each).resolve() for each in table.pythonpath if (root / each).is_dir())
    return Settings(root=root, **given)


def suites_alone(start: Path) -> tuple[Path, tuple[str, ...]] | None:
    """The root and the suites of a project whose table has ``suites`` and nothing else; None for any other project."""
    root = find_root(start)
    content = settings_in(root / FILE)
    if content is None or set(content) != {"suites"}:
        return None
    found = content["suites"]
    if not isinstance(found, list) or not found or not all(isinstance(each, str) and each for each in found):
        raise SettingsError(root / FILE, "suites", 'must be a list of texts, as in ["module:suite"]')
    return root, tuple(found)


def settings_in(path: Path) -> Mapping[str, Any] | None:
    """Return the table of a ``pyproject.toml``, or None; raise SettingsError if it cannot be read."""
    found: Any = toml_of(path, partial(SettingsError, path, ""))
    for key in TABLE.split("."):
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    if not isinstance(found, dict):
        raise SettingsError(path, "", f"[{TABLE}] must be a table, got {found!r}")
    return found


def _explain(problem: Mapping[str, Any]) -> tuple[str, str]:
    """The key that is wrong, and why."""
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        hint = suggestion(key, _Table.model_fields) or f"; known: {', '.join(_Table.model_fields)}"
        return key, f"there is no such setting{hint}"
    if problem["type"] == "missing":
        return key, f"is missing; add it to the table [{TABLE}]"
    if problem["type"] == "tuple_type":
        return key, f'must be a list of texts, as in ["name"], got {problem["input"]!r}'
    return key, f"{problem['msg']}, got {problem['input']!r}"
