"""Known bugs in reading and writing checkpoint files."""

from __future__ import annotations

import io
from typing import BinaryIO

import numpy as np
import torch

from rlcore.checkpoint import container
from rlcore.types import StateDict
from rlverify import fault


@fault("int-01-unpickled-as-it-comes", target="rlcore.checkpoint.container:decode", pins="6f324aab5317f70c")
def unpickled_as_it_comes(
    content: memoryview,
    map_location: str | torch.device = "cpu",
    *,
    is_intact: bool = False,  # noqa: ARG001
) -> StateDict:
    """Load as torch.load() did before torch 2.6 without weights_only: execute whatever the pickle contains."""
    payload: StateDict = torch.load(io.BytesIO(content), map_location=map_location, weights_only=False)
    return payload


@fault("int-01-fix-weights-only", target="rlcore.checkpoint.container:decode", pins="6f324aab5317f70c")
def weights_only(
    content: memoryview,
    map_location: str | torch.device = "cpu",  # noqa: ARG001
    *,
    is_intact: bool = False,  # noqa: ARG001
) -> StateDict:
    """Load as document 000 recommends: weights_only=True and map_location="cpu", without other checks."""
    payload: StateDict = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return payload


@fault("int-01-device-of-the-file", target="rlcore.checkpoint.container:decode", pins="6f324aab5317f70c")
def device_of_the_file(
    content: memoryview,
    map_location: str | torch.device = "cpu",  # noqa: ARG001
    *,
    is_intact: bool = False,  # noqa: ARG001
) -> StateDict:
    """Load without map_location, so that every tensor goes to the device it was saved from."""
    payload: StateDict = torch.load(io.BytesIO(content), weights_only=True)
    return payload


@fault("asr-03-numpy-numbers-saved", target="rlcore.checkpoint.container:write", pins="8d8da755f50e583b")
def numpy_numbers_saved(payload: StateDict, file: BinaryIO) -> None:
    """Save values as they are given, so that a mean computed by NumPy stays a NumPy scalar."""
    torch.save({name: np.float64(each) if type(each) is float else each for name, each in payload.items()}, file)
    container.add_digest(file)


@fault("asr-04-v1-not-recognised", target="rlcore.checkpoint.formats:is_v1", pins="b7f1776b8bacf586")
def v1_not_recognised(payload: StateDict) -> bool:  # noqa: ARG001
    """Do not recognise a bare policy state dict."""
    return False
