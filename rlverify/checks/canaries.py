"""Canaries: pickles that make a folder when they are executed, planted into saved files in place of each pickle."""

from __future__ import annotations

import base64
import copy
import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlverify.checks.saved_pickles import SERIALIZED, imports, json_of, parts_of_json
from rlverify.checks.session import SubjectSession
from rlverify.checks.wrapped_pickles import unwrapped
from rlverify.records.attempts import attempt

CANARY = "canary"


class _Canary:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.fspath(self.path),)


def executed_canaries(session: SubjectSession, folder: Path) -> tuple[list[str], int]:
    """The places of pickles in saved files that a load executes, found by loading a canary at each of them.

    :param folder: what was saved
    :return: the places, and how many there are at which a canary was planted
    :raises SubjectError: if the files cannot be loaded as they are. A load that refuses the canary is right
    :raises NotSupportedError: if the adapter cannot load
    """
    session.run(lambda: _loaded(session, folder))
    executed, planted = [], 0
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        with session.folder() as room:
            canary = Path(room) / CANARY
            for place, content in with_canary(file.name, file.read_bytes(), pickle.dumps(_Canary(canary))):
                planted += 1
                changed = Path(room) / str(planted)
                shutil.copytree(folder, changed)
                (changed / file.relative_to(folder)).write_bytes(content)
                attempt(lambda changed=changed: session.run(lambda: _loaded(session, changed)))  # type: ignore[misc]
                shutil.rmtree(changed, ignore_errors=True)
                if canary.exists():
                    executed.append(place)
                    canary.rmdir()
    return executed, planted


def _loaded(session: SubjectSession, folder: Path) -> None:
    session.loaded(folder)


def with_canary(place: str, content: bytes, canary: bytes) -> Iterator[tuple[str, bytes]]:
    """For each pickle in a file, its place and the whole file with the canary instead of it."""
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {each: archive.read(each) for each in archive.infolist()}
        for member, own in members.items():
            for inner, changed in with_canary(f"{place}: {member.filename}", own, canary):
                yield inner, _zipped({**members, member: changed})
        return
    wrapped = unwrapped(content)
    if wrapped is not None:
        for inner, changed in with_canary(place, wrapped[0], canary):
            yield inner, wrapped[1](changed)
        return
    fields = json_of(content)
    if fields is not None:
        for path, inner in _serialized(fields, place):
            changed_fields = copy.deepcopy(fields)
            node = changed_fields
            for key in path[:-1]:
                node = node[key]
            node[path[-1]] = base64.b64encode(canary).decode()
            yield inner, json.dumps(changed_fields).encode()
        return
    if imports(content) is not None:
        yield place, canary


def _zipped(members: dict[zipfile.ZipInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for member, content in members.items():
            archive.writestr(member.filename, content, member.compress_type)
    return buffer.getvalue()


def _serialized(node: Any, place: str, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Where in JSON there are pickles: the keys that lead to each, and its place in words."""
    for key, value in parts_of_json(node):
        if key == SERIALIZED and isinstance(value, str):
            yield (*path, key), place
        else:
            yield from _serialized(value, f"{place}: {key}", (*path, key))
