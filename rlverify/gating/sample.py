"""Chooses the paired runs of figures that are repeated: those that a change asks for, and a sample that moves on.

A full measurement takes an hour, so a gate repeats a few runs. Learning amplifies the last bit of every sum: a change
that reaches a figure shows in nearly any run of its experiment, and one run checks all figures of the experiment.
"""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rlverify.evidence.evidence_files import to_json
from rlverify.gating.git_base import Base, git
from rlverify.project.content import Project
from rlverify.project.fingerprint import digest, module_path
from rlverify.project.settings import ReportPaths
from rlverify.records.claims import Claim
from rlverify.records.measured import Evidence

Figures = Sequence[tuple[Claim, Evidence]]

RUNS: Final = 10
"""Of how many experiments a run is repeated at most, whatever has changed."""
SECONDS: Final = 30.0
"""How long all these runs may take together, one after the other; two processes take half as long."""
UNKNOWN: Final = 3.0
"""Seconds of a run of which nothing is known."""


@dataclass(frozen=True)
class Revision:
    """Where a repository is.

    :param commit: HEAD; another text without Git
    :param number: how many commits lead to it; 0 without Git
    """

    commit: str
    number: int


def revision_of(project: Project, figures: Figures) -> Revision:
    """The revision that chooses the sample; without Git, the evidence does."""
    try:
        head = git(project.root, "rev-parse", "--verify", "HEAD")[0].strip()
        return Revision(head, int(git(project.root, "rev-list", "--count", "HEAD")[0]))
    except (OSError, subprocess.CalledProcessError):
        return Revision(digest(to_json(evidence) for _, evidence in figures), 0)


def seeds_to_repeat(
    figures: Figures, revision: Revision, forced: Mapping[str, int | None], seconds: Mapping[str, float]
) -> dict[str, list[int]]:
    """The seeds to repeat, by experiment.

    :param figures: those that may be repeated, with their committed evidence
    :param forced: ids of the figures of which a run must be repeated, with its seed; None where any seed will do
    :param seconds: that a run of each experiment takes, by its name, where that is known
    """
    windows = _windows({claim.experiment: seconds.get(claim.experiment, UNKNOWN) for claim, _ in figures})
    sampled = windows[revision.number % len(windows)]
    seeds: dict[str, list[int]] = {}
    for claim, _ in figures:
        asked = forced.get(claim.id)
        if asked is None and (claim.experiment in sampled or claim.id in forced):
            asked = int(digest([revision.commit, claim.experiment]), 16) % len(claim.seeds)
        if asked is not None and asked not in seeds.setdefault(claim.experiment, []):
            seeds[claim.experiment].append(asked)
    return seeds


def _windows(seconds: Mapping[str, float]) -> list[list[str]]:
    """The experiments in a fixed order, cut into parts that are each repeated within the time; at least one part."""
    windows: list[list[str]] = [[]]
    for name in sorted(seconds, key=lambda name: digest([name])):
        spent = sum(seconds[each] for each in windows[-1])
        if windows[-1] and (len(windows[-1]) == RUNS or spent + seconds[name] > SECONDS):
            windows.append([])
        windows[-1].append(name)
    return windows


def forced_by(base: Base, project: Project, paths: ReportPaths, figures: Figures) -> dict[str, int | None]:
    """The figures of which the claim, the experiment's module or the evidence differs from the base.

    :returns: by id, the seed of the run whose value a change moves most; None where any seed will do
    """
    tables = {path: _tables(base, path) for path in {project.catalogue_file(claim) for claim, _ in figures}}
    found: dict[str, int | None] = {}
    for claim, evidence in figures:
        path = paths.evidence / f"{claim.id}.json"
        module = module_path(project.experiment(claim.experiment).__module__)
        was, now = (_table(each, claim) for each in tables[project.catalogue_file(claim)])
        moved = _moved_seed(evidence, base.text(path)) if path.resolve() in base.changed else None
        if moved is not None:
            found[claim.id] = moved
        elif was != now or module.resolve() in base.changed:
            found[claim.id] = None
    return found


def _moved_seed(evidence: Evidence, before: str | None) -> int | None:
    """The seed of the value that differs most from an earlier file; 0 if that has none, None if none differs."""
    assert evidence.figure is not None
    try:
        old = [float(value) for value in json.loads(before or "")["figure"]["values"]]
    except (ValueError, TypeError, KeyError):
        return 0
    moved = [abs(now - was) for now, was in zip(evidence.figure.values, old, strict=False)]
    return moved.index(max(moved)) if any(moved) else None


def _tables(base: Base, path: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What a catalogue file was at the base, and what it is now."""
    if path.resolve() not in base.changed:
        return {}, {}
    texts = base.text(path) or "", path.read_text(encoding="utf-8")
    try:
        return tomllib.loads(texts[0]), tomllib.loads(texts[1])
    except tomllib.TOMLDecodeError:
        return {}, tomllib.loads(texts[1])


def _table(content: Mapping[str, Any], claim: Claim) -> Mapping[str, Any]:
    """What a catalogue file says of a figure; of a condition also the figure of its claim, which it completes."""
    claim_id, _, condition = claim.id.partition("@")
    table: Mapping[str, Any] = next((each for each in content.get("claim", ()) if each.get("id") == claim_id), {})
    conditions = table.get("condition", ())
    if condition:
        own = [each for each in conditions if each.get("name") == condition]
        return {"figure": table.get("figure"), "condition": own}
    return {name: value for name, value in table.items() if name != "condition"}
