"""What updates change: networks with their targets, optimizers, and the entropy coefficient of SAC and TQC."""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.save_util import recursive_getattr

from rlcore.state.optimizer_state import fit_optimizer
from rlcore.state.registry import snapshot
from rlcore.state.schema import read_dict, read_record, read_tensor
from rlcore.types import StateDict


def capture_learnt(model: BaseAlgorithm) -> StateDict:
    """Return ``state_dicts`` by the names of ``model.get_parameters()``, and ``variables`` that are no modules."""
    state_dicts: Any = model.get_parameters()
    variables: Any = _variables(model)
    return {"state_dicts": state_dicts, "variables": variables}


def restore_learnt(model: BaseAlgorithm, state: StateDict) -> None:
    """Put what :func:`capture_learnt` returned into the networks and optimizers of ``model``.

    :raises StateError, ValueError, RuntimeError: ``state`` is of another model
    """
    record = read_record(state, "learnt", ("state_dicts", "variables"))
    variables = _variables(model)
    saved = read_record(record["variables"], "learnt['variables']", variables)
    for name, variable in variables.items():
        read_tensor(saved[name], f"learnt['variables'][{name!r}]", tuple(variable.shape), (variable.dtype,))
    # Copies, because an optimizer would keep the memory of the whole file.
    state_dicts: Any = snapshot(read_dict(record["state_dicts"], "learnt['state_dicts']"))
    for name, state_dict in state_dicts.items():
        _check_optimizer(model, name, state_dict)
    model.set_parameters(state_dicts, exact_match=True, device=model.device)
    for name, variable in variables.items():
        variable.data.copy_(saved[name])


def _check_optimizer(model: BaseAlgorithm, name: str, state: StateDict) -> None:
    """Check a state that is of an optimizer: its steps would fail later for what it takes here."""
    names, _ = model._get_torch_save_params()
    optimizer = recursive_getattr(model, name) if name in names else None
    if not isinstance(optimizer, torch.optim.Optimizer):
        return
    fit_optimizer(state, optimizer, name)


def _variables(model: BaseAlgorithm) -> dict[str, torch.Tensor]:
    _, names = model._get_torch_save_params()
    return {name: recursive_getattr(model, name).detach() for name in names}
