"""What Stable-Baselines3's own save() and load() do, which the documents reason about."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Sequence
from typing import Any

import torch
from stable_baselines3 import PPO

from rlcore import VarianceGradientScaler
from rlverify import Observation, probe
from verification.probes.make import Make, equal

STEPS = 3


class Stock(PPO):
    """Stable-Baselines3's PPO with a scaler as an attribute, which is in no list of saved parts.

    :ivar calls: the methods that saving and loading called, on any instance
    """

    calls: list[str]

    def get_parameters(self) -> dict[str, Any]:
        type(self).calls.append("get_parameters")
        return super().get_parameters()

    def set_parameters(self, *arguments: Any, **options: Any) -> None:
        type(self).calls.append("set_parameters")
        super().set_parameters(*arguments, **options)

    def __getstate__(self) -> dict[str, Any]:
        type(self).calls.append("__getstate__")
        return self.__dict__


@probe("sb3-keeps-what-get-parameters-does-not-name")
def sb3_keeps_what_get_parameters_does_not_name(make: Make, seed: int) -> Sequence[Observation]:
    """Save and load a stock model whose scaler is in no list of saved parts. Check whether it is lost."""
    model = _stock(make, seed)
    named = "scaler" in model.get_parameters()
    steps = _step_count(_loaded(_saved(model)))
    lost = steps is None or steps == 0
    return [
        Observation(
            "Stable-Baselines3's get_parameters() contains the scaler", "no", "yes" if named else "no", holds=not named
        ),
        Observation(
            "step_count after Stable-Baselines3's load()",
            "lost",
            "lost" if lost else f"{steps} of {STEPS} kept",
            holds=lost,
        ),
    ]


@probe("sb3-saves-through-get-parameters")
def sb3_saves_through_get_parameters(make: Make, seed: int) -> Sequence[Observation]:
    """Record which methods of a model save() and load() call."""
    model = _stock(make, seed)
    Stock.calls = []
    file = _saved(model)
    saving, Stock.calls = Stock.calls, []
    _loaded(file)
    loading = Stock.calls
    return [
        _called("save() calls get_parameters()", "get_parameters", saving, expected=True),
        _called("load() calls set_parameters()", "set_parameters", loading, expected=True),
        _called("save() calls __getstate__() of the model", "__getstate__", saving, expected=False),
    ]


@probe("sb3-an-empty-pytorch-variables-file-tells-of-a-loss")
def sb3_an_empty_pytorch_variables_file_tells_of_a_loss(make: Make, seed: int) -> Sequence[Observation]:
    """Check whether pytorch_variables.pth is empty, and whether the scaler is lost."""
    file = _saved(_stock(make, seed))
    with zipfile.ZipFile(file) as archive, archive.open("pytorch_variables.pth") as member:
        variables = torch.load(io.BytesIO(member.read()), weights_only=True)
    lost = _step_count(_loaded(file)) != STEPS
    return [
        equal("entries in pytorch_variables.pth", 0, len(variables)),
        Observation(
            "statistics after load(), pytorch_variables.pth empty", "lost", "lost" if lost else "restored", holds=lost
        ),
    ]


@probe("sb3-reads-parameters-of-the-fixed-version")
def sb3_reads_parameters_of_the_fixed_version(make: Make, seed: int) -> Sequence[Observation]:
    """Pass parameters of the fixed version to a model of the version before the fix."""
    model = _stock(make, seed)
    parameters = {**model.get_parameters(), "vgs_state": model.scaler.state_dict()}  # type: ignore[attr-defined]
    try:
        model.set_parameters(parameters)
        outcome = "accepted"
    except ValueError as error:
        outcome = f"ValueError, names {'vgs_state' if 'vgs_state' in str(error) else 'nothing'}"
    return [equal("set_parameters() with vgs_state, version before the fix", "accepted", outcome)]


def _stock(make: Make, seed: int) -> Stock:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = Stock("MlpPolicy", make.envs(seed), n_steps=8, batch_size=24, seed=seed, device="cpu")
    Stock.calls = []
    scaler = make.scaler(model.policy.parameters())
    for _ in range(STEPS):
        for parameter in scaler.parameters:
            parameter.grad = torch.ones_like(parameter)
        scaler.update_statistics()
    model.scaler = scaler  # type: ignore[attr-defined]
    return model


def _saved(model: Stock) -> io.BytesIO:
    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    return file


def _loaded(file: io.BytesIO) -> Stock:
    file.seek(0)
    return Stock.load(file, device="cpu")


def _step_count(model: Stock) -> int | None:
    scaler = getattr(model, "scaler", None)
    return scaler.step_count if isinstance(scaler, VarianceGradientScaler) else None


def _called(symptom: str, method: str, calls: Sequence[str], *, expected: bool) -> Observation:
    words = ("no", "yes")
    return Observation(symptom, words[expected], words[method in calls], holds=(method in calls) == expected)
