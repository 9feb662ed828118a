"""Names that pickles of plain data import: builders of containers, arrays, tensors and random generators."""

from __future__ import annotations

from typing import Final

WEIGHTS_ONLY: Final = (
    "collections.OrderedDict",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_parameter",
    "torch.Size",
    "torch.device",
    "torch.serialization._get_layout",
    "torch.storage.UntypedStorage",
)
"""What ``torch.load(weights_only=True)`` imports for tensors, parameters and plain containers."""
STORAGES: Final = ("torch.", "Storage")
"""Beginning and end of the names of typed storages."""
DATA: Final = (
    "_codecs.encode",
    "builtins.bytearray",
    "builtins.complex",
    "builtins.frozenset",
    "builtins.range",
    "builtins.set",
    "builtins.slice",
    "collections.deque",
    "numpy.dtype",
    "numpy.ndarray",
)
"""Builders of plain data."""
NUMPY: Final = ("._reconstruct", ".scalar", "._frombuffer")
"""Ends of the names by which NumPy builds arrays and numbers."""


def is_for_weights(name: str) -> bool:
    """Whether ``torch.load(weights_only=True)`` imports a name."""
    return name in WEIGHTS_ONLY or (name.startswith(STORAGES[0]) and name.endswith(STORAGES[1]))


def is_data(name: str) -> bool:
    """Whether a name is that of a builder of numbers, containers, arrays, tensors or random generators."""
    if name.startswith("numpy.random._"):  # builders of random generators
        return True
    return name in DATA or is_for_weights(name) or (name.startswith("numpy.") and name.endswith(NUMPY))
