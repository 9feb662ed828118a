"""States that are out of range or not finite, and setting changes that lose state."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from rlcore import ResumeWarning, StateError, set_hyperparameters
from rlverify import Observation, probe
from verification.probes.make import Make, equal


@probe("statistics-stay-in-the-range-of-a-narrower-precision")
def statistics_stay_in_the_range_of_a_narrower_precision(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Measure huge gradients in float64, continue in float32, and load the resulting state."""
    wide, narrow = nn.Parameter(torch.ones(2, dtype=torch.float64)), nn.Parameter(torch.ones(2))
    scaler = make.scaler([wide], estimator="element")
    for size in (1e30, 2e30):
        wide.grad = torch.tensor([size, -size], dtype=torch.float64)
        scaler.scale_gradients()
        scaler.step()
    scaler.update_parameters([narrow])
    for _ in range(3):
        narrow.grad = torch.ones(2)
        scaler.scale_gradients()
        scaler.step()
    state = scaler.state_dict()
    kept: Any = state["estimator_state"]
    finite = sum(int(each.isfinite().sum()) for name in ("means", "variances") for each in kept[name])
    try:
        make.scaler([narrow], estimator="element").load_state_dict(state)
    except StateError:
        loaded = "refused"
    else:
        loaded = "accepted"
    return [
        Observation("finite means and variances of two elements", "4/4", f"{finite}/4", holds=finite == 4),
        equal("loading the scaler's own state", "accepted", loaded),
    ]


@probe("weights-that-are-not-finite-are-refused")
def weights_that_are_not_finite_are_refused(make: Make, seed: int) -> Sequence[Observation]:
    """Pass parameters with one NaN weight to a model."""
    source, target = make.model(seed), make.model(seed + 1)
    given, before = source.get_parameters(), [each.detach().clone() for each in target.policy.parameters()]
    name = next(iter(given["policy"]))
    given["policy"][name].view(-1)[0] = float("nan")
    try:
        target.set_parameters(given)
    except StateError as error:
        found = "refused, error names the tensor" if name in str(error) else "refused"
    else:
        found = "accepted"
    wanted = "refused, error names the tensor"
    kept = sum(torch.equal(old, new) for old, new in zip(before, target.policy.parameters(), strict=True))
    total = len(before)
    return [
        equal("set_parameters() with a NaN weight", wanted, found),
        Observation(
            "parameters unchanged after the refusal", f"{total}/{total}", f"{kept}/{total}", holds=kept == total
        ),
    ]


@probe("a-change-that-warns-changes-nothing-where-warnings-are-errors")
def a_change_that_warns_changes_nothing_where_warnings_are_errors(make: Make, seed: int) -> Sequence[Observation]:
    """Change an option that needs other moments, and the learning rate, while warnings are errors."""
    model = make.model(seed, optimizer_class="adam", learning_rate=1e-3)
    model.learn(96)
    raised = False
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResumeWarning)
        try:
            set_hyperparameters(model, {"amsgrad": True, "learning_rate": 1e-2})
        except ResumeWarning:
            raised = True
    rates = {group["lr"] for group in model.policy.optimizer.param_groups}
    moments = len(model.policy.optimizer.state)
    total = sum(1 for _ in model.policy.parameters())
    return [
        Observation(
            "setting change that warns, warnings as errors", "raises", "raises" if raised else "returns", raised
        ),
        Observation(
            "learning_rate after the error", "0.001", f"{model.learning_rate:g}", holds=model.learning_rate == 1e-3
        ),
        Observation(
            "learning rate in the optimizer after the error",
            "0.001",
            ", ".join(f"{each:g}" for each in rates),
            holds=rates == {1e-3},
        ),
        Observation(
            "parameters with moments after the error", f"{total}/{total}", f"{moments}/{total}", holds=moments == total
        ),
    ]
