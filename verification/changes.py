"""Which claims a change in the working tree can affect: all of them, unless it is certain that it cannot.

Every probe is made of the code under test, so that a change there affects every claim. A change of one probe, fault or
catalogue file affects the claims that name it, and what no measurement reads affects none.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Final

from verification.fingerprint import module_digests
from verification.laboratory import Laboratory
from verification.model import Claim

READ_BY_NO_MEASUREMENT: Final = ("*.md", "tests/*", "benchmarks/*", "examples/*", "reports/*", ".gitignore", "LICENSE")


@dataclass(frozen=True)
class Selection:
    """The claims to measure.

    :param claim_ids: their ids
    :param reason: why these, as the end of a sentence
    """

    claim_ids: frozenset[str]
    reason: str


def select(laboratory: Laboratory, repository: Path, revision: str) -> Selection:
    """The claims that the difference between ``revision`` and the working tree can affect.

    :param repository: a folder of the Git checkout to which the paths in the rules are relative
    """
    everything = frozenset(claim.id for claim in laboratory.claims)
    try:
        changed = changed_files(repository, revision)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        return Selection(everything, f"Git cannot tell what changed since {revision}: {said.strip().splitlines()[0]}")
    selected: set[str] = set()
    for path in changed:
        affected = _affected(laboratory, repository, path)
        if affected is None:
            return Selection(everything, f"{path} changed since {revision}")
        selected |= affected
    return Selection(frozenset(selected), f"the only ones that changes since {revision} can affect")


def changed_files(repository: Path, revision: str) -> tuple[str, ...]:
    """Files that differ from ``revision``, deleted and untracked ones included, relative to the folder; sorted.

    :raises subprocess.CalledProcessError: if this is no checkout or the revision is unknown
    :raises OSError: if there is no Git
    """
    difference = ["diff", "--name-only", "--no-renames", "--relative", "-z", "--end-of-options", revision, "--"]
    untracked = ["ls-files", "--others", "--exclude-standard", "-z"]
    return tuple(sorted({path for command in (difference, untracked) for path in _git(repository, command)}))


def _git(repository: Path, arguments: Sequence[str]) -> list[str]:
    command = ["git", "-C", str(repository), *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout
    return [path for path in output.split("\0") if path]


def _affected(laboratory: Laboratory, repository: Path, path: str) -> set[str] | None:
    """Ids of the claims that a changed file can affect; None for all."""
    full = repository / path
    if full.is_relative_to(laboratory.folder):
        return _affected_within(laboratory, full)
    if PurePosixPath(path).match("reports/evidence/*.json"):
        return {claim.id for claim in laboratory.claims} & {full.stem}
    return set() if any(fnmatchcase(path, rule) for rule in READ_BY_NO_MEASUREMENT) else None


def _affected_within(laboratory: Laboratory, full: Path) -> set[str] | None:
    kind, *rest = full.relative_to(laboratory.folder).with_suffix("").parts
    if kind == "catalogue" and full.suffix == ".toml" and full.is_file():
        return {claim.id for claim in laboratory.claims if claim.document == full.stem}
    if kind in ("probes", "faults") and full.suffix == ".py" and full.is_file() and rest[-1:] != ["__init__"]:
        module = ".".join((laboratory.package, kind, *rest))
        return _ids(claim for claim in laboratory.claims if module in _experiment(laboratory, claim))
    return None


def _experiment(laboratory: Laboratory, claim: Claim) -> set[str]:
    """The modules of a claim's probe and faults, and what they import of probes and faults."""
    names = [name for name in (claim.fault, claim.documented_fix) if name is not None]
    sources = [laboratory.probe(claim.probe).__module__, *(laboratory.fault(name).defined_in for name in names)]
    within = tuple(f"{laboratory.package}.{kind}" for kind in ("probes", "faults"))
    return {name for name, _ in module_digests(sources, within=within)}


def _ids(claims: Iterable[Claim]) -> set[str]:
    return {claim.id for claim in claims}
