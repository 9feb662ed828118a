"""What each confirmed defect does to a real training run: a population with the documented configuration.

    python -m benchmarks.effects run       trains what is not in reports/measured/effects.json yet
    python -m benchmarks.effects report    writes reports/measured/effects.md and verification/effects.toml from it

A run is a population of 2 members with LSTM, twin critics, AdaptiveUPGD, variance gradient scaling and VecNormalize, in
CartPole: 16 updates of 512 steps each, an exploit after 8 updates. After 12 updates the process state is dropped
and the population goes on from its files. The defect is planted in the whole run. Its effect is the change of the mean
episode length that the members report at the end, against the run of the same seed without a defect.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import re
import tempfile
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from scipy.stats import t
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from rlcore import DistributionalPPO, PBTConfig, ResumableEnv
from rlcore.pbt.population import Population
from rlverify.project.content import Project, open_project
from rlverify.project.planting import plant
from rlverify.records.attempts import Crash, attempt
from rlverify.records.claims import Claim, Verdict
from rlverify.running.runner import run_within

SEEDS: Final = (0, 1, 2)
MEMBERS, UPDATES, INTERVAL, RESUMED = 2, 16, 8, 12
LIMIT: Final = 180
"""Seconds that one run may take."""
SHOWN: Final = 100
"""Characters of an error that are kept."""
OWN_ERRORS: Final = ("CheckpointError", "SettingError", "StateError")
OWN_CHECK: Final = " at a check of rlcore, which another system may lack"
FOLDER: Final = Path("reports/measured")
HEALTHY: Final = ""
CHANCE: Final = tuple(f"other-random-numbers-{number}" for number in range(6))
"""Runs without a defect that start from the same weights and draw other random numbers. Their changes are chance."""

SETTINGS: Final[Mapping[str, Any]] = {
    "n_steps": 64,
    "batch_size": 128,
    "n_epochs": 4,
    "learning_rate": 1e-3,
    "optimizer_class": "adaptive_upgd",
    "optimizer_kwargs": {"sigma": 0.001, "adaptive_noise": True, "noise_beta": 0.999, "min_noise_std": 1e-6},
    "variance_gradient_scaling": True,
    "vgs_beta": 0.99,
    "vgs_alpha": 0.1,
    "vgs_warmup_steps": 100,
    "policy_kwargs": {"lstm_hidden_size": 16, "net_arch": [16]},
    "device": "cpu",
}
"""Optimizer and scaler as document 001 configures them; a learning rate with which two of three seeds learn."""


@dataclass(frozen=True)
class Effect:
    """One run with one defect, or with none.

    :param fault: its name; empty for the run without a defect, or one of `CHANCE`
    :param length: mean length of the last episodes over all members; 0 where the run stopped
    :param digest: of all final weights
    :param executions: how often the planted fault ran in this process
    :param error: what stopped the run, in one line
    """

    fault: str
    seed: int
    length: float = 0.0
    digest: str = ""
    executions: int = 0
    error: str = ""


def defects(project: Project) -> dict[str, list[Claim]]:
    """The claims of each fault that is expected to be confirmed as a defect, by name of the fault."""
    found: dict[str, list[Claim]] = {}
    for claim in project.claims:
        is_confirmed = claim.kind in ("defect", "finding") and claim.expected_verdict is Verdict.CONFIRMED
        if claim.fault is not None and is_confirmed:
            found.setdefault(claim.fault, []).append(claim)
    return found


def train(fault: str, seed: int) -> Effect:
    """One run; an error or the time limit is an effect, too."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with ExitStack() as stack:
        is_defect = fault != HEALTHY and fault not in CHANCE
        planted = stack.enter_context(plant(open_project(Path()).fault(fault))) if is_defect else None
        stream = CHANCE.index(fault) if fault in CHANCE else None
        outcome = attempt(lambda: run_within(LIMIT, lambda: _population(seed, stream)))
        executions = planted.executions if planted else 0
    if isinstance(outcome, Crash):
        return Effect(fault, seed, executions=executions, error=in_short(outcome.error))
    return Effect(fault, seed, *outcome, executions)


def in_short(error: BaseException) -> str:
    """Type and message of an error in one line, without folders and without what does not fit."""
    message = re.sub(r"/\S*/", "", " ".join(str(error).split()))
    return textwrap.shorten(f"{type(error).__name__}: {message}", SHOWN, placeholder=" ...")


