"""Finds the modules and optimizers of torch that can be reached from a model."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

from rlverify.checks.state.leaves import function_name
from rlverify.checks.state.tree import children, leaf_of


def found_modules(model: Any) -> list[Any]:
    """The modules of torch that can be reached; modules inside of others are left out."""
    if "torch" not in sys.modules:
        return []
    found = [each for _, each in _reached(model, sys.modules["torch"].nn.Module)]
    inside = {id(part) for module in found for part in list(module.modules())[1:]}
    return [each for each in found if id(each) not in inside]


def found_optimizers(model: Any) -> list[Any]:
    """All optimizers of torch."""
    if "torch" not in sys.modules:
        return []
    return [each for _, each in _reached(model, sys.modules["torch"].optim.Optimizer, inside_modules=True)]


def _reached(root: Any, kind: type, *, inside_modules: bool = False) -> list[tuple[str, Any]]:
    """The objects of a kind with their shortest paths."""
    found: list[tuple[str, Any]] = []
    seen: set[int] = set()
    waiting = deque([("", root)])
    while waiting:
        path, node = waiting.popleft()
        if id(node) in seen or leaf_of(node) is not None:
            continue
        seen.add(id(node))
        if isinstance(node, kind):
            found.append((path.lstrip("."), node))
            if not inside_modules:
                continue
        waiting.extend((path + key, each) for key, each in children(node).items())
    return found


def optimizer_names(model: Any, optimizers: Sequence[Any]) -> list[str]:
    """Where each optimizer is in the model, such as ``policy.optimizer``; its number if it is not reached."""
    wanted = {id(each) for each in optimizers}
    found: dict[int, str] = {}
    seen: set[int] = set()
    waiting = deque([("", model)])
    while waiting and len(found) < len(wanted):
        path, node = waiting.popleft()
        if id(node) in wanted:
            found.setdefault(id(node), path or "the model")
        if id(node) not in seen and leaf_of(node) is None:
            seen.add(id(node))
            waiting.extend((f"{path}{key}".lstrip("."), child) for key, child in children(node).items())
    return [found.get(id(each), f"optimizers[{number}]") for number, each in enumerate(optimizers)]


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
    paths = {} if model is None else {id(each): path for path, each in _reached(model, sys.modules["torch"].nn.Module)}
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


def reachable_tensors(root: Any) -> set[int]:
    """The identities of all tensors that can be reached without going through an optimizer."""
    torch = sys.modules["torch"]
    found: set[int] = set()
    seen: set[int] = set()
    waiting = deque([root])
    while waiting:
        node = waiting.popleft()
        if isinstance(node, torch.Tensor):
            found.add(id(node))
        elif id(node) not in seen and not isinstance(node, torch.optim.Optimizer) and leaf_of(node) is None:
            seen.add(id(node))
            waiting.extend(children(node).values())
    return found
