"""Paired runs that have ended, each in a file of its own, so that an interruption repeats none of them.

A run is in ``<experiment>/<seed>.json`` with one digest of all code. A run of other code or other libraries is made
again; until then its file shows how long such runs take.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlverify.records.runs import PairedRun

Finite = Annotated[float, Field(allow_inf_nan=False)]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[3]
    experiment: str
    seed: int
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    quantities: Annotated[dict[str, Finite], Field(min_length=1)]
    code: str


@dataclass(frozen=True)
class RunStore:
    """The runs of one experiment.

    :param root: folder of all experiments' runs
    """

    root: Path
    experiment: str

    @property
    def folder(self) -> Path:
        """The folder of its runs."""
        return self.root / self.experiment

    def save(self, run: PairedRun, code: str) -> None:
        """Keep a run that has ended; whatever interrupts this, the file is whole or is not there.

        :param code: digest of the code that it ran
        :raises OSError: if it cannot be written
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(run.seed)
        pending = path.with_suffix(".pending")
        content = _File(
            schema_version=3,
            experiment=run.experiment,
            seed=run.seed,
            seconds=run.seconds,
            quantities=dict(run.quantities),
            code=code,
        )
        with pending.open("w", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(content.model_dump()) + "\n")
            file.flush()
            os.fsync(file.fileno())
        pending.replace(path)
        _sync_folder(self.folder)

    def load(self, seeds: Iterable[int], code: str) -> list[PairedRun]:
        """Those of the runs that are kept; a file that cannot be read counts as none, so that its run is made again.

        :param code: digest of the code as it is now; a run of other code is none
        """
        found = ((seed, _read(self._path(seed))) for seed in seeds)
        return [
            PairedRun(self.experiment, seed, tuple(kept.quantities.items()), kept.seconds)
            for seed, kept in found
            if kept is not None and (kept.experiment, kept.seed, kept.code) == (self.experiment, seed, code)
        ]

    def discard(self, seeds: Iterable[int]) -> None:
        """Forget runs, so that they are made again."""
        for seed in seeds:
            self._path(seed).unlink(missing_ok=True)

    def seconds(self) -> list[float]:
        """How long each kept run of the experiment took, whatever code it ran."""
        return [kept.seconds for kept in _read_all(self.folder)]

    def _path(self, seed: int) -> Path:
        return self.folder / f"{seed}.json"


def _sync_folder(folder: Path) -> None:
    """The new name outlives a power cut only if its folder is written as well."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_all(folder: Path) -> Iterator[_File]:
    for path in sorted(folder.glob("*.json")):
        kept = _read(path)
        if kept is not None:
            yield kept


def _read(path: Path) -> _File | None:
    try:
        return _File.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
