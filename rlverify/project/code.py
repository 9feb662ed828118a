"""The code of a project as it is now, read once: one digest of all that a measurement can follow from."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Final

from rlverify.project.content import SHOWING, Project
from rlverify.project.fingerprint import digest, module_name, source_digest
from rlverify.records.errors import HarnessError

CPU_INFO: Final = Path("/proc/cpuinfo")
_KIND_OF_CPU: Final = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU part", "Features")

DATA: Final = "/"
"""In the name of a file that is no module."""


def machine() -> str:
    """Digest of the kind of processor: libraries choose their loops by it, and so the last bit of a sum."""
    found = {platform.machine(), platform.system()}
    if CPU_INFO.is_file():
        lines = (line.partition(":") for line in CPU_INFO.read_text(encoding="utf-8").splitlines())
        found |= {f"{name.strip()}:{value.strip()}" for name, _, value in lines if name.strip() in _KIND_OF_CPU}
    return digest(sorted(found))


class CurrentCode:
    """The files of the packages under test and of the content package at one moment.

    The catalogue, the documents and the subpackages that show results do not count, because no run reads them.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self._sources = dict(_sources(project))

    @cached_property
    def libraries(self) -> Mapping[str, str]:
        """Version of each library of the settings."""
        return {name: metadata.version(name) for name in self._project.settings.libraries}

    @cached_property
    def digest(self) -> str:
        """One digest of all files, and of the versions of the libraries."""
        files = ((name, hashlib.sha256(source).hexdigest()) for name, source in self._sources.items())
        return digest(text for pair in (*files, *self.libraries.items()) for text in pair)

    def check_unchanged(self) -> None:
        """Compare with what is on the disk now."""
        now = dict(_sources(self._project))
        for name in sorted(now.keys() | self._sources.keys()):
            was, is_now = self._sources.get(name), now.get(name)
            if DATA not in name and was != is_now and (was is None or is_now is None or not _same(was, is_now)):
                raise HarnessError(f"{name} was changed while it was measured; nothing was replaced; run it again")


def _sources(project: Project) -> Iterator[tuple[str, bytes]]:
    """(name, content) of every file that counts: modules by their dotted names, other files by ``package/path``."""
    catalogue, documents = (project.folder / name for name in ("catalogue", "documents"))
    ignored = [catalogue, documents, project.settings.catalogue, project.settings.documents, project.settings.reports]
    ignored += [project.folder / name for name in SHOWING]
    for package, place in project.code_places.items():
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            if path.is_file() and _counts(path, [each for each in ignored if each is not None]):
                is_module = path.suffix == ".py"
                name = module_name(package, place, path) if is_module else package + DATA + str(path.relative_to(place))
                yield name, path.read_bytes()


def _counts(path: Path, ignored: list[Path]) -> bool:
    is_cache = path.name.startswith(".") or "__pycache__" in path.parts
    return not is_cache and not any(map(path.is_relative_to, ignored))


def _same(was: bytes, is_now: bytes) -> bool:
    try:
        return source_digest(was) == source_digest(is_now)
    except (SyntaxError, ValueError):
        return False
