"""What saving, loading and relinking do to variance gradient scaling."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence

import torch
from torch import nn

from rlcore import DistributionalPPO, VarianceGradientScaler
from rlverify import Observation, probe
from verification.probes.make import Make, equal

ALPHA = 1.0
"""Strong scaling, so that the factor is far from 1 and a loss of statistics shows."""


@probe("scaler-scales-what-trains-after-load")
def scaler_scales_what_trains_after_load(make: Make, seed: int) -> Sequence[Observation]:
    """Train, save and load. Check whose gradients the scaler scales."""
    model = _trained(make, seed)
    loaded = _saved_and_loaded(make, model, seed)
    pickled: DistributionalPPO = pickle.loads(pickle.dumps(model))  # noqa: S301  # our own object
    return [
        _identity("parameters shared by scaler and policy after load()", loaded),
        _identity("parameters shared by scaler and policy after unpickling", pickled),
        _equal_values("parameters of equal value in scaler and policy after load()", loaded),
        _scaled_gradients("gradients that scale_gradients() changes after load()", loaded),
    ]


@probe("scaler-statistics-survive-save-and-load")
def scaler_statistics_survive_save_and_load(make: Make, seed: int) -> Sequence[Observation]:
    """Train, then compare the statistics with those after load(), after set_parameters() and after a relink."""
    model = _trained(make, seed)
    loaded = _saved_and_loaded(make, model, seed)
    observations = [
        *_statistics("after load()", model, loaded),
        _identity("parameters shared by scaler and policy after load()", loaded),
    ]
    other = make.model(seed + 1, vgs_alpha=ALPHA)
    other.set_parameters(model.get_parameters(), exact_match=False)
    observations += _statistics("after set_parameters()", model, other)
    loaded.rebuild_optimizer()
    return [*observations, *_statistics("after load() and rebuild_optimizer()", model, loaded)]


@probe("scaler-scales-what-trains-after-rebuilding-the-optimizer")
def scaler_scales_what_trains_after_rebuilding(make: Make, seed: int) -> Sequence[Observation]:
    """Rebuild the optimizer over the same parameters and train on; then replace a module and rebuild it again.

    The second case is transfer learning, where the actor gets a new output layer.
    """
    model = _trained(make, seed, steps=96)
    kept = list(model.policy.parameters())
    model.rebuild_optimizer()
    anew = sum(old is not new for old, new in zip(kept, model.policy.parameters(), strict=True))
    observations = [
        equal("parameters created by rebuilding the optimizer", 0, anew),
        *_scaling("rebuilding the optimizer", model),
        _training_goes_on("training after rebuilding the optimizer", model),
    ]
    old: nn.Linear = model.policy.action_net  # type: ignore[assignment]
    model.policy.action_net = nn.Linear(old.in_features, old.out_features)
    model.rebuild_optimizer()
    return [*observations, *_scaling("replacing a module", model)]


def _scaling(event: str, model: DistributionalPPO) -> list[Observation]:
    return [
        _identity(f"parameters shared by scaler and policy after {event}", model),
        _scaled_gradients(f"gradients that scale_gradients() changes after {event}", model),
    ]


def _training_goes_on(symptom: str, model: DistributionalPPO) -> Observation:
    try:
        model.learn(96, reset_num_timesteps=False)
    except AttributeError as error:
        return Observation(symptom, "completes", f"AttributeError: {error}", holds=False)
    return Observation(symptom, "completes", "completes", holds=True)


def _trained(make: Make, seed: int, steps: int = 384) -> DistributionalPPO:
    model = make.model(seed, vgs_alpha=ALPHA)
    model.learn(steps)
    return model


def _saved_and_loaded(make: Make, model: DistributionalPPO, seed: int) -> DistributionalPPO:
    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    return type(model).load(file, env=make.envs(seed), device="cpu")


def _scaler(model: DistributionalPPO) -> VarianceGradientScaler:
    scaler = model.variance_gradient_scaler
    assert scaler is not None, "the model under test was made with variance gradient scaling"
    return scaler


def _identity(symptom: str, model: DistributionalPPO) -> Observation:
    linked = {id(parameter) for parameter in _scaler(model).parameters}
    policy = [id(parameter) for parameter in model.policy.parameters()]
    shared, total = sum(key in linked for key in policy), len(policy)
    return Observation(symptom, f"{total}/{total}", f"{shared}/{total}", holds=shared == total)


def _equal_values(symptom: str, model: DistributionalPPO) -> Observation:
    """What a test that compares values would check. It also holds for copies."""
    pairs = list(zip(_scaler(model).parameters, model.policy.parameters(), strict=True))
    equal = sum(torch.equal(mine, trained) for mine, trained in pairs)
    return Observation(symptom, f"{len(pairs)}/{len(pairs)}", f"{equal}/{len(pairs)}", holds=equal == len(pairs))


def _scaled_gradients(symptom: str, model: DistributionalPPO) -> Observation:
    parameters = list(model.policy.parameters())
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    factor = _scaler(model).scale_gradients()
    changed = sum(parameter.grad is not None and not bool((parameter.grad == 1.0).any()) for parameter in parameters)
    holds = factor < 1.0 and changed == len(parameters)
    return Observation(symptom, f"{len(parameters)}/{len(parameters)}", f"{changed}/{len(parameters)}", holds)


def _statistics(moment: str, before: DistributionalPPO, after: DistributionalPPO) -> list[Observation]:
    old, new = _scaler(before), _scaler(after)
    observations = [
        Observation(f"step_count {moment}", str(old.step_count), str(new.step_count), old.step_count == new.step_count)
    ]
    for name in ("grad_mean_ema", "grad_var_ema", "grad_norm_ema"):
        observations.append(_number(f"{name} {moment}", getattr(old, name), getattr(new, name)))
    observations.append(
        _number(f"normalized variance {moment}", old.get_normalized_variance(), new.get_normalized_variance())
    )
    observations.append(_number(f"scaling factor {moment}", old.get_scaling_factor(), new.get_scaling_factor()))
    return observations


def _number(symptom: str, before: float | None, after: float | None) -> Observation:
    return Observation(symptom, _short(before), _short(after), holds=before is not None and before == after)


def _short(value: float | None) -> str:
    """Two digits, which are the same on every machine."""
    return "None" if value is None else f"{value:.2g}"
