"""Reads a YAML file as plain values, by the rules of YAML 1.2: 3e-4 is a number, ``yes`` and ``off`` are texts.

PyYAML follows YAML 1.1, where it is the other way round. The types are those of the core schema (yaml.org/spec/1.2.2,
section 10.3.2). Anchors are refused, because a few of them can stand for more values than memory holds, and so
are tags: what a value is, its text says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import yaml

from rlcore.checkpoint import storage
from rlcore.checkpoint.refusal import RefusedError
from rlcore.errors import ConfigFileError

MAX_BYTES: Final = 1_000_000

Place = tuple[str, ...]
"""The names, and the positions in lists, that lead to a value."""


@dataclass(frozen=True)
class Document:
    """What a file says, and where.

    :param content: the mapping that the file holds; every name in it is a str
    :param lines: the line of every name and every entry of a list, by what leads there (``"a", "list", "0", "b"``)
    """

    content: dict[str, Any]
    lines: dict[Place, int]

    def line_of(self, place: str) -> int | None:
        """The line of the deepest name in ``place`` (``algorithm.optimizer_kwargs['lr']``) that the file has."""
        found: Place = ()
        for name in re.findall(r"\w+", place):
            if (*found, name) in self.lines:
                found = (*found, name)
        return self.lines.get(found)


def read_yaml(path: str | Path) -> Document:
    """Read one mapping from a file, executing nothing that it says.

    :raises ConfigFileError: with the line where there is one
    """
    try:
        text = str(storage.read_content(path, MAX_BYTES), "utf-8")
        loader = _Loader(text)
        root = loader.get_single_node()
        lines = {}
        if isinstance(root, yaml.MappingNode):
            lines = dict(_checked_lines(root, ()))
        content = None if root is None else loader.construct_document(root)
    except RefusedError as error:
        raise ConfigFileError(path, None, str(error)) from error
    except UnicodeDecodeError as error:
        raise ConfigFileError(path, None, "is no text in UTF-8") from error
    except RecursionError as error:
        raise ConfigFileError(path, None, "is nested deeper than any configuration") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise ConfigFileError(path, None if mark is None else mark.line + 1, f"{error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigFileError(path, None, f"is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ConfigFileError(path, None, "holds no mapping; write names and values as 'name: value', one a line")
    return Document(content, lines)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the types of YAML 1.2, without anchors and tags."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}  # type: ignore[misc]

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if event.anchor is not None:
            raise _at(event, "anchors and references (& and *) are not taken; write the value out")
        if getattr(event, "tag", None) is not None:
            raise _at(event, f"the tag {event.tag!r:.60} is not taken; write the value without it")
        node: yaml.Node | None = super().compose_node(parent, index)
        return node

    def construct_whole_number(self, node: yaml.ScalarNode) -> int:
        text: str = node.value.lower()
        try:
            return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        except ValueError as error:
            raise _at(node, "the number has more digits than any setting") from error


_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+.0123456789"),
)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_whole_number)


def _checked_lines(node: yaml.Node, place: Place) -> Iterator[tuple[Place, int]]:
    """The line of every name and entry below ``node``; refuses a name that is no text or stands twice."""
    if isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            yield (*place, str(position)), item.start_mark.line + 1
            yield from _checked_lines(item, (*place, str(position)))
    if not isinstance(node, yaml.MappingNode):
        return
    first: dict[str, int] = {}
    for key, value in node.value:
        if key.tag != "tag:yaml.org,2002:str":
            raise _at(key, f"{key.value!r:.60} is no name; a name is a text, in quotes if need be")
        if key.value in first:
            raise _at(key, f"{key.value!r} stands here and in line {first[key.value]}; give it once")
        first[key.value] = key.start_mark.line + 1
        yield (*place, key.value), first[key.value]
        yield from _checked_lines(value, (*place, key.value))


def _at(where: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=where.start_mark)
