"""The code of a project as it is now, read once: digests of all that a measurement can follow from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Final

import rlverify
from rlverify.project.content import Project
from rlverify.project.fingerprint import (
    code_parts,
    digest,
    is_within,
    mentioned_names,
    module_name,
    needed_to_import,
    parts_or_whole,
)
from rlverify.records.code_records import CodeRecord, Executed
from rlverify.records.errors import HarnessError

VERDICTS: Final = "rlverify.verdicts"
"""The part of the engine that turns runs into verdicts."""
LIBRARY: Final = "library "
FILE: Final = "file "
GONE: Final = ""
"""Digest of a part that does not exist."""


class CurrentCode:
    """The sources of the packages under test and of the content package at one moment.

    All digests are of that moment, so that every claim of an audit is compared with the same code.
    """

    def __init__(self, project: Project) -> None:
        self.project = project
        self.packages = (*project.settings.under_test, project.package)
        self.sources = dict(_sources(project.code_places))
        self._needed: dict[str, tuple[str, ...] | None] = {}
        self._reached: dict[str, frozenset[str]] = {}
        self._digests: dict[str, str] = {}
        self._mentioned: dict[str, Mapping[str, frozenset[str]]] = {}

    def digest(self, part: str) -> str:
        """Digest of a part, by its name in `CodeRecord.parts`; empty where there is no such part."""
        if part not in self._digests:
            self._digests[part] = self._digest(part)
        return self._digests[part]

    def _digest(self, part: str) -> str:
        if part.startswith(LIBRARY):
            return self.libraries.get(part.removeprefix(LIBRARY), GONE)
        if part.startswith(FILE):
            return _digest_of_file(self.project.root / part.removeprefix(FILE))
        if part == VERDICTS:
            return self.verdicts
        module, _, name = part.partition(":")
        return self.parts(module).get(name, GONE)

    def record(
        self,
        settings: str,
        roots: Iterable[str],
        executed: Executed,
        imported: Executed,
        mentioned: Iterable[str] = (),
    ) -> CodeRecord:
        """The record of a measurement that was made with this code.

        :param settings: digest of the claim's own settings
        :param roots: dotted names of the modules that define what measures it
        :param imported: what is executed and read when modules are imported
        :param mentioned: functions that it may execute though no recorded run did
        """
        starts = {*roots, *(name.partition(":")[0] for name in executed.functions)}
        if executed.unseen:
            starts |= {name for name in self.sources if is_within(name, self.project.settings.under_test)}
        modules = self.closure(starts)
        functions = {name for name in executed.functions if self.digest(name) != GONE}
        functions |= {
            name for name in imported.functions if name.partition(":")[0] in modules and self.digest(name) != GONE
        }
        if executed.unseen:
            functions = {f"{module}:{name}" for module in modules for name in self.parts(module) if name}
        seen = Executed(tuple(sorted(functions)), tuple(sorted({*executed.files, *imported.files})))
        may_be_executed = tuple(sorted({*mentioned} - {*seen.functions}))
        names = sorted({*self.names_of(seen, modules), *may_be_executed})
        parts = tuple((name, self.digest(name)) for name in names)
        starts |= {name.partition(":")[0] for name in seen.functions}
        return CodeRecord(settings, tuple(sorted(starts)), seen, parts, may_be_executed)

    def names_of(self, executed: Executed, modules: Iterable[str]) -> list[str]:
        """Names of all parts that a measurement follows from, sorted."""
        more = [VERDICTS, *(LIBRARY + name for name in self.libraries), *(FILE + path for path in executed.files)]
        return sorted({*executed.functions, *modules, *more})

    def closure(self, names: Iterable[str]) -> frozenset[str]:
        """The modules, with all that they import from the packages under test and the content package."""
        return frozenset().union(*map(self._reached_from, names))

    def _reached_from(self, module: str) -> frozenset[str]:
        """A module with all that it imports from these packages; nothing if it is no module of them."""
        if module not in self._reached:
            found: set[str] = set()
            waiting = [module]
            while waiting:
                name = waiting.pop()
                needed = self._needed_by(name)
                if name not in found and needed is not None:
                    found.add(name)
                    waiting.extend(needed)
            self._reached[module] = frozenset(found)
        return self._reached[module]

    def mentioned(self, parts: Iterable[str], known: Iterable[str]) -> frozenset[str]:
        """Unknown functions that others may call, directly or not: those whose name they mention.

        They are looked for in the module of the function that mentions them, and in those that this imports; so what
        is called through a table or a name of another module is not found. A function that is gone mentions its own
        name, as a method of a base class may now be called.

        :param parts: names of parts, as in `CodeRecord.parts`, of which the functions are followed
        :param known: names of functions that are not followed
        """
        seen, found = {*known}, set[str]()
        waiting = [name for name in parts if ":" in name]
        while waiting:
            module, _, name = waiting.pop().partition(":")
            names = self._mentions(module).get(name, frozenset({name.rpartition(".")[2]}))
            near = {module, *(self._needed_by(module) or ())}
            functions = [(f"{each}:{part}", part) for each in near for part in self.parts(each) if part]
            more = {full for full, part in functions if full not in seen and names & {*part.split(".")}}
            seen |= more
            found |= more
            waiting.extend(more)
        return frozenset(found)

    def _mentions(self, module: str) -> Mapping[str, frozenset[str]]:
        if module not in self._mentioned:
            self._mentioned[module] = mentioned_names(self.sources.get(module, b""))
        return self._mentioned[module]

    def _needed_by(self, module: str) -> tuple[str, ...] | None:
        if module not in self._needed:
            self._needed[module] = needed_to_import(module, self.packages)
        return self._needed[module]

    def changed(self, record: CodeRecord) -> list[str]:
        """Names of the parts that are now other than in a record."""
        return [name for name, was in record.parts if self.digest(name) != was]

    def check_unchanged(self) -> None:
        """Compare with what is on the disk now.

        :raises HarnessError: if a module was changed, added or removed since this was made
        """
        now = dict(_sources(self.project.code_places))
        for name in sorted(now.keys() | self.sources.keys()):
            was, is_now = self.sources.get(name), now.get(name)
            if was != is_now and (was is None or is_now is None or not _same(was, is_now)):
                raise HarnessError(f"{name} was changed while it was measured; nothing was replaced; run it again")

    @cached_property
    def libraries(self) -> Mapping[str, str]:
        """Version of each library of the settings."""
        return {name: metadata.version(name) for name in self.project.settings.libraries}

    @cached_property
    def verdicts(self) -> str:
        """Digest of the engine's statistics and rules."""
        folder = Path(rlverify.__file__).parent / "verdicts"
        return digest(part for path in sorted(folder.glob("*.py")) for part in code_parts(path.read_bytes()).values())

    def parts(self, module: str) -> Mapping[str, str]:
        """The digests of a module's parts, as `parts_or_whole` has them; none where there is no such module."""
        source = self.sources.get(module)
        return {} if source is None else parts_or_whole(source)


def _digest_of_file(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError:
        return GONE


def _sources(places: Mapping[str, Path]) -> Iterator[tuple[str, bytes]]:
    """(dotted name, source) of every module of some packages."""
    for package, place in places.items():
        found = [place] if place.is_file() else sorted(place.rglob("*.py"))
        for path in sorted(found, key=lambda path: path.name == "__init__.py"):  # imported before a module of that name
            yield module_name(package, place, path), path.read_bytes()


def _same(was: bytes, is_now: bytes) -> bool:
    try:
        return code_parts(was) == code_parts(is_now)
    except SyntaxError:
        return False
