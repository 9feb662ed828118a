"""Measures what variance gradient scaling would do in real runs under every estimator and normalization.

    python -m benchmarks.vgs_defaults --output reports/measured/vgs_defaults.md

In each run the gradients are left as they are, and every scaler watches the same ones. The factor that a rule would
have applied is computed afterwards from the normalized variances, without those of the warm-up.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.env_util import make_vec_env

from rlcore import DistributionalPPO, ResumableEnv, VarianceGradientScaler
from rlcore.optim.gradient_variance import ESTIMATORS, Normalization, ScalerSettings

Series = NDArray[np.float64]

N_ENVS: Final = 8
UNCAPPED: Final = 1e300
RULES: Final = tuple(
    (estimator, normalization) for normalization in get_args(Normalization) for estimator in ESTIMATORS
)


@dataclass(frozen=True)
class Factor:
    """The rule from the normalized variance to the factor."""

    alpha: float
    floor: float
    cap: float

    @property
    def least(self) -> float:
        """The smallest factor: the floor, or what the cap leaves where that is more."""
        return max(self.floor, 1.0 / (1.0 + self.alpha * self.cap))

    def __call__(self, normalized_variances: Series) -> Series:
        return np.maximum(self.least, 1.0 / (1.0 + self.alpha * normalized_variances))

    def __str__(self) -> str:
        return f"alpha {self.alpha:g}, floor {self.floor:g}, cap {self.cap:g}"


class Panel(VarianceGradientScaler):
    """A scaler that scales nothing and shows every gradient to one passive scaler per rule."""

    def __init__(self, model: DistributionalPPO) -> None:
        parameters = list(model.policy.named_parameters())
        super().__init__(parameters, alpha=0.0)
        self._watchers = [
            VarianceGradientScaler(
                parameters,
                estimator=estimator,  # type: ignore[arg-type]
                normalization=normalization,  # type: ignore[arg-type]
                max_normalized_variance=UNCAPPED,
            )
            for estimator, normalization in RULES
        ]
        self.rows: list[list[float]] = []

    def scale_gradients(self) -> float:
        for watcher in self._watchers:
            watcher.update_statistics()
        self.rows.append([watcher.get_normalized_variance() for watcher in self._watchers])
        return super().scale_gradients()


@dataclass(frozen=True)
class Run:
    """Normalized variances ``[optimizer steps, rules]`` of one training run, past the warm-up."""

    env_id: str
    batch_size: int
    values: Series


def record(env_id: str, batch_size: int, arguments: argparse.Namespace) -> Run:
    """Train once and return what the panel saw."""
    envs = make_vec_env(env_id, n_envs=N_ENVS, seed=arguments.seed, wrapper_class=ResumableEnv)
    model = DistributionalPPO(
        "MlpLstmPolicy",
        envs,
        batch_size=batch_size,
        variance_gradient_scaling=True,
        policy_kwargs={"lstm_hidden_size": arguments.lstm, "net_arch": [arguments.lstm]},
        seed=arguments.seed,
        device="cpu",
    )
    panel = Panel(model)
    model.variance_gradient_scaler = panel
    model.learn(arguments.steps)
    return Run(env_id, batch_size, np.array(panel.rows[panel.settings.warmup_steps :]))


def correlation_time(series: Series) -> float:
    """Integrated autocorrelation time in steps: 1 + 2 * sum of the correlations before the first that is not positive.

    0 for a series that is constant to 1e-9 of its size.
    """
    centred = series - series.mean()
    power = float(centred @ centred)
    if power <= len(series) * (1e-9 * float(np.abs(series).max())) ** 2:
        return 0.0
    padded = np.fft.rfft(centred, 2 * len(centred))
    correlations = np.fft.irfft(np.abs(padded) ** 2)[: len(centred)] / power
    negative = np.flatnonzero(correlations <= 0)
    return float(1.0 + 2.0 * correlations[1 : negative[0] if len(negative) else None].sum())


def rounded(value: float) -> str:
    """Two digits: what repeats between machines, if anything does."""
    return f"{float(f'{value:.2g}'):.6g}" if 1e-3 <= abs(value) < 1e6 or value == 0 else f"{value:.1e}"


def spread(series: Series) -> str:
    """Median, and in brackets 5 % and 95 %."""
    median, low, high = (rounded(float(value)) for value in np.quantile(series, [0.5, 0.05, 0.95]))
    return f"{median} ({low} to {high})"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a Markdown table."""
    for row in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(row)} |"


