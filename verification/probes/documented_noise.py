"""Adaptive noise as lines 128 to 134 of document 001 have it: sigma times the average of the gradient's norm.

Of each tensor's, which the document does not say; corrected for its start, and with the floor that stands there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlcore import UPGD, AdaptiveUPGD


class _FollowsTheNorm:
    def _noise_reference(self, update: Any, rms: Tensor) -> Tensor:  # noqa: ARG002
        norm: Tensor = torch.linalg.vector_norm(update.gradient)
        return norm


class DocumentedUPGD(_FollowsTheNorm, UPGD):
    """UPGD with it."""


class DocumentedAdaptiveUPGD(_FollowsTheNorm, AdaptiveUPGD):
    """AdaptiveUPGD with it."""


DOCUMENTED = {"UPGD": DocumentedUPGD, "AdaptiveUPGD": DocumentedAdaptiveUPGD}
