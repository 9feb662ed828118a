"""What a run goes through after an exploit, and when its rewards change their scale."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any, Final

import numpy as np

from rlcore import DistributionalPPO, ReturnScale, VarianceGradientScaler, apply_exploit
from rlcore.ppo.returns import make_return_scale
from rlverify import Line, Plot, plot
from verification.probes.make import Make
from verification.probes.returns import ScaledRewards

SEEDS: Final = range(3)
ROLLOUT: Final = 96
"""Steps from one update of a small model to the next."""

UPDATES: Final = {"source": 8, "member": 2}
OPTIMIZER_STEPS: Final = 160
EVERY: Final = 4
SETTINGS: Final[dict[str, Any]] = {"n_epochs": 8, "vgs_warmup_steps": 20}

SCALE_UPDATES: Final = 24
GROWS_AT, FALLS_AT = 8, 16
DECAY: Final = 0.5
MIN_STD: Final = 1e-6


@plot("recovery-after-exploit")
def recovery_after_exploit(make: Make) -> Plot:
    """After an exploit, show the same gradients to three scalers: the source's, the member's own, and a new one."""
    runs = [_factors(make, seed) for seed in SEEDS]
    lines = tuple(
        Line(label, tuple(round(median(at), 3) for at in zip(*(run[label] for run in runs), strict=True)))
        for label in runs[0]
    )
    return Plot(
        title="After an exploit, the three scaling factors differ for about 80 steps",
        x_label="optimizer steps after the exploit",
        y_label="factor on all gradients",
        positions=tuple(float(step) for step in range(0, OPTIMIZER_STEPS, EVERY)),
        lines=lines,
        note=(
            f"After {UPDATES['member']} updates a member copies another that has made {UPDATES['source']}, and goes on "
            "with the source's statistics; two more scalers are shown the same gradients and scale nothing. Where "
            "the lines differ, statistics that stayed behind or were reset would have scaled differently. "
            f"Median of {len(SEEDS)} pairs of small models on CartPole. The claims about figures measure what it costs."
        ),
    )


def _factors(make: Make, seed: int) -> dict[str, list[float]]:
    source, member = make.model(2 * seed, **SETTINGS), make.model(2 * seed + 1, **SETTINGS)
    source.learn(UPDATES["source"] * ROLLOUT)
    member.learn(UPDATES["member"] * ROLLOUT)
    own = _scaler(member).state_dict()
    apply_exploit(member, source.get_parameters(), {})
    left, fresh = (_witness(make, member) for _ in range(2))
    left.load_state_dict(own)
    scalers = {
        "the source's statistics": _scaler(member),
        "the member's own, kept": left,
        "reset": fresh,
    }
    return _followed(member, scalers, (left, fresh))


def _scaler(model: DistributionalPPO) -> VarianceGradientScaler:
    if model.variance_gradient_scaler is None:
        raise RuntimeError("the model was made without variance gradient scaling, so it has no factor to show")
    return model.variance_gradient_scaler


def _witness(make: Make, member: DistributionalPPO) -> VarianceGradientScaler:
    return make.scaler(member.policy.named_parameters(), warmup_steps=SETTINGS["vgs_warmup_steps"])


def _followed(
    member: DistributionalPPO,
    scalers: dict[str, VarianceGradientScaler],
    witnesses: tuple[VarianceGradientScaler, ...],
) -> dict[str, list[float]]:
    """The factor of each scaler before some of the steps; the witnesses see the raw gradients and change nothing."""
    found: dict[str, list[float]] = {label: [] for label in scalers}
    acting = _scaler(member)
    scale: Callable[[], float] = acting.scale_gradients

    def watched() -> float:
        for label, scaler in scalers.items():
            found[label].append(scaler.get_scaling_factor())
        for witness in witnesses:
            witness.update_statistics()
        return scale()

    acting.scale_gradients = watched  # type: ignore[method-assign]
    while len(next(iter(found.values()))) < OPTIMIZER_STEPS:
        member.learn(ROLLOUT, reset_num_timesteps=False)
    return {label: factors[:OPTIMIZER_STEPS:EVERY] for label, factors in found.items()}


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
