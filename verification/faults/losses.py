"""Known bugs of the losses."""

from __future__ import annotations

from torch import Tensor

from rlcore.ppo.losses import Predictions
from verification.faults import fault, healthy


@fault("bug-01-padding-kept-in-predictions", target="rlcore.ppo.losses:valid_predictions", pins="c9d4993f1cf0e418")
def padding_kept_in_predictions(predictions: Predictions, mask: Tensor) -> Predictions:
    """Targets lose their padding, the critics' predictions keep it."""
    masked: Predictions = healthy("bug-01-padding-kept-in-predictions")(predictions, mask)
    return masked._replace(value_outputs=predictions.value_outputs)
