"""Compare a saved tree with a template: names, shapes and kinds are the same, or one StateError names the leaf.

The template is the captured state of an object that was just built. Leaves are named as Python would reach them:
``policy.optimizer['state'][3]['exp_avg']``.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from types import MappingProxyType
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from rlcore.errors import StateError
from rlcore.types import StateDict

LARGEST_COUNT = 2**53
"""Largest counter of a saved state: a float holds every count up to it exactly."""
REMEDY = "it is damaged, or of another version or object. Nothing was changed."


@dataclass(frozen=True)
class Rule:
    """Limits of one leaf, or of each entry of a list, in addition to the form of the template.

    :param least: smallest number, or element of a tensor
    :param most: largest number, or element of a tensor
    :param finite: False allows infinity, and NaN where there are no limits; an element that is infinite in the template
        may be so in any case
    :param whole: a whole number, as a number or as a tensor without dimensions; it is returned in the template's form
    :param optional: None is allowed, in a list for its entries; where the template is None, every number and tensor of
        numbers is, too
    :param may_lack: the dict may lack the entry; the fitted one lacks it as well
    :param any_length: a tensor has any size in its first dimension; a list any length, its entries are fitted to the
        first entry of the template
    :param same: the value is equal to that of the template
    :param free: anything is allowed, as it is checked elsewhere
    """

    least: float = -math.inf
    most: float = math.inf
    finite: bool = True
    whole: bool = False
    optional: bool = False
    may_lack: bool = False
    any_length: bool = False
    same: bool = False
    free: bool = False

    def allows(self, number: float) -> bool:
        """Return whether an int or float lies within the limits."""
        if type(number) is float and not math.isfinite(number) and self.finite:
            return False
        if number != number:
            return (self.least, self.most) == (-math.inf, math.inf)
        return self.least <= number <= self.most and not sys.float_info.max < abs(number) < math.inf

    def __str__(self) -> str:
        if self.most == math.inf:
            return f" of at least {self.least}" if self.least != -math.inf else ""
        return f" from {self.least} to {self.most}"


FINITE = Rule()
COUNT = Rule(0, LARGEST_COUNT)
"""The rule of every int of a template that has no other."""
STEPS = Rule(0, LARGEST_COUNT, whole=True)
NOT_NEGATIVE = Rule(0.0)
FREE = Rule(free=True)
OPTIONAL = Rule(optional=True)
ANY_LENGTH = Rule(any_length=True)
SAME = Rule(same=True)

Rules = Mapping[Any, Rule]


def fit(saved: object, like: object, where: str, rules: Rules = MappingProxyType({})) -> Any:
    """Return ``saved`` in the form of ``like``, without changing it; tensors may share memory with ``saved``.

    A dict has exactly the keys of the template, a list its length, a tensor its shape. Floating point tensors take the
    template's dtype, other tensors have it. A float is finite, an int from 0 to 2^53, unless a rule says otherwise.

    :param like: tree of dicts, lists, tuples, tensors, numbers, bools, texts and None
    :param where: what the tree is, for the error
    :param rules: by the key under which a leaf, a list or a dict is in its dict
    :raises StateError: for the first leaf that does not fit
    """
    return _fit(saved, like, where, rules, None)


def describe(value: object) -> str:
    """Return a short text for a value of a saved state: tensors by dtype and shape, the rest shown and cut."""
    if isinstance(value, Tensor | np.ndarray):
        kind = "a tensor" if isinstance(value, Tensor) else "an array"
        return f"{kind} of {value.dtype} with shape {tuple(value.shape)}"
    if isinstance(value, list | dict):
        return f"a {type(value).__name__} of {len(value)} entries"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def misfit(where: str, wanted: str, found: object) -> StateError:
    """Return the error for a value of the wrong type, shape or range."""
    return StateError(f"{where} must be {wanted}, and is {describe(found)}; {REMEDY}")


def _fit(saved: object, like: object, where: str, rules: Rules, named: Rule | None) -> Any:
    rule = named or (COUNT if type(like) is int else FINITE)
    if rule.free or (rule.optional and saved is None and not isinstance(like, list)):
        return saved
    if isinstance(like, Mapping):
        return _fit_dict(saved, like, where, rules)
    if isinstance(like, list | tuple):
        return _fit_list(saved, like, where, rules, rule if named else None)
    if like is None and rule.optional and not isinstance(saved, dict | list | str):
        like = saved
    if rule.whole:
        fitted: Any = _fit_whole(saved, like, where, rule)
    elif isinstance(like, Tensor):
        fitted = _fit_tensor(saved, like, where, rule)
    elif type(like) in (int, float):
        fitted = _fit_number(saved, type(like), where, rule)
    elif type(saved) is type(like):
        fitted = saved
    else:
        raise misfit(where, _KINDS[type(like)], saved)
    if rule.same and not _equal(fitted, like):
        raise misfit(where, f"the model's, {describe(like)}", saved)
    return fitted


_KINDS: dict[type, str] = {bool: "True or False", str: "a text", type(None): "None"}


def _fit_dict(saved: object, like: Mapping[Any, Any], where: str, rules: Rules) -> dict[Any, Any]:
    if not isinstance(saved, Mapping):
        raise misfit(where, f"a dict with the keys {_few(like)}", saved)
    missing = [key for key in like if key not in saved and not rules.get(key, FINITE).may_lack]
    unknown = [key for key in saved if key not in like]
    if missing or unknown:
        raise StateError(f"{where} does not fit: missing keys {_few(missing)}, unknown keys {_few(unknown)}; {REMEDY}")
    present = {key: entry for key, entry in like.items() if key in saved}
    return {k: _fit(saved[k], entry, f"{where}[{k!r}]", rules, rules.get(k)) for k, entry in present.items()}


def _fit_list(saved: Any, like: list[Any] | tuple[Any, ...], where: str, rules: Rules, named: Rule | None) -> Any:
    any_length = named is not None and named.any_length
    if not isinstance(saved, list | tuple) or not (any_length or len(saved) == len(like)):
        raise misfit(where, "a list" if any_length else f"a list of {len(like)} entries", saved)
    forms = [like[0] if like else entry for entry in saved] if any_length else like
    pairs = enumerate(zip(saved, forms, strict=True))
    return type(like)(_fit(entry, form, f"{where}[{index}]", rules, named) for index, (entry, form) in pairs)


def _fit_tensor(saved: object, like: Tensor, where: str, rule: Rule) -> Tensor:
    first = 1 if rule.any_length else 0
    if (
        not isinstance(saved, Tensor)
        or (saved.dim(), saved.shape[first:]) != (like.dim(), like.shape[first:])
        or not (saved.dtype == like.dtype or (saved.is_floating_point() and like.is_floating_point()))
    ):
        shape = f"(any, {str(tuple(like.shape[1:]))[1:]}" if first else str(tuple(like.shape))
        raise misfit(where, f"a tensor of {like.dtype} with shape {shape}", saved)
    fitted = saved.to(like.dtype)
    smallest, largest = _extremes(fitted)
    below, above = smallest < rule.least, largest > rule.most
    is_good = math.isfinite(smallest) and math.isfinite(largest)
    if not first and not is_good:  # masks may be infinite where the template is; one on meta has no numbers
        expected = ~fitted.isnan() if like.is_meta else fitted == like.to(fitted.device)
        is_good = bool((fitted.isfinite() | expected).all())
    if below or above or (rule.finite and not is_good):
        limit = f"a number below {rule.least:g}" if below else f"a number above {rule.most:g}"
        found = limit if below or above else f"NaN, infinity or a number beyond {like.dtype}"
        raise StateError(f"{where} holds {found}; {REMEDY}")
    return fitted


def _extremes(tensor: Tensor) -> tuple[float, float]:
    """Return the smallest and the largest number, without memory for each; NaN if one is NaN, (0, 0) if empty."""
    return tuple(each.item() for each in tensor.aminmax()) if tensor.numel() else (0, 0)  # type: ignore[return-value]


def _fit_whole(saved: object, like: object, where: str, rule: Rule) -> Any:
    number: Any = (
        saved.item() if isinstance(saved, Tensor) and saved.dim() == 0 and saved.is_floating_point() else saved
    )
    if type(number) not in (int, float) or not rule.allows(number) or number % 1 != 0:
        raise misfit(where, f"a whole number{rule}", saved)
    return torch.tensor(number, dtype=like.dtype) if isinstance(like, Tensor) else type(like)(number)  # type: ignore[call-arg]


def _fit_number(saved: Any, kind: type, where: str, rule: Rule) -> Any:
    if type(saved) not in (int, kind) or not rule.allows(saved):
        what = "an integer" if kind is int else "a finite number" if rule.finite else "a number"
        raise misfit(where, f"{what}{rule}", saved)
    return kind(saved)


def _equal(fitted: object, like: object) -> bool:
    if isinstance(like, Tensor):
        return like.is_meta or (isinstance(fitted, Tensor) and torch.equal(fitted.to(like.device), like))
    return fitted == like


def _few(names: Iterable[object]) -> str:
    shown = sorted(map(str, names))
    return f"{shown[:3]}{' ...' if len(shown) > 3 else ''}"


LATER_OPTIONS = {
    *("adaptive_noise", "noise_beta", "min_noise_std"),
    *("maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"),
}
"""Options of our optimizers and torch's that a state of the same optimizer from before them lacks."""

