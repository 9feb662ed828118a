"""UPGD optimizers, and scaling of gradients by their variance."""

from rlcore.optim.scaler import VarianceGradientScaler
from rlcore.optim.upgd import UPGD, AdaptiveUPGD

__all__ = ["UPGD", "AdaptiveUPGD", "VarianceGradientScaler"]
