"""Names the files that may have made a claim fall."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from rlverify.project.content import Project
from rlverify.project.fingerprint import is_within, module_exists, module_path
from rlverify.records.claims import Claim
from rlverify.reporting.record import Record

FRAME = re.compile(r'^  File "(.+)", line \d+', re.MULTILINE)


def suspects(record: Record) -> tuple[str, ...]:
    """Files under test that may be the reason, the likeliest first: where a run crashed, and what changed.

    A file that changed and in which a run crashed comes before all others.
    """
    crashed = [name for run in record.runs if run.traceback for name in _places(run.traceback, record.claim)]
    both = [name for name in crashed if name in record.changed]
    return tuple(dict.fromkeys([*both, *record.changed, *crashed]))


def _places(traceback: str, claim: Claim) -> list[str]:
    """The files of a traceback that are in a package which the claim is about, the deepest first."""
    packages = {_package(module) for module in claim.modules}
    return [name for name in reversed(FRAME.findall(traceback)) if packages & {Path(name), *Path(name).parents}]


def _package(module: str) -> Path:
    """The folder of the top-level package of a module, or its file where it is in none."""
    path = module_path(module)
    places = [path, *path.parents]
    return places[module.count(".") + (path.name == "__init__.py")]


def files_of(project: Project, parts: Iterable[str]) -> tuple[str, ...]:
    """The files of the packages under test in which some parts of the code are; functions before other code.

    :param parts: as in `CodeRecord.parts`
    """
    modules = {name: name.partition(":")[0] for name in parts}
    within = project.settings.under_test
    found = [name for name in modules if is_within(modules[name], within)]
    found.sort(key=lambda name: ":" not in name)
    places = [module_path(modules[name]) for name in found if module_exists(modules[name])]
    return tuple(dict.fromkeys(str(path.resolve()) for path in places))