_RATE = Rule(0.0, torch.finfo(torch.float32).max, may_lack=True)
OF_THE_STATE = {"lr": _RATE, "initial_lr": _RATE, "seed": Rule(0, 2**64 - 1, may_lack=True)}
"""Options that the saved state rules over; all others are the model's settings."""

_COUNTERS = dict.fromkeys(("step", "moment_step", "noise_step"), STEPS)
_SIZES = {
    *("exp_avg_sq", "max_exp_avg_sq", "square_avg", "second_moment", "direction_rms", "row_var", "col_var"),
    *("sum", "acc_delta", "exp_inf", "step_size", "eta"),
}
_UNIT = Rule(0.0, 1.0)
_MOMENTS = {**_COUNTERS, **dict.fromkeys(_SIZES, NOT_NEGATIVE), **dict.fromkeys(("mu", "mu_product"), _UNIT)}
_OPTIONS = {"maximize": Rule(0, 0), **dict.fromkeys(("momentum", "dampening", "alpha"), _UNIT)}


def harmful_option(options: Mapping[str, Any]) -> str | None:
    """Return the first option with which an optimizer would ascend the loss, or that is NaN, infinite or an array."""
    for name, value in options.items():
        values = value if isinstance(value, list | tuple) else [value]
        numbers = [float(each) for each in values if isinstance(each, Real)]
        is_other = name in _OPTIONS and value is not None and len(numbers) < len(values)
        is_finite = all(map(_OPTIONS.get(name, FINITE).allows, numbers))
        if is_other or not is_finite or any(isinstance(each, Tensor | np.ndarray) for each in values):
            return name
    return None


