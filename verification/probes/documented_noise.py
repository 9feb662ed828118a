"""Adaptive noise as lines 128 to 134 of document 001 have it: sigma times the average of the gradient's norm.

Of each tensor's, which the document does not say; corrected for its start, and with the floor that stands there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlcore import UPGD, AdaptiveUPGD


class DocumentedUPGD(UPGD):
    """UPGD with it."""

    def _noise_std(self, update: Any, rms: Tensor) -> float | Tensor:  # noqa: ARG002
        return super()._noise_std(update, torch.linalg.vector_norm(update.gradient))


class DocumentedAdaptiveUPGD(DocumentedUPGD, AdaptiveUPGD):
    """AdaptiveUPGD with it."""


DOCUMENTED = {"UPGD": DocumentedUPGD, "AdaptiveUPGD": DocumentedAdaptiveUPGD}
