"""Types that several packages share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np
import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from rlcore.errors import TOP, SettingError

# What a saved state may hold: tensors and plain Python, so that a file of it loads without executing anything.
Plain: TypeAlias = bool | int | float | str | None
StateValue: TypeAlias = "torch.Tensor | Plain | tuple[Plain, ...] | list[StateValue] | StateDict"
StateDict: TypeAlias = "dict[str | int, StateValue]"


def plain(value: Any) -> Any:
    """Return NumPy scalars as Python values, and other values unchanged."""
    return value.item() if isinstance(value, np.generic) else value


Positive = Annotated[float, BeforeValidator(plain), Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, BeforeValidator(plain), Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, BeforeValidator(plain), Field(allow_inf_nan=False)]
Fraction = Annotated[float, BeforeValidator(plain), Field(ge=0, le=1)]
Count = Annotated[int, BeforeValidator(plain), Field(ge=1)]
Natural = Annotated[int, BeforeValidator(plain), Field(ge=0)]
Seed = Annotated[int, BeforeValidator(plain), Field(ge=0, lt=2**32)]


class Table(BaseModel):
    """Settings that cannot change, each of exactly its type.

    :raises SettingError: for a value that cannot be used
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)
    level: ClassVar[str] = TOP
    """Where its settings are, for the error."""
    place: ClassVar[str] = "{}"
    """How a user writes a setting: a format of its name."""

    def __init__(self, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise self._refused(error, given) from error

    @classmethod
    def _refused(cls, error: ValidationError, given: Mapping[str, Any]) -> SettingError:
        """Turn pydantic's report into one sentence about the first setting that cannot be used."""
        problems = error.errors(include_url=False)
        for problem in problems:
            if isinstance(cause := problem.get("ctx", {}).get("error"), SettingError):
                return cause
        path = problems[0]["loc"]
        name, setting = str(path[0]), cls.place.format(path[0])
        meaning = cls.model_fields[name].description
        explained = f" ({meaning})" if meaning else ""
        if problems[0]["type"] == "missing":
            return SettingError(cls.level, f"{cls.level} lacks {name!r}{explained}; give it")
        # Each type that a value may have reports a problem of its own.
        reasons = dict.fromkeys(
            each["msg"][:1].lower() + each["msg"][1:] for each in problems if each["loc"][0] == name
        )
        inside = f"{path[1]}: " if isinstance(given.get(name), Mapping) and len(path) > 1 else ""
        reason = f"{inside}{', or '.join(reasons)}"
        return SettingError(setting, f"{setting}={given.get(name)!r} cannot be used{explained}: {reason}")
