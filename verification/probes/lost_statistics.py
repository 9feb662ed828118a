"""Warnings and errors when gradient statistics are lost, damaged or replaced."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn

from rlcore import DistributionalPPO, NonFiniteGradientError, ResumeWarning, StateError, apply_exploit
from rlverify import Observation, probe
from verification.probes.make import Make, equal
from verification.probes.models import scaler_of

ROLLOUT = 24


@probe("a-loss-of-statistics-is-told")
def a_loss_of_statistics_is_told(make: Make, seed: int) -> Sequence[Observation]:
    """Lose the statistics in every possible way. Count the warnings."""
    parameters = _trained(make, seed).get_parameters()
    policy = {key: parameters[key] for key in ("policy", "policy.optimizer")}
    file = _file(_trained(make, seed))

    def reload(**settings: Any) -> None:
        file.seek(0)
        DistributionalPPO.load(file, env=make.envs(seed), device="cpu", **settings)

    ways: dict[str, Callable[[], object]] = {
        "set_parameters() without statistics": lambda: _trained(make, seed).set_parameters(policy),
        "an exploit without statistics": lambda: apply_exploit(_trained(make, seed), policy, {}),
        "load() without scaling": lambda: reload(variance_gradient_scaling=False),
        "load() with another estimator": lambda: reload(vgs_estimator="total"),
        "reset_statistics()": lambda: scaler_of(_trained(make, seed)).reset_statistics(),
        "update_parameters() with other parameters": lambda: scaler_of(_trained(make, seed)).update_parameters(
            _others()
        ),
    }
    return [_told(f"warnings of lost statistics, {way}", lose) for way, lose in ways.items()]


@probe("what-is-restored-is-checked")
def what_is_restored_is_checked(make: Make, seed: int) -> Sequence[Observation]:
    """Restore statistics with one error each. They must be refused."""
    parameters = _trained(make, seed).get_parameters()
    right = parameters["vgs_state"]
    wrong = {
        "a negative count": {**right, "step_count": -1},
        "an unknown version": {**right, "version": 0},
        "a NaN average": {**right, "grad_norm_ema": float("nan")},
        "too few tensors": {**right, "shapes": right["shapes"][:-1]},
        "a missing field": {name: value for name, value in right.items() if name != "mean"},
    }
    observations = []
    for name, state in wrong.items():
        model = _trained(make, seed + 1)
        outcome = "accepted"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResumeWarning)
                model.set_parameters({**parameters, "vgs_state": state})
        except StateError:
            outcome = "refused"
        observations.append(equal(f"statistics with {name}", "refused", outcome))
    return observations


@probe("only-the-first-loss-of-statistics-is-told")
def only_the_first_loss_of_statistics_is_told(make: Make, seed: int) -> Sequence[Observation]:
    """Let three members lose their statistics in one loop, under Python's default warning filters."""
    parameters = _trained(make, seed).get_parameters()
    policy = {key: parameters[key] for key in ("policy", "policy.optimizer")}
    members = [make.model(seed + number, n_steps=8, batch_size=24, n_epochs=1) for number in range(3)]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for member in members:
            apply_exploit(member, policy, {})
    lost = sum("vgs_state" in str(each.message) for each in told)
    return [equal("warnings for three losses of statistics", 1, lost)]


@probe("what-raises-leaves-no-trace-where-warnings-are-errors")
def what_raises_leaves_no_trace_where_warnings_are_errors(make: Make, seed: int) -> Sequence[Observation]:
    """Exploit parameters without statistics while warnings are errors. Check what changed when it raises."""
    parameters = _trained(make, seed).get_parameters()
    del parameters["vgs_state"]
    target = _trained(make, seed + 1)
    weights = [each.clone() for each in target.policy.parameters()]
    steps, raised = scaler_of(target).step_count, False
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResumeWarning)
        try:
            apply_exploit(target, parameters, {"learning_rate": 1e-3})
        except ResumeWarning:
            raised = True
    kept = sum(torch.equal(old, new) for old, new in zip(weights, target.policy.parameters(), strict=True))
    total, counted = len(weights), scaler_of(target).step_count
    return [
        Observation(
            "exploit that warns, warnings as errors", "raises", "raises" if raised else "returns", holds=raised
        ),
        Observation("parameters unchanged after the error", f"{total}/{total}", f"{kept}/{total}", holds=kept == total),
        equal("step_count after the error", steps, counted),
    ]