def fit_optimizer(saved: object, optimizer: torch.optim.Optimizer, where: str = "policy.optimizer") -> StateDict:
    """Return a saved state with the options of ``optimizer`` and the rates and the seed of the saved groups.

    Moments are finite and of their parameter's shape, second moments not negative nor below what the first ones ask
    for, counters whole. A parameter without
    moments has not stepped. Of an optimizer that is not known here the constructor's options are the model's, and other
    keys the state's: some optimizers keep in their groups what they measure.

    :raises StateError: for the first leaf that does not fit
    """
    record = fit(saved, {"state": {}, "param_groups": []}, where, {"state": FREE, "param_groups": FREE})
    found, own = record["param_groups"], optimizer.param_groups
    if not isinstance(found, list) or len(found) != len(own):
        raise misfit(f"{where}['param_groups']", f"a list of {len(own)} groups", found)
    groups = [
        _fit_group(group, mine, optimizer, f"{where}['param_groups'][{index}]")
        for index, (group, mine) in enumerate(zip(found, own, strict=True))
    ]
    keys = [key for group in groups for key in group["params"]]
    if len(set(keys)) < len(keys):
        raise StateError(f"{where}['param_groups'] must number every parameter once; {REMEDY}")
    parameters = dict(zip(keys, [each for group in own for each in group["params"]], strict=True))
    return {"state": _fit_moments(record["state"], parameters, optimizer, f"{where}['state']"), "param_groups": groups}


def _fit_group(saved: object, own: dict[str, Any], optimizer: torch.optim.Optimizer, where: str) -> Any:
    is_known, of_constructor = _is_known(optimizer), inspect.signature(type(optimizer)).parameters
    form = {**own, "lr": 0.0, "initial_lr": 0.0, "seed": 0, "params": [0] * len(own["params"]), "param_names": None}
    needed = set(optimizer.defaults) - LATER_OPTIONS if is_known else {"params"}
    rules = {name: Rule(free=True, may_lack=name not in needed) for name in form}
    fitted = fit(saved, form, where, {**rules, **OF_THE_STATE, "params": COUNT})
    ruling = own if is_known else {"name", "param_names", *of_constructor}
    fixed = {name: own[name] for name in own if name in ruling and name not in {*OF_THE_STATE, "params"}}
    return {**own, **fitted, **fixed}


