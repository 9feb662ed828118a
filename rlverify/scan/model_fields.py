"""The fields of a model file of Stable-Baselines3 that would execute something: pickles in the JSON member ``data``."""

from __future__ import annotations

import base64
import binascii
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from rlverify.pickles.bounded_reading import MEBIBYTE, NotScannedError, PackedStream, UnpackBudget
from rlverify.scan.findings import ScanFinding
from rlverify.scan.pickle_findings import Place, findings_of_pickles

SERIALIZED: Final = ":serialized:"
"""The key under which Stable-Baselines3 keeps a pickle in base64."""
MAX_FIELD_BYTES: Final = 64 * MEBIBYTE
"""How much is read of all fields together."""
_REMEDY: Final = "use rlverify.scan.load_parameters_safely(file, model), which skips this field"


def fields_of(packed: PackedStream, place: Place, budget: UnpackBudget) -> Iterator[ScanFinding]:
    """What unpickling each field of the member ``data`` would import.

    :param packed: the member, as the archive gives it
    """
    unpacked, problem = budget.unpack(packed, MAX_FIELD_BYTES)
    with unpacked:
        text = unpacked.read()
    if problem is None:
        try:
            fields = parsed_fields(text)
        except NotScannedError as error:
            problem, fields = error, {}
        for name, value in fields.items():
            if isinstance(value, dict) and SERIALIZED in value:
                yield from _findings_of_field(value[SERIALIZED], replace(place.inside(name, ":"), remedy=_REMEDY))
    if problem is not None:
        yield place.problem(problem)


def parsed_fields(text: bytes) -> Mapping[str, object]:
    """The fields of the member ``data``, as Stable-Baselines3 reads them, with pickles still in base64.

    :raises NotScannedError: if it is no JSON object
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotScannedError("unreadable-file", f"is not JSON: {str(error)[:120]}") from error
    if not isinstance(fields, dict):
        raise NotScannedError("unreadable-file", f"is not a JSON object but a {type(fields).__name__}")
    return fields


def pickle_of(serialized: object) -> io.BytesIO:
    """The pickle of a field, decoded as Stable-Baselines3 does.

    :raises NotScannedError: if it is not base64
    """
    if not isinstance(serialized, str):
        raise NotScannedError("unreadable-file", f"is not base64 but a {type(serialized).__name__}")
    try:
        return io.BytesIO(base64.b64decode(serialized.encode("utf-8", "replace")))
    except binascii.Error as error:
        raise NotScannedError("unreadable-file", f"is not base64: {error}") from error


def _findings_of_field(serialized: object, place: Place) -> Iterator[ScanFinding]:
    try:
        pickled = pickle_of(serialized)
    except NotScannedError as error:
        yield place.problem(error)
        return
    yield from findings_of_pickles(pickled, place)
