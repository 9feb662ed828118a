"""Reports what the pickles of one stream would import."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, Final

from rlverify.pickles.bounded_reading import NotScannedError
from rlverify.pickles.pickle_imports import PickleContent, PickleImport, content_of
from rlverify.pickles.pickle_instructions import starts_like_a_pickle
from rlverify.scan.findings import RULES, ScanFinding, ScanSeverity
from rlverify.scan.pickle_names import danger_of

MAX_NAMED: Final = 8
"""How many imports a message names."""
MAX_PICKLES: Final = 1000
PICKLES_OF_OLD_TORCH: Final = 5
"""Number, protocol, system, object, keys of the tensor data, which follows."""
_MODULE_AND_NAME: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class Place:
    """Where findings are reported.

    :param path: the file
    :param field: the part of it, if not the whole
    :param remedy: what to do about imports, if not what the rule says
    """

    path: str
    field: str = ""
    remedy: str = ""

    def inside(self, name: str, separator: str = "/") -> Place:
        """A part of this place; names from files are shortened and made printable."""
        printable = name[:200].encode("ascii", "backslashreplace").decode().translate(_PRINTABLE)
        return replace(self, field=f"{self.field}{separator if self.field else ''}{printable}")

    def finding(self, rule: str, severity: ScanSeverity, message: str) -> ScanFinding:
        """A finding here."""
        remedy = self.remedy if rule == "pickle-import" and self.remedy else RULES[rule].remedy
        return ScanFinding(self.path, rule, severity, message, remedy, field=self.field)

    def problem(self, problem: NotScannedError) -> ScanFinding:
        """The finding that something was not scanned."""
        return self.finding(problem.rule, "warning", problem.reason)


_PRINTABLE: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127)}


def findings_of_pickles(content: BinaryIO, place: Place) -> Iterator[ScanFinding]:
    """What unpickling a stream would import: its first pickle, and those that follow as a program may read them too.

    :param content: seekable, at the start of the first pickle
    """
    first = content_of(content)
    found, problem = [first], first.problem
    while found[-1].problem is None and len(found) < MAX_PICKLES:
        following = _following(content, is_old_torch=first.is_number and len(found) < PICKLES_OF_OLD_TORCH)
        if following is None:
            break
        found.append(following)
    yield from findings_of_imports([each for content in found for each in content.imports], place)
    if problem is not None:
        yield place.problem(problem)


def _following(content: BinaryIO, *, is_old_torch: bool) -> PickleContent | None:
    """The next pickle; None where the rest is something else, such as the data of tensors."""
    start = content.tell()
    head = content.read(3)
    content.seek(start)
    if not head or not (is_old_torch or starts_like_a_pickle(head)):
        return None
    return content_of(content)


def findings_of_unknown_file(content: BinaryIO, place: Place) -> Iterator[ScanFinding]:
    """What unpickling a file would import whose name and start say nothing, as an old pickle may have any.

    Only a whole pickle with well-formed names counts, so that texts are not taken for pickles.
    """
    found = content_of(content)
    names = (name for each in found.imports for name in (each.module, each.name))
    if found.problem is None and all(map(_MODULE_AND_NAME.fullmatch, names)):
        yield from findings_of_imports(found.imports, place)


def findings_of_imports(imports: Sequence[PickleImport], place: Place) -> Iterator[ScanFinding]:
    """One finding for the dangerous imports and one for the others that are not known to be safe."""
    dangers = {each: danger_of(each) for each in imports}
    dangerous = [each for each, danger in dangers.items() if danger == "dangerous"]
    unknown = [each for each, danger in dangers.items() if danger == "unknown"]
    if dangerous:
        yield place.finding("pickle-dangerous-import", "error", _sentence(dangerous))
    if unknown:
        yield place.finding("pickle-import", "warning", _sentence(unknown))


def _sentence(imports: Sequence[PickleImport]) -> str:
    called = [each for each in imports if each.is_called]
    others = [each for each in imports if not each.is_called]
    parts = [f"{verb} {_listed(names)}" for verb, names in (("call", called), ("import", others)) if names]
    return f"unpickling would {' and '.join(parts)}"


def _listed(imports: Sequence[PickleImport]) -> str:
    names = [ascii(str(each))[1:-1][:120] for each in imports]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(dict.fromkeys(names[:MAX_NAMED])) + more
