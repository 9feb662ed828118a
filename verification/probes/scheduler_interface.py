"""The scheduler's interfaces, used as the documents do."""

from __future__ import annotations

import io
import tempfile
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from rlcore import DistributionalPPO, PBTScheduler, apply_exploit, load_checkpoint
from rlcore.checkpoint.formats import FORMAT_V2
from rlverify import Observation, probe
from verification.probes.cited import cited_text
from verification.probes.make import Make, equal

ROLLOUT = 96


@probe("exploits-return-three-values")
def exploits_return_three_values(make: Make, seed: int) -> Sequence[Observation]:
    """Run the old call and both corrected calls as written, on a scheduler with a member to copy."""
    calls: dict[str, tuple[Callable[[PBTScheduler], object], str]] = {
        "exploit_and_explore() unpacked into two names": (_two, "ValueError: too many values to unpack (expected 2)"),
        "exploit_and_explore() unpacked into three names": (_three, "unpacked"),
        "exploit_and_explore() with its third value ignored": (_ignored, "unpacked"),
    }
    observations = []
    for name, (call, expected) in calls.items():
        with tempfile.TemporaryDirectory() as folder:
            found = _outcome(call, _scheduler(make, seed, folder))
        observations.append(equal(name, expected, found))
    return observations


@probe("a-reported-member-has-its-statistics")
def a_reported_member_has_its_statistics(make: Make, seed: int) -> Sequence[Observation]:
    """Report a member as document 001's configuration recommends, and as it advises against."""
    model = make.model(seed)
    model.learn(ROLLOUT)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings: Any = _configured()
        scheduler = make.scheduler(seed, **settings, checkpoint_dir=folder)
        member, other, *_ = scheduler.initialize_population()
        scheduler.update_performance(member, 1.0, 10, model_parameters=model.get_parameters())
        scheduler.update_performance(other, 1.0, 10, model_state_dict=model.policy.state_dict())
        whole, bare = (load_checkpoint(str(each.checkpoint_path)) for each in (member, other))
    state: Any = whole.data.get("vgs_state")
    steps = "none" if state is None else str(state["step_count"])
    expected = str(_scaler(model).step_count)
    return [
        equal("file format with model_parameters=", FORMAT_V2, whole.format_version),
        equal("scaler's step_count in a file with model_parameters=", expected, steps),
        Observation(
            "parts in a file with model_state_dict=",
            "policy",
            ", ".join(map(str, bare.data)),
            list(bare.data) == ["policy"],
        ),
    ]


@probe("scaler-state-goes-every-way")
def scaler_state_goes_every_way(make: Make, seed: int) -> Sequence[Observation]:
    """Transfer the scaler's state by file, by an exploit and by hand. Check the names in get_parameters()."""
    source = make.model(seed)
    source.learn(ROLLOUT)
    parameters = source.get_parameters()
    exploited = make.model(seed + 1)
    apply_exploit(exploited, parameters, {})
    ways = {"model.save() and load()": _loaded(make, source, seed), "an exploit": exploited}
    steps = _scaler(source).step_count
    named = [name for name in ("vgs_state", "kl_penalty_state") if name in parameters]
    by_hand = make.model(seed + 2)
    _scaler(by_hand).load_state_dict(_scaler(source).state_dict())
    return [
        equal("vgs_state and kl_penalty_state in get_parameters()", 2, len(named)),
        *(_number(f"scaler's step_count after {way}", steps, _scaler(model).step_count) for way, model in ways.items()),
        _number("scaler's step_count after a transfer by hand", steps, _scaler(by_hand).step_count),
    ]


@probe("scaler-state-round-trip")
def scaler_state_round_trip(make: Make, seed: int) -> Sequence[Observation]:
    """Load one scaler's state into another and compare. Then reset it and check that it is empty."""
    source, target = (make.model(each, vgs_alpha=1.0) for each in (seed, seed + 1))
    source.learn(ROLLOUT)
    one, other = _scaler(source), _scaler(target)
    other.load_state_dict(one.state_dict())
    factor, same = one.get_scaling_factor(), other.get_scaling_factor() == one.get_scaling_factor()
    averages = other.grad_norm_ema == one.grad_norm_ema
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other.reset_statistics()
    fresh = other.step_count == 0 and other.grad_norm_ema is None and other.get_normalized_variance() == 0.0
    return [
        Observation("source's scaling factor", "below 1", "below 1" if factor < 1 else "1", factor < 1),
        Observation("scaling factor after load_state_dict()", "the source's", _whose(same), same),
        Observation("averages after load_state_dict()", "the source's", _whose(averages), averages),
        Observation("statistics after reset_statistics()", "none", "none" if fresh else "some", fresh),
    ]


def _two(scheduler: PBTScheduler) -> object:
    new_state_dict, new_hyperparams = scheduler.exploit_and_explore(scheduler.population[0])  # type: ignore[misc]
    return new_state_dict, new_hyperparams


def _three(scheduler: PBTScheduler) -> object:
    new_state_dict, new_hyperparams, checkpoint_format = scheduler.exploit_and_explore(scheduler.population[0])
    return new_state_dict, new_hyperparams, checkpoint_format


def _ignored(scheduler: PBTScheduler) -> object:
    new_state_dict, new_hyperparams, _ = scheduler.exploit_and_explore(scheduler.population[0])
    return new_state_dict, new_hyperparams


def _outcome(call: Callable[[PBTScheduler], object], scheduler: PBTScheduler) -> str:
    try:
        call(scheduler)
    except ValueError as error:
        # Later versions of Python add how many there were.
        return f"ValueError: {str(error).partition(', got')[0].rstrip(')')})"
    return "unpacked"


def _scheduler(make: Make, seed: int, folder: str) -> PBTScheduler:
    scheduler = make.scheduler(seed, population_size=2, checkpoint_dir=folder)
    for member in scheduler.initialize_population():
        policy = {"weight": torch.ones(1)}
        parameters = {"policy": policy, "policy.optimizer": {"state": {}, "param_groups": []}}
        scheduler.update_performance(member, float(member.member_id), 5, model_parameters=parameters)
    return scheduler


def _configured() -> dict[str, int]:
    """The two numbers in document 001's population configuration."""
    lines = [line.partition("#")[0] for line in cited_text("001:415-416").splitlines()]
    return {name: int(value) for name, _, value in (line.partition(": ") for line in lines)}


def _loaded(make: Make, model: DistributionalPPO, seed: int) -> DistributionalPPO:
    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    return type(model).load(file, env=make.envs(seed), device="cpu")


def _number(symptom: str, expected: int, found: int) -> Observation:
    return equal(symptom, expected, found)


def _scaler(model: DistributionalPPO) -> Any:
    return model.variance_gradient_scaler


def _whose(same: bool) -> str:
    return "the source's" if same else "different"
