"""Types that several packages share."""

from __future__ import annotations

from typing import TypeAlias

import torch

# What a saved state may hold: tensors and plain Python, so that a file of it loads without executing anything.
Plain: TypeAlias = bool | int | float | str | None
StateValue: TypeAlias = "torch.Tensor | Plain | tuple[Plain, ...] | list[StateValue] | StateDict"
StateDict: TypeAlias = "dict[str | int, StateValue]"
