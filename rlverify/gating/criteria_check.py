"""Whether the criteria of figures were frozen before they were measured."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rlverify.evidence.lock_file import NAME as LOCK_FILE
from rlverify.gating.committed_evidence import Committed
from rlverify.gating.git_base import git
from rlverify.project.criteria import NAME, FrozenCriterion
from rlverify.records.claims import Claim
from rlverify.records.exit_codes import CLAIM_FELL
from rlverify.records.problems import Problem

DIGEST: Final = re.compile(r'"([0-9a-f]{16})"')


@dataclass
class History:
    """The place of the commit that first held each digest, by digest; a later commit has a higher number."""

    frozen: dict[str, int] = field(default_factory=dict)
    measured: dict[str, int] = field(default_factory=dict)


def check_criteria(committed: Committed) -> list[Problem]:
    """Figures whose criterion is not frozen, was changed without a word, or was frozen after its result."""
    project = committed.project
    criteria = project.criteria
    if criteria is None:
        return []
    history = history_of(project.folder / NAME, committed.paths.reports / LOCK_FILE)
    return [
        Problem(claim.id, CLAIM_FELL, sentence, remedy=remedy)
        for claim in project.claims
        if claim.figure is not None
        for sentence, remedy in _faults_of(claim, project.settings_digest(claim), criteria, history)
    ]


def _faults_of(
    claim: Claim, digest: str, criteria: Mapping[str, tuple[FrozenCriterion, ...]], history: History | None
) -> Iterator[tuple[str, str]]:
    frozen = criteria.get(claim.id, ())
    if not frozen or frozen[-1].digest != digest:
        when = f" since it was frozen on {frozen[-1].day}" if frozen else ""
        told = "its criterion was changed" if frozen else "its criterion is not frozen"
        yield f"{told}{when}", f"run `rlverify freeze {claim.id} --why TEXT`, and commit that before you measure"
        return
    if len(claim.earlier) < len(frozen) - 1:
        yield (
            f"its criterion was frozen {len(frozen)} times, and its claim has {len(claim.earlier)} [[claim.earlier]]",
            "tell the earlier criterion, its verdict, and why it was changed",
        )
    if history is None or frozen[-1].after_result:
        return
    measured, known = history.measured.get(digest), history.frozen.get(digest)
    if measured is not None and (known is None or known >= measured):
        yield (
            "its criterion was committed after its result, or together with it",
            f"say so with `rlverify freeze {claim.id} --after-result --why TEXT`",
        )


def history_of(criteria: Path, lock: Path) -> History | None:
    """When digests came into both files, from Git; None where it does not know the whole history.

    :param criteria: the file of frozen criteria
    :param lock: the lock file
    """
    folder = criteria.parent
    try:
        if "".join(git(folder, "rev-parse", "--is-shallow-repository")).strip() != "false":
            return None
        told = git(
            *(folder, "log", "--reverse", "--topo-order", "--format=commit %H", "-p", "-U0", "--no-color"),
            *("--no-ext-diff", "--no-renames", "--", str(criteria), str(lock)),
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return _read(line for part in told for line in part.splitlines())


def _read(lines: Iterable[str]) -> History:
    history, place = History(), 0
    current = history.frozen
    for line in lines:
        if line.startswith("commit "):
            place += 1
        elif line.startswith("+++ "):
            current = history.frozen if line.endswith(f"/{NAME}") else history.measured
        elif line.startswith("+") and ('"settings"' in line or current is history.frozen):
            for digest in DIGEST.findall(line):
                current.setdefault(digest, place)
    return history