@probe("an-older-file-lacks-more-than-the-scalers-state")
def an_older_file_lacks_more_than_the_scalers_state(make: Make, seed: int) -> Sequence[Observation]:
    """Exploit only a policy, with VecNormalize. Compare the values of raw observations with the source's."""
    source, target = (_trained(make, seed + number, normalize=True) for number in range(2))
    policy = {"policy": source.get_parameters()["policy"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)
        apply_exploit(target, policy, {})
    same = bool(torch.equal(_values(source), _values(target)))
    found = "the source's" if same else "different"
    return [Observation("values of raw observations after the exploit", "different", found, holds=not same)]


@probe("an-exploit-names-what-is-not-the-sources")
def an_exploit_names_what_is_not_the_sources(make: Make, seed: int) -> Sequence[Observation]:
    """Exploit only a policy, with VecNormalize. Check which parts the warnings name."""
    source, target = (_trained(make, seed + number, normalize=True) for number in range(2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        apply_exploit(target, {"policy": source.get_parameters()["policy"]}, {})
    told = " ".join(str(each.message) for each in caught if issubclass(each.category, ResumeWarning))
    return [_named(part, told) for part in ("vgs_state", "normalizer_state", "return_scale_state")]


@probe("a-norm-beyond-float32-is-refused")
def a_norm_beyond_float32_is_refused(make: Make, seed: int) -> Sequence[Observation]:
    """Step with finite gradients of 1e30, whose norm exceeds float32, with and without gradient scaling."""
    observations = []
    for name, scaled in (("without scaling", False), ("with scaling", True)):
        model = make.model(seed, variance_gradient_scaling=scaled)
        loss = torch.stack([each.sum() for each in model.policy.parameters()]).sum() * 1e30
        try:
            model._optimize(loss)
        except NonFiniteGradientError:
            outcome = "refused"
        else:
            largest = max(float(each.grad.abs().max()) for each in model.policy.parameters() if each.grad is not None)
            outcome = "made with gradients of 0" if largest == 0.0 else "made"
        symptom = f"optimizer step with gradients of 1e30, {name}"
        observations.append(equal(symptom, "refused", outcome))
    return observations


def _trained(make: Make, seed: int, *, normalize: bool = False) -> DistributionalPPO:
    envs = make.envs(seed)
    model = make.model(seed, VecNormalize(envs) if normalize else envs, n_steps=8, batch_size=24, n_epochs=1)
    model.learn(ROLLOUT)
    return model


def _file(model: DistributionalPPO) -> io.BytesIO:
    file = io.BytesIO()
    model.save(file)
    return file


def _others() -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(7))]


def _told(symptom: str, lose: Callable[[], object]) -> Observation:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lose()
    words = ("vgs_state", "gradient statistics", "Gradient statistics")
    told = sum(
        issubclass(each.category, ResumeWarning) and any(word in str(each.message) for word in words) for each in caught
    )
    return equal(symptom, 1, told)


def _named(part: str, told: str) -> Observation:
    there = part in told
    return Observation(
        f"warning that {part} is not the source's", "given", "given" if there else "missing", holds=there
    )


def _values(model: DistributionalPPO) -> torch.Tensor:
    """A model's values of raw observations, each at the start of an episode."""
    normalizer = model.get_vec_normalize_env()
    assert normalizer is not None, "the model under test was made with VecNormalize"
    raw = torch.linspace(-1.0, 1.0, 32).reshape(8, 4)
    seen = torch.as_tensor(normalizer.normalize_obs(raw.numpy())).float()
    hidden = torch.zeros(1, 8, model.policy.lstm_actor.hidden_size)
    with torch.no_grad():
        return model.policy.predict_values(seen, (hidden, hidden), torch.ones(8))
