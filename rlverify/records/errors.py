"""Every error that the harness raises on purpose: one line that names the value, what it breaks and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from os import PathLike


class HarnessError(Exception):
    """Root of the errors below: the harness could not do its work, which says nothing about a claim."""


class BrokenCodeError(HarnessError):
    """Code under test cannot be imported, so that no claim can be measured: whoever changed it broke it."""

    def __init__(self, place: str, error: BaseException) -> None:
        message = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
        self.place = place
        self.reason = f"code under test cannot be imported: {type(error).__name__}: {message}"
        super().__init__(f"{place}: {self.reason}")


class UsageError(HarnessError, ValueError):
    """An option or argument of a command cannot be used as it was given."""


class SettingsError(HarnessError, ValueError):
    """The settings of a project cannot be used; ``key`` is the setting that is wrong, or empty."""

    def __init__(self, path: str | PathLike[str], key: str, reason: str) -> None:
        super().__init__(f"settings {path}{f', {key}' if key else ''}: {reason}")
        self.path = path
        self.key = key


class CatalogueError(HarnessError, ValueError):
    """An entry of the catalogue cannot be used; ``claim`` is its id or position, empty for the file as a whole."""

    def __init__(self, file: str, claim: str, field: str, reason: str) -> None:
        super().__init__(f"catalogue {', '.join(part for part in (file, claim, field) if part)}: {reason}")
        self.file = file
        self.claim = claim
        self.field = field


class UnknownNameError(HarnessError, LookupError):
    """A claim, fault or probe of that name does not exist; the message suggests the nearest one."""


class RegistrationError(HarnessError):
    """Two faults, probes, experiments, plots or pages have the same name."""


class FaultError(HarnessError):
    """A fault cannot be planted as it is written."""


class StaleFaultError(FaultError):
    """The member that a fault replaces has changed, moved or gone since the fault was written."""


class ProbeError(HarnessError):
    """A probe returned something that cannot be judged."""


class TimeLimitError(HarnessError):
    """A probe did not end in time."""


class EvidenceError(HarnessError, ValueError):
    """A file of evidence is missing, broken or says something else than its own counts."""

    def __init__(self, path: str | PathLike[str], reason: str) -> None:
        super().__init__(f"evidence {path}: {reason}")
        self.path = path


class MatrixError(HarnessError, ValueError):
    """The kill matrix, or what it is made from (a file, a fault, a test), is missing or broken."""

    def __init__(self, subject: str | PathLike[str], reason: str) -> None:
        super().__init__(f"kill matrix, {subject}: {reason}")
        self.reason = f"{subject} {reason}"


class ModelFileError(HarnessError, ValueError):
    """A model file cannot be read, or does not fit the model; the model is unchanged."""

    def __init__(self, path: str | PathLike[str], reason: str) -> None:
        super().__init__(
            f"model file {path}: {reason}. The model is unchanged; use a file that the same algorithm saved with the "
            "same settings and spaces"
        )
        self.path = path
        self.reason = reason


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of an error message that asks whether a similar name was meant; empty if none is similar.

    ``PPO-1`` suggests ``PPO-01``: names that differ only in case and in leading zeros come before all others.
    """
    spelt = {each.casefold(): each for each in known}
    same = [each for each in spelt if _without_zeros(each) == _without_zeros(name.casefold())]
    close = same or get_close_matches(name.casefold(), spelt)
    return f"; did you mean {spelt[close[0]]!r}?" if close else ""


def _without_zeros(name: str) -> str:
    return re.sub(r"(?<!\d)0+(?=\d)", "", name)
