"""Finds the modules and optimizers of torch that can be reached from a model."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

from rlverify.checks.state.tree import children, leaf_of


def found_modules(model: Any) -> list[Any]:
    """The modules of torch nearest to the model; modules inside of them are left out."""
    return _reached(model, sys.modules["torch"].nn.Module) if "torch" in sys.modules else []


def found_optimizers(model: Any) -> list[Any]:
    """All optimizers of torch."""
    return _reached(model, sys.modules["torch"].optim.Optimizer, inside_modules=True) if "torch" in sys.modules else []


def _reached(root: Any, kind: type, *, inside_modules: bool = False) -> list[Any]:
    found: list[Any] = []
    seen: set[int] = set()
    waiting = deque([root])
    while waiting:
        node = waiting.popleft()
        if id(node) in seen or leaf_of(node) is not None:
            continue
        seen.add(id(node))
        if isinstance(node, kind):
            found.append(node)
            if not inside_modules:
                continue
        waiting.extend(children(node).values())
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


def named_parameters(modules: list[Any]) -> dict[str, Any]:
    """The trainable parameters of modules by name, each once."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for number, module in enumerate(modules):
        prefix = "" if len(modules) == 1 else f"{type(module).__name__}[{number}]."
        for name, parameter in module.named_parameters():
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                found[prefix + name] = parameter
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
