"""The optimizers and the transform of their gradients."""

from rlcore.optim.scaler import VarianceGradientScaler
from rlcore.optim.upgd import UPGD, AdaptiveUPGD

__all__ = ["UPGD", "AdaptiveUPGD", "VarianceGradientScaler"]
