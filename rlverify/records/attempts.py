"""Turns an unexpected exception into a record, so that others need no broad ``except``."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

Result = TypeVar("Result")
About = Callable[[BaseException], Callable[..., object] | None]
ENGINE: Final = Path(__file__).parents[1]
MOST_TRACE: Final = 10_000
MOST_MESSAGE: Final = 1_000
"""Characters that a record keeps."""


@dataclass(frozen=True)
class Crash:
    """An unexpected exception, as text.

    :param line: type, message and place in one line
    """

    line: str
    traceback: str
    error: BaseException

    @property
    def own_calls(self) -> str:
        """The calls that led to it without those of the engine, the innermost last."""
        calls = traceback.extract_tb(self.error.__traceback__)
        own = [call for call in calls if not Path(call.filename).is_relative_to(ENGINE)]
        return "".join(traceback.format_list(own))[:MOST_TRACE].rstrip()


def attempt(action: Callable[[], Result], about: About = lambda _: None) -> Result | Crash:
    """Whatever the action returns, or its crash as a record.

    :param about: the function of the content package that an error is about which the engine raises
    """
    try:
        return action()
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a probe throws is a finding about it
        file, number = _place(error, about(error))
        message = printable(" ".join(str(error)[:MOST_MESSAGE].split()))
        line = f"{type(error).__name__}: {message} ({'/'.join(file.parts[-2:])}:{number})"
        return Crash(line, "".join(traceback.format_exception(error)), error)


def printable(text: str) -> str:
    """A text with its control characters as escapes."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _place(error: BaseException, about: Callable[..., object] | None) -> tuple[Path, int]:
    """Where an error was raised; where the engine raised it, the last call that led to it or the function itself."""
    place = place_of(error)
    code = getattr(inspect.unwrap(about), "__code__", None) if about is not None else None
    if code is None or not place[0].is_relative_to(ENGINE):
        return place
    own = Path(code.co_filename)
    calls = (each for each in places_of(error) if each[0] == own)
    return next(calls, (own, code.co_firstlineno))


def place_of(error: BaseException) -> tuple[Path, int]:
    """The file and the line at which an error was raised; of a syntax error, those that it is about."""
    return places_of(error)[0]


def places_of(error: BaseException) -> list[tuple[Path, int]]:
    """The file and line at which an error was raised, then those of each call that led to it, the innermost first."""
    calls = reversed(traceback.extract_tb(error.__traceback__))
    found = [(Path(call.filename), call.lineno or 1) for call in calls]
    if isinstance(error, SyntaxError) and error.filename:
        found.insert(0, (Path(error.filename), error.lineno or 1))
    return found
