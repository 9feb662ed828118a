"""Whether the weights and optimizer states of a file fit a model, before anything of the model changes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

MAX_NAMED: Final = 5
"""How many mistakes a message names."""

_REQUIRED: Final[Mapping[str, frozenset[str]]] = {
    "Adam": frozenset({"step", "exp_avg", "exp_avg_sq"}),
    "AdamW": frozenset({"step", "exp_avg", "exp_avg_sq"}),
    "RMSprop": frozenset({"step", "square_avg"}),
    "RMSpropTFLike": frozenset({"step", "square_avg"}),
}
_OPTIONAL: Final = frozenset({"max_exp_avg_sq", "momentum_buffer", "grad_avg"})
"""Entries that an optimizer keeps for each parameter, by the name of its class."""


def mistakes_in_names(kind: str, found: Collection[str], expected: Collection[str]) -> Iterator[str]:
    """What is missing, and what is unknown to the model."""
    for name in sorted(set(expected) - set(found)):
        yield f"{kind} {name} is missing"
    for name in sorted(set(found) - set(expected)):
        yield f"{kind} {name!r:.80} is unknown to the model"


def mistakes_in_weights(name: str, found: object, own: Mapping[str, torch.Tensor]) -> Iterator[str]:
    """Why these weights do not fit.

    :param name: of the module
    :param found: its state in the file
    :param own: its state in the model
    """
    if not isinstance(found, Mapping) or not all(isinstance(key, str) for key in found):
        yield f"{name} is no table of weights"
        return
    yield from mistakes_in_names(f"{name}:", found, own)
    for key in sorted(found.keys() & own.keys()):
        yield from mistakes_in_tensor(f"{name}: {key}", found[key], own[key])


def mistakes_in_tensor(name: str, found: object, own: torch.Tensor) -> Iterator[str]:
    """Why a tensor does not fit."""
    tensor: Any = found
    if type(found) not in (type(own), type(own.data)) or tensor.is_nested or tensor.layout != own.layout:
        yield f"{name} is no ordinary tensor"
    elif tensor.device.type != "cpu" or tensor.is_floating_point() != own.is_floating_point():
        yield f"{name} holds {tensor.dtype} on {tensor.device.type}, expected {own.dtype}"
    elif tensor.shape != own.shape:
        yield f"{name} has the shape {tuple(tensor.shape)}, expected {tuple(own.shape)}"


def mistakes_in_optimizer(name: str, found: object, own: torch.optim.Optimizer) -> Iterator[str]:
    """Why the state of an optimizer does not fit.

    :param name: of the optimizer
    :param found: its state in the file
    :param own: the optimizer of the model
    """
    state = found.get("state") if isinstance(found, Mapping) else None
    groups = found.get("param_groups") if isinstance(found, Mapping) else None
    if not isinstance(state, Mapping) or not isinstance(groups, Sequence) or set(found) != {"state", "param_groups"}:  # type: ignore[call-overload]
        yield f"{name} is no state of an optimizer"
        return
    own_groups = own.state_dict()["param_groups"]
    if len(groups) != len(own_groups):
        yield f"{name} has {len(groups)} groups of parameters, expected {len(own_groups)}"
        return
    for number, (group, own_group) in enumerate(zip(groups, own_groups, strict=True)):
        yield from _mistakes_in_group(f"{name}: group {number}", group, own_group)
    parameters = [parameter for group in own.param_groups for parameter in group["params"]]
    for number, entries in state.items():
        yield from _mistakes_in_entries(f"{name}: parameter {number!r:.20}", number, entries, parameters, own)


def _mistakes_in_group(name: str, group: object, own: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(group, Mapping):
        yield f"{name} is no table"
        return
    for key, value in group.items():
        if key not in own:
            yield f"{name}: the setting {key!r:.80} is unknown to the model"
        elif not _is_like(value, own[key]):
            yield f"{name}: the setting {key} is {value!r:.80}, expected something like {own[key]!r:.80}"
    if group.get("params") != own["params"]:
        yield f"{name} is about other parameters than the model's {len(own['params'])}"


def _is_like(value: object, own: object) -> bool:
    """Whether a setting has the type of the model's; switches of torch may be None, true or false."""
    if isinstance(own, tuple | list):
        same_length = isinstance(value, tuple | list) and len(value) == len(own)
        return same_length and all(map(_is_like, value, own))  # type: ignore[call-overload]
    if own is None or isinstance(own, bool):
        return value is None or isinstance(value, bool)
    if isinstance(own, int | float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is type(own)


def _mistakes_in_entries(
    name: str, number: object, entries: object, parameters: Sequence[torch.Tensor], own: torch.optim.Optimizer
) -> Iterator[str]:
    if not isinstance(number, int) or not 0 <= number < len(parameters) or not isinstance(entries, Mapping):
        yield f"{name} is unknown to the model, which has {len(parameters)}"
        return
    required = _REQUIRED.get(type(own).__name__)
    if required is not None:
        yield from mistakes_in_names(f"{name}:", entries, required | (_OPTIONAL & entries.keys()))
    for key, value in entries.items():
        tensor: Any = value
        is_number = isinstance(value, int | float) or (hasattr(value, "numel") and tensor.numel() == 1)
        if not is_number:
            yield from mistakes_in_tensor(f"{name}: {key!r:.40}", value, parameters[number])


def joined(mistakes: Iterator[str]) -> str:
    """The first mistakes in one text; empty if there is none."""
    found = list(mistakes)
    more = f", and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    return ", ".join(found[:MAX_NAMED]) + more
