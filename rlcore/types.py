"""Types that several packages share."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import numpy as np
import torch
from pydantic import BeforeValidator, Field

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