def _population(seed: int, stream: int | None) -> tuple[float, str]:
    config = PBTConfig(
        population_size=MEMBERS,
        perturbation_interval=INTERVAL,
        hyperparams=[{"name": "learning_rate", "min_value": 1e-4, "max_value": 3e-3, "is_log_scale": True}],
    )
    with tempfile.TemporaryDirectory() as folder:
        first = Population(_model, config, folder=folder, seed=seed)
        if stream is not None:
            for number, model in enumerate(first.models):
                model.set_random_seed(10_000 * (stream + 1) + 100 * seed + number)
        first.train(RESUMED)
        resumed = Population(_model, config, folder=folder, seed=seed)
        resumed.train(UPDATES)
    content = hashlib.sha256()
    lengths: list[float] = []
    for model in resumed.models:
        for each in model.policy.state_dict().values():
            content.update(each.detach().numpy().tobytes())
        lengths += [float(episode["l"]) for episode in list(model.ep_info_buffer or ())[-20:]]
    return round(float(np.mean(lengths)), 2), content.hexdigest()[:16]


def _model(hyperparams: Mapping[str, Any], seed: int) -> DistributionalPPO:
    envs = make_vec_env("CartPole-v1", n_envs=8, seed=seed, wrapper_class=ResumableEnv)
    return DistributionalPPO("MlpLstmPolicy", VecNormalize(envs), seed=seed, **{**SETTINGS, **hyperparams})


def read(path: Path) -> list[Effect]:
    """The runs of a file, none where there is no file."""
    return [Effect(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))] if path.is_file() else []


def write(path: Path, runs: Sequence[Effect]) -> None:
    """Replace the file by ``runs``, one a line."""
    ordered = sorted(runs, key=lambda run: (run.fault, run.seed))
    lines = ",\n".join(json.dumps(asdict(run)) for run in ordered)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def run(path: Path, faults: Sequence[str], processes: int) -> None:
    """Train what the file lacks; each run is in the file as soon as it ends."""
    done = read(path)
    known = {(each.fault, each.seed) for each in done}
    left = [(fault, seed) for fault in (HEALTHY, *CHANCE, *faults) for seed in SEEDS if (fault, seed) not in known]
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=8) as pool:
        for each in pool.imap_unordered(_train, left):
            done.append(each)
            write(path, done)
            print(f"{each.fault or 'no defect':<60} seed {each.seed} {each.length:7.1f} {each.error}", flush=True)


def _train(what: tuple[str, int]) -> Effect:
    return train(*what)


def changes(runs: Sequence[Effect], healthy: Mapping[int, Effect]) -> list[float]:
    """Change of the episode length against the healthy run of the same seed, in percent; without runs that stopped."""
    return [100.0 * (each.length / healthy[each.seed].length - 1.0) for each in runs if not each.error]


def chance(runs: Sequence[Effect]) -> tuple[float, float]:
    """Limits of the mean change, in percent, that other random numbers cause with a probability of 95 %.

    A prediction interval for one more mean: mean -+ t * sd * sqrt(1 + 1 / n) over the n means of `CHANCE`.
    Without runs of at least two of them, there are no limits.
    """
    healthy = {each.seed: each for each in runs if each.fault == HEALTHY}
    found = [[each for each in runs if each.fault == name] for name in CHANCE]
    means = [float(np.mean(changes(own, healthy))) for own in found if own]
    if len(means) < 2:  # one value has no standard deviation
        return -np.inf, np.inf
    half = float(t.ppf(0.975, len(means) - 1) * np.std(means, ddof=1) * np.sqrt(1.0 + 1.0 / len(means)))
    return float(np.mean(means)) - half, float(np.mean(means)) + half


def effect_in_words(
    runs: Sequence[Effect], healthy: Mapping[int, Effect], by_chance: tuple[float, float] = (-np.inf, np.inf)
) -> str:
    """What a defect did to all of its runs.

    :param healthy: the run without a defect, by seed
    :param by_chance: smallest and largest mean change, in percent, that chance explains
    """
    errors = sorted({each.error for each in runs if each.error})
    if len([each for each in runs if each.error]) == len(runs):
        return f"every run stops{OWN_CHECK if errors[0].startswith(OWN_ERRORS) else ''}: {errors[0]}"
    if all(each.executions == 0 for each in runs if not each.error):
        return "none seen: this run does not execute the code"
    if all(each.digest == healthy[each.seed].digest for each in runs):
        return "none seen: the final weights are the same bit for bit"
    found = changes(runs, healthy)
    mean = float(np.mean(found))
    stopped = f"; {sum(bool(each.error) for each in runs)} of {len(runs)} runs stop: {errors[0]}" if errors else ""
    if all(change == 0.0 for change in found):
        return "weights differ, episodes are as long" + stopped
    size = "no more than chance" if by_chance[0] <= mean <= by_chance[1] else "more than chance"
    text = f"episode length {round(mean):+d} % (seeds: {round(min(found)):+d} to {round(max(found)):+d}), {size}"
    return text + stopped


