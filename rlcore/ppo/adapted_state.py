"""A saved state under the settings of the model that takes it: what rules, what is converted, what starts fresh."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from rlcore.errors import ResumeWarning
from rlcore.optim import upgd_step
from rlcore.optim.gradient_variance import ESTIMATORS
from rlcore.optim.settings import REMOVED_ESTIMATORS
from rlcore.optim.upgd import UPGD
from rlcore.ppo import weights
from rlcore.ppo.construction import ConfiguredPPO
from rlcore.ppo.returns import Moments, fit_state, rescaled
from rlcore.ppo.settings import SCALER, find_optimizer, part_of
from rlcore.state.optimizer_state import fit_optimizer, is_dict_of_dicts, missing_moments
from rlcore.types import StateDict
from rlcore.warn import warn_caller

OPTIMIZER_SETTINGS = {"learning_rate", "critic_lr_multiplier", "optimizer_class", "optimizer_kwargs", "policy_kwargs"}
RAW = Moments(0.0, 1.0)
"""The scale of values in units of the return."""
SCALER_SETTINGS = part_of(SCALER)


def under_settings(
    model: ConfiguredPPO, state: Mapping[str, Any], ruling: Collection[str], saved_optimizer: object
) -> dict[str, Any]:
    """The state with the model's settings in place of its own, as far as they are named in ``ruling``.

    :param saved_optimizer: the ``optimizer_class`` under which ``state`` was saved
    :raises StateError: if a part does not fit
    """
    fitted = dict(state)
    scaler = fitted.get("vgs_state")
    if isinstance(scaler, dict) and scaler.get("estimator") in [*ESTIMATORS, *REMOVED_ESTIMATORS]:
        ruled = {name.removeprefix("vgs_"): getattr(model, name) for name in SCALER_SETTINGS.intersection(ruling)}
        other_estimator = ruled.get("estimator", scaler["estimator"]) != scaler["estimator"]
        fitted["vgs_state"] = None if other_estimator else {**scaler, **ruled}
    penalty = fitted.get("kl_penalty_state")
    if "kl_penalty_coef" in ruling and isinstance(penalty, dict):
        fitted["kl_penalty_state"] = {**penalty, "coefficient": model.kl_penalty_coef}
    if OPTIMIZER_SETTINGS.intersection(ruling) and isinstance(fitted.get("policy.optimizer"), dict):
        fitted["policy.optimizer"] = _refitted_optimizer(model, fitted["policy.optimizer"], saved_optimizer)
    if model.return_scale is None and isinstance(fitted.get("return_scale_state"), dict):
        fitted = _in_raw_units(model, fitted)
    return fitted


def _in_raw_units(model: ConfiguredPPO, state: dict[str, Any]) -> dict[str, Any]:
    """The state without its return scale, whose effect the critics' output layers take over: the same raw values."""
    saved = fit_state(state["return_scale_state"])
    if not isinstance(state.get("policy"), dict):
        return state
    converted = _with_rescaled_critics(model, state, Moments(saved["mean_snapshot"], saved["std_snapshot"]), RAW)
    return {**converted, "return_scale_state": None}


def in_kept_units(model: ConfiguredPPO, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Parameters learnt in raw units, with critics that say the same under the scale that the model keeps."""
    in_raw_units = "return_scale_state" in state and state["return_scale_state"] is None
    if model.return_scale is None or not in_raw_units or not isinstance(state.get("policy"), dict):
        return state
    return _with_rescaled_critics(model, state, RAW, model.value_scale.snapshot)


def _with_rescaled_critics(
    model: ConfiguredPPO, state: Mapping[str, Any], before: Moments, after: Moments
) -> dict[str, Any]:
    """The state with critics that say under ``after`` what its own said under ``before``, and utilities to match.

    Utilities match where errors exceed ``huber_kappa``, as gradients then have one size in any unit. Where they are
    smaller, gradients are in proportion to the unit; the averages of the optimizer forget those of the old one.
    """
    policy = _rescaled_policy(model, state["policy"], before, after)
    saved, optimizer = state.get("policy.optimizer"), model.policy.optimizer
    if not isinstance(optimizer, UPGD) or not isinstance(saved, dict):
        return {**state, "policy": policy}
    fit_optimizer(saved, optimizer)
    outputs = [each for layer in model.policy.value_net.output_layers() for each in layer.parameters()]
    factor = before.std / after.std
    fitted = upgd_step.with_rescaled_utilities(saved, optimizer.param_groups, outputs, factor)
    return {**state, "policy": policy, "policy.optimizer": fitted}


def _rescaled_policy(
    model: ConfiguredPPO, given: StateDict, before: Moments, after: Moments
) -> dict[str, torch.Tensor]:
    """Parameters whose critics say under ``after`` what the given ones said under ``before``."""
    own = model.policy.state_dict()
    weights.check_policy(given, own)
    policy: dict[str, Any] = dict(given)  # type: ignore[arg-type]
    outputs = {id(layer) for layer in model.policy.value_net.output_layers()}
    for layer in (name for name, module in model.policy.named_modules() if id(module) in outputs):
        names = (f"{layer}.weight", f"{layer}.bias")
        weight, bias = rescaled(policy[names[0]], policy[names[1]], before, after)
        policy |= {name: tensor.to(own[name].dtype) for name, tensor in zip(names, (weight, bias), strict=True)}
    return policy


def warn_of_refused_statistics(given: Mapping[str, Any], fitted: Mapping[str, Any]) -> None:
    """Say that the statistics of another estimator were not taken, where nothing else will."""
    if given.get("vgs_state") is not None and fitted.get("vgs_state") is None:
        warn_caller(
            "vgs_state was measured by another vgs_estimator than the model's, so it is not taken; the model keeps the "
            "statistics that it has, which were measured under other weights",
            ResumeWarning,
        )


def _refitted_optimizer(model: ConfiguredPPO, saved: dict[Any, Any], saved_optimizer: object) -> dict[Any, Any]:
    """The saved moments under the model's own options; none where they are another optimizer's or do not suffice."""
    own: dict[Any, Any] = model.policy.optimizer.state_dict()
    other = find_optimizer(model.optimizer_class) is not find_optimizer(saved_optimizer)
    if other or _lacks_moments(saved, model.policy.optimizer):
        warn_caller(
            f"the saved moments{f' of {saved_optimizer!r}' if other else ''} are of no use to "
            f"{model.optimizer_class!r} under its present options: it starts fresh",
            ResumeWarning,
        )
        return {**own, "state": {}}
    fit_optimizer(saved, model.policy.optimizer)
    pairs = zip(saved["param_groups"], own["param_groups"], strict=True)
    ruling = {"lr", "seed"} & {"lr", *model.optimizer_kwargs}
    groups = [{**theirs, **{name: mine[name] for name in ruling}} for theirs, mine in pairs]
    return {**saved, "param_groups": groups}


def _lacks_moments(saved: dict[Any, Any], optimizer: torch.optim.Optimizer) -> bool:
    """Whether an option is on now without which the saved moments were complete."""
    entries = saved.get("state")
    if not is_dict_of_dicts(entries):
        return False
    common = [set(entry) for entry in entries.values() if entry]
    whole = all(names == common[0] for names in common)
    return whole and bool(missing_moments(entries, optimizer))
