"""Training runs in which rewards change their scale."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from rlcore import ReturnScale
from rlcore.ppo.returns import make_return_scale
from rlverify import Line, Plot, plot
from verification.probes.make import Make
from verification.probes.returns import ScaledRewards

ROLLOUT: Final = 96
"""Steps from one update of a small model to the next."""

SCALE_UPDATES: Final = 24
GROWS_AT, FALLS_AT = 8, 16
DECAY: Final = 0.5
MIN_STD: Final = 1e-6


@plot("snapshot-and-true-scale")
def snapshot_and_true_scale(make: Make) -> Plot:
    """Multiply all rewards by ten and take it back; which scale does each update train on, under either rule?"""
    envs = ScaledRewards(make.envs(0))
    model = make.model(0, envs, n_epochs=1, return_scale="zero_lag", return_scale_decay=DECAY)
    rows = _watched_scales(model.value_scale)
    for update in range(SCALE_UPDATES):
        envs.factor = 10.0 if GROWS_AT <= update < FALLS_AT else 1.0
        model.learn(ROLLOUT, reset_num_timesteps=False)
    true, snapshot, zero_lag = (tuple(float(f"{value:.3g}") for value in column) for column in zip(*rows, strict=True))
    return Plot(
        title="The documented snapshot follows the returns one update late",
        x_label=f"update; rewards are ten times as large from {GROWS_AT + 1} to {FALLS_AT}",
        y_label="standard deviation of returns",
        positions=tuple(float(update) for update in range(1, SCALE_UPDATES + 1)),
        lines=(
            Line("returns of this rollout", true),
            Line("snapshot, as documented", snapshot),
            Line("zero lag (rlcore)", zero_lag),
        ),
        note=(
            f"One run on CartPole; both rules are shown its returns. Statistics average over rollouts with a decay of "
            f"{DECAY}, means that move included. The documented order takes its snapshot before the rollout and moves "
            "the statistics after training: it trains on what was known one update before."
        ),
        log_y=True,
    )


def _watched_scales(scale: ReturnScale) -> list[tuple[float, float, float]]:
    """Each update appends: the rollout's standard deviation, the documented snapshot's, and that of ``scale``."""
    documented = make_return_scale("snapshot", DECAY, MIN_STD)
    rows: list[tuple[float, float, float]] = []
    prepare = scale.before_update

    def before_update(returns: Any, output_layers: Any) -> float:
        documented.before_rollout()
        used = documented.snapshot.std
        documented.after_update(returns)
        factor = prepare(returns, output_layers)
        rows.append((float(np.std(returns.astype(np.float64))), used, scale.snapshot.std))
        return factor

    scale.before_update = before_update  # type: ignore[method-assign]
    return rows