def describe(run: Run, rules: Sequence[Factor]) -> Iterator[str]:
    """What every rule would have done in one run, under each estimator and normalization."""
    yield f"\n## {run.env_id}, minibatches of {run.batch_size}\n"
    of_rules = [f"{what}, cap {rule.cap:g}" for rule in rules for what in ("factor", "least", "time")]
    rows = []
    for position, (estimator, normalization) in enumerate(RULES):
        values = run.values[:, position]
        row = [normalization, estimator, spread(values)]
        for rule in rules:
            factors = rule(values)
            row += [spread(factors), f"{np.mean(factors == rule.least):.0%}", f"{correlation_time(factors):.0f}"]
        rows.append(row)
    yield from table(["normalization", "estimator", "nv", *of_rules], rows)


def shipped(runs: Sequence[Run], default: ScalerSettings) -> str:
    """Which rule a user gets who sets nothing, and how often it answers to nothing."""
    rule = Factor(default.alpha, default.min_scaling_factor, default.max_normalized_variance)
    position = RULES.index((default.estimator, default.normalization))
    shares = (
        f"{run.env_id}, {run.batch_size}: {np.mean(rule(run.values[:, position]) == rule.least):.0%}" for run in runs
    )
    return (
        f"Shipped: `{default.normalization}` of `{default.estimator}`, {rule}, the published rule with a larger "
        f"cap. `least` of it is {'; '.join(shares)}. The other estimators under `squared_mean` stand at the floor, and "
        "`second_moment` gives a factor near 1."
    )


def compare_batch_sizes(runs: Sequence[Run]) -> Iterator[str]:
    """Whether the variance falls when minibatches grow, as that of noise does."""
    yield "\n## Response to the size of the minibatch\n"
    yield "Median of the normalized variance, from the smallest minibatch to the largest.\n"
    environments = list(dict.fromkeys(run.env_id for run in runs))
    rows = []
    for position, (estimator, normalization) in enumerate(RULES):
        medians = {
            name: " / ".join(rounded(float(np.median(run.values[:, position]))) for run in runs if run.env_id == name)
            for name in environments
        }
        rows.append([normalization, estimator, *medians.values()])
    yield from table(["normalization", "estimator", *environments], rows)


def report(runs: Sequence[Run], rules: Sequence[Factor], command: str) -> str:
    """The whole file."""
    lines = [
        "# Variance gradient scaling in real runs",
        "",
        f"Written by `{command}`.",
        "Numbers have two digits and differ between machines; they do not depend on the commit unless training does.",
        "",
        f"Rules: {'; '.join(map(str, rules))}. Each cell has the median over optimizer steps, and 5 % and 95 % in",
        "brackets. `nv` is the normalized variance, uncapped; `factor` what a rule makes of it. `least` is the share",
        "of steps in which the factor is as small as floor and cap allow, and answers to nothing. `time` is the",
        "correlation time of the factor in optimizer steps; 0 means that it never changed.",
        "",
        shipped(runs, VarianceGradientScaler([torch.nn.Parameter(torch.zeros(1))]).settings),
    ]
    for run in runs:
        lines.extend(describe(run, rules))
    lines.extend(compare_batch_sizes(runs))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run every environment and size of minibatch, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vgs_defaults", description=__doc__.splitlines()[0])
    parser.add_argument("--envs", nargs="+", default=["CartPole-v1", "Pendulum-v1"])
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[64, 128, 512])
    parser.add_argument("--steps", type=int, default=20_000, help="environment steps of each run")
    parser.add_argument("--lstm", type=int, default=32, help="width of the LSTM and of the layer behind it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--floor", type=float, default=0.1)
    parser.add_argument("--caps", nargs="+", type=float, default=[50.0, 100.0], help="one set of columns for each")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rules = [Factor(arguments.alpha, arguments.floor, cap) for cap in arguments.caps]
    sizes = sorted(arguments.batch_sizes)
    runs = [record(env_id, size, arguments) for env_id in arguments.envs for size in sizes]
    command = shlex.join(["python", "-m", "benchmarks.vgs_defaults", *sys.argv[1:]])
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(report(runs, rules, command), encoding="utf-8")


if __name__ == "__main__":
    main()
