"""The JSON file of a field report."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from rlverify.field.field_records import SCHEMA_VERSION, FieldReport
from rlverify.records.errors import UsageError

_FIELD_REPORT: Final = TypeAdapter(FieldReport)


def text_of(report: FieldReport) -> str:
    """The report as JSON."""
    return _FIELD_REPORT.dump_json(report, indent=1).decode() + "\n"


def read_field_report(path: Path) -> FieldReport:
    """The report of a file.

    :raises UsageError: if it cannot be read
    """
    try:
        report = _FIELD_REPORT.validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(each) for each in first["loc"]) or "the file"
        raise UsageError(
            f"{path} is no field report: {place}: {first['msg']}; run `rlverify field-report` again"
        ) from error
    if report.schema_version != SCHEMA_VERSION:
        raise UsageError(
            f"{path} has schema_version {report.schema_version}, expected {SCHEMA_VERSION}; "
            "run `rlverify field-report` again"
        )
    return report
