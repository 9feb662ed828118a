"""What a run of the field report found: frozen records, which are written as JSON and read again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ConfigDict, TypeAdapter

from rlverify.checks.engine.check_records import CheckRecord


@dataclass(frozen=True)
class Effect:
    """How much a failed check changes training, over some seeds.

    :param steps: environment steps that were trained after the interruption or the exchange
    :param first_difference: the first of these steps that differs, from 1, by seed; None if none does
    :param distance: between the parameters with and without the defect, divided by how far these steps moved them; by
        seed. About 1.4 is the distance of two directions that have nothing to do with each other
    :param returns: mean return of the deterministic policy over some episodes, without the defect; by seed
    :param returns_with: the same with the defect
    """

    steps: int
    first_difference: tuple[int | None, ...]
    distance: tuple[float, ...]
    returns: tuple[float, ...]
    returns_with: tuple[float, ...]


@dataclass(frozen=True)
class Checked:
    """One algorithm or optimizer, and its records.

    :param name: of its class
    :param library: the distribution that it is of
    :param variant: ``defaults`` or ``awkward``
    :param factory: how Python imports what makes it, as ``module:name``
    :param source: the code of the factory; empty for a class that is its own
    :param problem: why it could not be checked; empty if it was
    :param effects: by name of the check that failed
    """

    name: str
    library: str
    variant: str
    factory: str
    source: str
    records: tuple[CheckRecord, ...]
    effects: dict[str, Effect]
    problem: str = ""


@dataclass(frozen=True)
class Shown:
    """A script that shows one finding without this engine, and what it printed.

    :param check: the name of the check that finds the same
    """

    check: str
    code: str
    output: str


@dataclass(frozen=True)
class FieldReport:
    """A whole run.

    :param versions: of Python and the libraries, by name
    :param constants: the values that the code of the factories names
    """

    date: str
    versions: dict[str, str]
    constants: dict[str, str]
    algorithms: tuple[Checked, ...]
    optimizers: tuple[Checked, ...]
    reproductions: tuple[Shown, ...]
    schema_version: int = 1

    __pydantic_config__ = ConfigDict(extra="forbid", ser_json_inf_nan="constants")


_FIELD_REPORT: Final = TypeAdapter(FieldReport)


def text_of(report: FieldReport) -> str:
    """Return the report as JSON."""
    return _FIELD_REPORT.dump_json(report, indent=1).decode() + "\n"


def read_field_report(path: Path) -> FieldReport:
    """Return the report of a file.

    :raises pydantic.ValidationError: if it holds something else
    """
    return _FIELD_REPORT.validate_json(path.read_bytes())
