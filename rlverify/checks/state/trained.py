"""Finds the modules and optimizers of torch that can be reached from a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from rlverify.checks.state.leaves import function_name, is_tensor
from rlverify.checks.state.parts import is_module, is_optimizer
from rlverify.checks.state.tree import reached


def found_modules(model: Any) -> list[Any]:
    """The modules of torch that can be reached; modules inside of others are left out."""
    found = [each for _, each in _outer_modules(model)]
    inside = {id(part) for module in found for part in list(module.modules())[1:]}
    return [each for each in found if id(each) not in inside]


def found_optimizers(model: Any) -> list[Any]:
    """All optimizers of torch."""
    return [each for _, each, leaf in reached(model) if leaf is None and is_optimizer(each)]


def named_optimizers(model: Any, optimizers: Sequence[Any]) -> dict[str, Any]:
    """Optimizers by where they are in the model, such as ``policy.optimizer``; by number if they are not reached."""
    wanted = {id(each) for each in optimizers}
    places = ((id(each), path or "the model") for path, each, _ in reached(model) if id(each) in wanted)
    found = dict(islice(places, len(wanted)))
    return {found.get(id(each), number): each for number, each in numbered_optimizers(optimizers).items()}


def numbered_optimizers(optimizers: Sequence[Any]) -> dict[str, Any]:
    """Optimizers by number, such as ``optimizers[0]``."""
    return {f"optimizers[{number}]": each for number, each in enumerate(optimizers)}


def groups_of(named: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The groups of optimizers by place, such as ``optimizers[0].param_groups[1]``."""
    return {
        f"{name}.param_groups[{number}]": group
        for name, optimizer in named.items()
        for number, group in enumerate(optimizer.param_groups)
    }


def before_each_step(named: Mapping[str, Any], action: Callable[[str, Any], object]) -> None:
    """Let optimizers call an action with their name and themselves before each of their steps."""
    for name, optimizer in named.items():

        def hook(own: Any, _args: Any, _kwargs: Any, name: str = name) -> None:
            action(name, own)

        optimizer.register_step_pre_hook(hook)


def reachable_tensors(root: Any) -> set[int]:
    """The identities of all tensors that can be reached without going through an optimizer."""
    return {id(each) for _, each, leaf in reached(root, is_optimizer) if leaf and leaf.mutable and is_tensor(each)}


def place_of(model: Any, module: Any) -> str:
    """Return where a model has a module, such as ``policy.critic_target``; its class if it is not reached."""
    return next((path for path, each, _ in reached(model) if each is module), type(module).__name__)


def _outer_modules(model: Any) -> list[tuple[str, Any]]:
    return [(path, each) for path, each, leaf in reached(model, is_module) if leaf is None and is_module(each)]


def named_parameters(modules: Sequence[Any], model: Any = None) -> dict[str, Any]:
    """The trainable parameters of modules by name, each once.

    :param model: what the modules are named by: the attributes through which it reaches them
    """
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for prefix, module in zip(_prefixes(modules, model), modules, strict=True):
        for name, parameter in module.named_parameters():
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                found[prefix + name] = parameter
    return found


def _prefixes(modules: Sequence[Any], model: Any) -> list[str]:
    """What the names in each module begin with."""
    if len(modules) == 1:
        return [""]
    paths = {} if model is None else {id(each): path for path, each in _outer_modules(model)}
    kinds = [f"{type(each).__name__}[{number}]" for number, each in enumerate(modules)]
    return [f"{paths.get(id(each)) or kind}." for each, kind in zip(modules, kinds, strict=True)]


def flags(modules: Sequence[Any], model: Any) -> dict[str, str]:
    """What modules do beside their tensors: which parameters are trained, their modes, and the names of their hooks."""
    found: dict[str, str] = {}
    for prefix, module in zip(_prefixes(modules, model), modules, strict=True):
        owners = {**dict(module.named_modules()), **dict(module.named_parameters())}
        for name, owner in owners.items():
            hooks = [
                each for key, own in vars(owner).items() if key.endswith("_hooks") and own for each in own.values()
            ]
            place = (prefix + name).rstrip(".")
            if hasattr(owner, "training"):
                found[f"{place}.training".lstrip(".")] = str(owner.training)
            else:
                found[f"{place}.requires_grad"] = str(owner.requires_grad)
                hooks += list((owner._backward_hooks or {}).values())
            found[f"{place}.hooks".lstrip(".")] = ", ".join(map(function_name, hooks)) or "none"
    return found