def _fit_moments(saved: Any, parameters: Mapping[Any, Tensor], optimizer: torch.optim.Optimizer, where: str) -> Any:
    if not _is_dict_of_dicts(saved):
        raise misfit(where, "a dict of dicts", saved)
    unknown = [key for key in saved if key not in parameters]
    if unknown:
        raise StateError(f"{where} has moments of parameter {describe(unknown[0])}, which no group names; {REMEDY}")
    stepped = _first_state(optimizer) if any(saved.values()) else None
    if stepped is None:
        return saved
    rules = {**_MOMENTS, "momentum_buffer": Rule(optional=True)} if isinstance(optimizer, torch.optim.SGD) else _MOMENTS
    fitted = {}
    for key, like in zip(parameters, stepped, strict=True):
        entry = saved.get(key)
        if entry:
            idle = {name: _like(name, parameters[key]) for name in entry if name not in like}
            needed = {name: value for name, value in like.items() if name in entry or not _is_ours(optimizer)}
            fitted[key] = fit(entry, {**needed, **idle}, f"{where}[{key}]", rules)
            _require_variance(fitted[key], f"{where}[{key}]")
        elif key in saved:
            fitted[key] = entry
    return fitted


def _require_variance(entry: Mapping[str, Any], where: str) -> None:
    """Raise StateError where the moments of a centered RMSprop give a variance below 0, whose root is NaN."""
    if {"grad_avg", "square_avg"} <= set(entry) and bool(
        (entry["grad_avg"].square() > 1.001 * entry["square_avg"]).any()
    ):
        raise StateError(f"{where}['grad_avg'] is larger than its square_avg allows; {REMEDY}")


def _like(name: str, parameter: Tensor) -> object:
    """Return the form of a moment that the optimizer would not make under its present options."""
    shape = () if name == "direction_rms" else parameter.shape
    return 0 if name in _COUNTERS else torch.zeros(shape, dtype=parameter.dtype)


def missing_moments(
    entries: object, optimizer: torch.optim.Optimizer, options: Mapping[str, Any] = MappingProxyType({})
) -> list[str]:
    """Return the moments that ``optimizer`` needs and some non-empty entry does not have; ours need none.

    :param entries: what is kept of each parameter, by its key; none are missing from anything else
    :param options: of every group, in place of those that it has
    """
    if not _is_dict_of_dicts(entries) or _is_ours(optimizer):
        return []
    needed = {name for entry in _first_state(optimizer, options) or () for name in entry}
    return sorted({name for entry in entries.values() if entry for name in needed - set(entry)})


def _is_dict_of_dicts(entries: object) -> TypeGuard[dict[Any, dict[str, Any]]]:
    return isinstance(entries, dict) and all(isinstance(entry, dict) for entry in entries.values())


def _first_state(
    optimizer: torch.optim.Optimizer, options: Mapping[str, Any] = MappingProxyType({})
) -> list[dict[str, Any]] | None:
    """Return the state of each parameter after a step with gradients of zero; None where unknown."""
    if not _is_known(optimizer):
        return None
    groups = [
        {
            **{name: value for name, value in group.items() if name != "param_names"},
            **options,
            "params": [torch.zeros_like(parameter, requires_grad=True) for parameter in group["params"]],
        }
        for group in optimizer.param_groups
    ]
    parameters = [parameter for group in groups for parameter in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    settings = {
        name: optimizer.defaults[name]
        for name in inspect.signature(type(optimizer)).parameters
        if name in optimizer.defaults
    }
    try:
        twin = type(optimizer)(groups, **settings)
        twin.step()
    except (TypeError, RuntimeError):  # of LBFGS and SparseAdam
        return None
    saved = twin.state_dict()["state"]
    return [saved.get(index, {}) for index in range(len(parameters))]


def _is_ours(optimizer: torch.optim.Optimizer) -> bool:
    return type(optimizer).__module__.startswith("rlcore.")


def _is_known(optimizer: torch.optim.Optimizer) -> bool:
    return _is_ours(optimizer) or type(optimizer).__module__.startswith("torch.optim.")
