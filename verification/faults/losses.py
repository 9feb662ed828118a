"""Known bugs of the losses, and faults that no document claims."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rlcore.ppo.losses import MinibatchLosses, Predictions
from rlverify import fault, healthy, unclaimed


@fault("bug-01-padding-kept-in-predictions", target="rlcore.ppo.losses:valid_predictions", pins="eb7c7d5174022a48")
def padding_kept_in_predictions(predictions: Predictions, valid: Tensor) -> Predictions:
    """Remove padding from the targets, but not from the critics' predictions."""
    masked: Predictions = healthy("bug-01-padding-kept-in-predictions")(predictions, valid)
    return masked._replace(value_outputs=predictions.value_outputs)


@unclaimed(
    "single-advantage-divided-by-its-deviation",
    target="rlcore.ppo.losses:normalize_advantages",
    pins="93923cae8796a881",
)
def single_advantage_divided_by_its_deviation(advantages: Tensor) -> Tensor:
    """Divide by the sample deviation, which is NaN for one number."""
    centred = advantages - advantages.mean()
    deviation = (centred.square().sum() / (advantages.numel() - 1)).sqrt()
    return centred / (deviation + 1e-8)


@fault("fnd-71-entropy-is-a-penalty", target="rlcore.ppo.losses:minibatch_losses", pins="53272e6d860621ee")
def entropy_is_a_penalty(*args: Any, **kwargs: Any) -> MinibatchLosses:
    """Give the entropy term the wrong sign."""
    turned = {**kwargs, "ent_coef": -kwargs["ent_coef"]}
    losses: MinibatchLosses = healthy("fnd-71-entropy-is-a-penalty")(*args, **turned)
    return losses
