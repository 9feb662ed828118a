"""Whether the criteria of figures were frozen before they were measured."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

from rlverify.evidence.lock_file import NAME as LOCK_FILE
from rlverify.gating.committed_evidence import Committed
from rlverify.gating.git_base import git
from rlverify.project.criteria import NAME, FrozenCriterion
from rlverify.records.claims import Claim
from rlverify.records.exit_codes import CLAIM_FELL
from rlverify.records.problems import Problem

FROZEN: Final = re.compile(r'"([^"]+)" = "([0-9a-f]{16})"')
"""A line of the frozen criteria: id and digest."""
MEASURED: Final = re.compile(r' *"settings": "([0-9a-f]{16})",?')
"""A line of the lock file: the digest of what was measured."""

NO_CONFIGURATION: Final = ("-c", "log.showRoot=true", "-c", "log.follow=false")
WHOLE_DIFF: Final = ("-p", "-U0", "-m", "--full-history", "--text", "--no-color", "--no-textconv")
"""Every commit that changed a file, merges and side branches included, under any Git configuration."""

ORDER_UNKNOWN: Final = (
    "note: Git does not have the whole history here, so this could not check that criteria were frozen before they "
    "were measured; use a full clone (`git fetch --unshallow`)"
)


@dataclass(frozen=True)
class History:
    """The commits that added a frozen criterion, by id and digest, and a measured one, by digest.

    :param children: the commits that have a commit as their parent, by that commit
    """

    frozen: Mapping[tuple[str, str], Set[str]] = field(default_factory=dict)
    measured: Mapping[str, Set[str]] = field(default_factory=dict)
    children: Mapping[str, Sequence[str]] = field(default_factory=dict)
    _after: dict[frozenset[str], set[str]] = field(default_factory=dict)

    def is_frozen_first(self, claim_id: str, digest: str) -> bool:
        """Whether every commit with a result comes after a commit that froze its criterion."""
        frozen = frozenset(self.frozen.get((claim_id, digest), ()))
        return self.measured.get(digest, set()) <= self._descendants(frozen)

    def _descendants(self, commits: frozenset[str]) -> Set[str]:
        if commits in self._after:
            return self._after[commits]
        found = self._after[commits] = set()
        left = list(commits)
        while left:
            new = [each for each in self.children.get(left.pop(), ()) if each not in found]
            found.update(new)
            left += new
        return found


def check_criteria(committed: Committed, chosen: Set[str] | None = None) -> tuple[list[Problem], list[str]]:
    """Criteria that are not frozen, that were changed and not frozen again, or that were frozen after their result.

    :param chosen: ids of the claims to check, where not all
    :returns: the problems, and notes
    """
    project = committed.project
    criteria, path = project.criteria, project.folder / NAME
    if criteria is None:
        return _deleted(path), []
    history = history_of(path, committed.paths.reports / LOCK_FILE)
    claims = [each for each in project.claims if each.figure is not None and (chosen is None or each.id in chosen)]
    problems = [
        Problem(claim.id, CLAIM_FELL, sentence, remedy=remedy)
        for claim in claims
        for sentence, remedy in _faults_of(claim, project.settings_digest(claim), criteria.get(claim.id, ()), history)
    ]
    problems += _lost(criteria, history, chosen)
    if chosen is None:
        problems += _without_claim(criteria, {each.id for each in claims})
    return problems, [ORDER_UNKNOWN] * (history is None)


def unfrozen(criteria: Mapping[str, Sequence[FrozenCriterion]] | None, digests: Mapping[str, str]) -> list[str]:
    """The ids of figures whose criterion is not the one that was frozen last; none where a project freezes nothing.

    :param digests: of the criteria as they are now, by id of their claim
    """
    if criteria is None:
        return []
    return [claim for claim, digest in digests.items() if not _is_latest(criteria.get(claim, ()), digest)]


def _is_latest(frozen: Sequence[FrozenCriterion], digest: str) -> bool:
    return bool(frozen) and frozen[-1].digest == digest


def _faults_of(
    claim: Claim, digest: str, frozen: Sequence[FrozenCriterion], history: History | None
) -> Iterator[tuple[str, str]]:
    if not _is_latest(frozen, digest):
        when = f" since it was frozen on {frozen[-1].day}" if frozen else ""
        said = "its criterion was changed" if frozen else "its criterion is not frozen"
        yield f"{said}{when}", f"run `rlverify freeze {claim.id} --why TEXT`, and commit that before you measure"
        return
    different = [key for key, _ in groupby(each.digest for each in frozen)]
    if len(claim.earlier) < len(different) - 1:
        table = "[[claim.condition.earlier]]" if claim.condition_of else "[[claim.earlier]]"
        yield (
            f"it has {len(different)} criteria, frozen one after the other, and {len(claim.earlier)} {table}",
            f"add a `{table}` table for each criterion that was changed, with its verdict and the reason",
        )
    if history is None or frozen[-1].after_result:
        return
    remedy = f"say so with `rlverify freeze {claim.id} --after-result --why TEXT`"
    if not history.is_frozen_first(claim.id, digest):
        yield "its criterion was committed after its result, or together with it", remedy
    elif any(history.measured.get(each) for each in different if each != digest):
        yield "its criterion was changed after an earlier one was measured", remedy


def _lost(
    criteria: Mapping[str, Sequence[FrozenCriterion]], history: History | None, chosen: Set[str] | None
) -> list[Problem]:
    """Frozen criteria that the history has and the file does not have."""
    now = {(claim_id, each.digest) for claim_id, found in criteria.items() for each in found}
    lost = sorted(set(history.frozen if history is not None else ()) - now)
    return [
        Problem(
            claim_id,
            CLAIM_FELL,
            f"its frozen criterion {digest} was removed from {NAME}",
            remedy="restore that line; a criterion that was changed stays in the file, before the new one",
        )
        for claim_id, digest in lost
        if chosen is None or claim_id in chosen
    ]


def _without_claim(criteria: Mapping[str, Sequence[FrozenCriterion]], figures: Set[str]) -> list[Problem]:
    """Frozen criteria of figures that the catalogue does not have."""
    return [
        Problem(
            claim_id,
            CLAIM_FELL,
            f"has a frozen criterion in {NAME}, and the catalogue has no such figure",
            remedy="restore the claim, or the condition, so that its result is shown",
        )
        for claim_id in criteria
        if claim_id not in figures
    ]


def _deleted(criteria: Path) -> list[Problem]:
    """Whether the file of frozen criteria was in the history, where it is not there now."""
    try:
        found = git(
            criteria.parent, *NO_CONFIGURATION, "log", "-1", "--full-history", "--format=%H", "--", criteria.name
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    return [Problem(NAME, CLAIM_FELL, "was deleted, so no criterion is checked", remedy="restore it from Git")] * bool(
        found
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
        frozen: dict[tuple[str, str], set[str]] = {}
        for commit, (claim_id, digest) in _added(folder, criteria, FROZEN):
            frozen.setdefault((claim_id, digest), set()).add(commit)
        measured: dict[str, set[str]] = {}
        for commit, (digest,) in _added(folder, lock, MEASURED):
            measured.setdefault(digest, set()).add(commit)
        return History(frozen, measured, _children(folder))
    except (OSError, subprocess.CalledProcessError):
        return None


def _added(folder: Path, path: Path, pattern: re.Pattern[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(commit, what a pattern finds) for each line that a commit added to a file."""
    commit = ""
    for line in _lines(git(folder, *NO_CONFIGURATION, "log", "--format=commit %H", *WHOLE_DIFF, "--", str(path))):
        if line.startswith("commit "):
            commit = line.removeprefix("commit ")
        elif line.startswith("+") and (match := pattern.fullmatch(line[1:])):
            yield commit, match.groups()


def _children(folder: Path) -> dict[str, list[str]]:
    """The commits that have a commit as their parent, by that commit."""
    found: dict[str, list[str]] = {}
    for line in _lines(git(folder, "rev-list", "--parents", "HEAD")):
        commit, *parents = line.split()
        for parent in parents:
            found.setdefault(parent, []).append(commit)
    return found


def _lines(parts: Sequence[str]) -> list[str]:
    """The lines of what Git says, which end in a newline only: a reason may have other line breaks."""
    return [line.removesuffix("\r") for line in "\0".join(parts).split("\n") if line]