def effects_of_claims(runs: Sequence[Effect], claims: Mapping[str, Sequence[Claim]]) -> dict[str, str]:
    """The effect of each claim's defect in words, by id; without the claims of a defect that has no runs."""
    healthy = {each.seed: each for each in runs if each.fault == HEALTHY and not each.error}
    if missing := sorted(set(SEEDS) - healthy.keys()):
        raise ValueError(f"seed {missing[0]} has no complete run without a defect; remove its entry and run it again")
    found = {fault: [each for each in runs if each.fault == fault] for fault in claims}
    by_chance = chance(runs)
    return {
        claim.id: effect_in_words(found[fault], healthy, by_chance)
        for fault, own in claims.items()
        if found[fault]
        for claim in own
    }


def effects_file(effects: Mapping[str, str]) -> str:
    """What the reports read: TOML with the page that says how effects were measured, and a text for each claim."""
    lines = [
        f"{json.dumps(claim_id)} = {json.dumps(text, ensure_ascii=False)}" for claim_id, text in sorted(effects.items())
    ]
    return "\n".join(['about = "measured/effects.md"', "", "[effects]", *lines, ""])


def report(runs: Sequence[Effect], claims: Mapping[str, Sequence[Claim]]) -> str:
    """The page, from the runs alone."""
    return "\n".join([HEADER, *_rows(runs, claims), ""])


def _rows(runs: Sequence[Effect], claims: Mapping[str, Sequence[Claim]]) -> Iterator[str]:
    healthy = {each.seed: each for each in runs if each.fault == HEALTHY}
    effects = effects_of_claims(runs, claims)
    lengths = [each.length for each in healthy.values()]
    yield f"Without a defect, episodes are {min(lengths):.0f} to {max(lengths):.0f} steps long at the end."
    low, high = chance(runs)
    yield f"Chance alone changes their length by {low:+.0f} to {high:+.0f} %."
    yield ""
    yield "| claim | defect | effect |"
    yield "|---|---|---|"
    for own in claims.values():
        if own[0].id in effects:
            yield f"| {', '.join(each.id for each in own)} | {own[0].title} | {effects[own[0].id]} |"


HEADER: Final = f"""# What each defect does to a training run

Generated by `python -m benchmarks.effects report` from `effects.json`, which `python -m benchmarks.effects run` makes.

A run is a population of {MEMBERS} members with LSTM, twin critics, AdaptiveUPGD, variance gradient scaling and
VecNormalize, in CartPole: {UPDATES} updates of 512 steps, with an exploit after {INTERVAL} updates. After {RESUMED}
updates, the population goes on from its files. Optimizer and scaler have the settings of document 001, and the learning
rate is explored from 1e-4 to 3e-3. The defect is planted in the whole run. The effect is the change of the mean length
of the last 20 episodes of each member, against the run of the same seed without a defect: the mean over
{len(SEEDS)} seeds, and the smallest and the largest change. For comparison, {len(CHANCE)} further runs of each seed
have no defect: they start from the same weights and draw other random numbers. An effect is "no more than chance" if
its mean is within the range that these runs predict for 95 of 100 such means. {len(SEEDS)} seeds cannot show an effect
below about a third. The runs show what a user sees in this setting; they do not show that a defect is harmless
elsewhere. Where a check of this core stops the run, that is not an effect of the defect on learning.
"""


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    path, claims = FOLDER / "effects.json", defects(open_project(Path()))
    if given.what == "run":
        run(path, list(claims), given.processes)
    else:
        runs = read(path)
        (FOLDER / "effects.md").write_text(report(runs, claims), encoding="utf-8")
        Path("verification/effects.toml").write_text(effects_file(effects_of_claims(runs, claims)), encoding="utf-8")


if __name__ == "__main__":
    main()
