"""Tables of settings for populations: strict, frozen, and with errors for the person who wrote the value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from rlcore.errors import SettingError
from rlcore.ppo.arguments import reject_unknown


class Table(BaseModel):
    """A table whose every wrong value raises SettingError and whose every unknown name raises UnknownSettingError."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def __init__(self, **given: Any) -> None:
        where = type(self).__name__
        reject_unknown(given, where, {table.__name__: list(table.model_fields) for table in Table.__subclasses__()})
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise _explained(where, given, error) from error
        self.check_rules()

    @classmethod
    def by_name(cls, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Settings by name, where some were given by position, in the order of the table.

        :raises SettingError: for more positions than settings, and for a setting that is given by name too
        """
        where, fields = cls.__name__, list(cls.model_fields)
        if len(positional) > len(fields):
            raise SettingError(
                where, f"{where} has {len(fields)} settings and {len(positional)} values are given; give them by name"
            )
        given = dict(zip(fields, positional, strict=False))
        for name in named:
            if name in given:
                raise SettingError(
                    f"{where}[{name!r}]",
                    f"{where}: {name} is given by position, as {given[name]!r}, and by name; give it once",
                )
        return {**given, **named}

    def check_rules(self) -> None:
        """Check what concerns more than one setting.

        :raises SettingError: naming the settings that contradict each other
        """

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> Self:
        """The table that a plain mapping describes, such as one read from YAML.

        :raises UnknownSettingError: for a misspelt or misplaced name, with the right one
        :raises SettingError: for a value that cannot be used, or anything but a mapping from names to values
        """
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise SettingError(
                cls.__name__, f"{cls.__name__} is written as {given!r}; give a mapping from names to values"
            )
        return cls(**given)


def _explained(where: str, given: Mapping[str, Any], error: ValidationError) -> SettingError:
    """One sentence about the first thing that is wrong."""
    errors = error.errors(include_url=False, include_context=False)
    place, name = errors[0]["loc"][:-1], str(errors[0]["loc"][0])
    # Of several types that a value may have, each has an error of its own, and the last is the widest.
    found = [each for each in errors if place and each["loc"][:-1] == place] or errors[:1]
    message = f"{found[-1]['msg'][0].lower()}{found[-1]['msg'][1:]}"
    return SettingError(f"{where}[{name!r}]", f"{where}: {name}={given.get(name)!r} cannot be used: {message}")
