"""Optimizers by name, and how one is built."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from rlcore.checkpoint.codec import register_class
from rlcore.errors import SettingError
from rlcore.optim.upgd import UPGD, AdaptiveUPGD

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adaptive_upgd": AdaptiveUPGD,
    "upgd": UPGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "rmsprop": torch.optim.RMSprop,
}

for _optimizer in (UPGD, AdaptiveUPGD):
    register_class(f"rlcore.{_optimizer.__name__}", _optimizer)


def find_optimizer(optimizer_class: object) -> type[torch.optim.Optimizer]:
    """
    :param optimizer_class: a name from ``OPTIMIZERS`` or an optimizer class
    :raises SettingError: for anything else
    """
    if isinstance(optimizer_class, str) and optimizer_class in OPTIMIZERS:
        return OPTIMIZERS[optimizer_class]
    if isinstance(optimizer_class, type) and issubclass(optimizer_class, torch.optim.Optimizer):
        return optimizer_class
    raise SettingError(
        "optimizer_class",
        f"optimizer_class={optimizer_class!r} names no optimizer, so nothing could train; "
        f"give one of {', '.join(sorted(OPTIMIZERS))} or a torch.optim.Optimizer class",
    )


def default_learning_rate(optimizer_class: type[torch.optim.Optimizer]) -> float:
    """What trains where no rate is given: 3e-4, and 2e-3 with AdaptiveUPGD.

    AdaptiveUPGD's gate lets about half of every step through, and what it protects less than that; its default is the
    rate that ``benchmarks/learning.py`` was found to learn best with.
    """
    return 2e-3 if issubclass(optimizer_class, AdaptiveUPGD) else 3e-4


def names_learning_rate(given: Mapping[str, Any]) -> bool:
    """Whether ``optimizer_kwargs`` among the settings has ``lr``; what is no mapping is refused elsewhere."""
    options = given.get("optimizer_kwargs")
    return isinstance(options, Mapping) and "lr" in options


def optimizer_options(optimizer_class: type[torch.optim.Optimizer]) -> dict[str, Any]:
    """The settings that an optimizer takes, each with its default, ``params`` left out."""
    parameters = inspect.signature(optimizer_class).parameters.values()
    return {p.name: p.default for p in parameters if p.name != "params" and p.kind is not p.VAR_KEYWORD}


def make_optimizer(
    optimizer_class: type[torch.optim.Optimizer], groups: list[dict[str, Any]], options: Mapping[str, Any]
) -> torch.optim.Optimizer:
    """Build an optimizer over the groups that hold parameters."""
    filled = [group for group in groups if group["params"]]
    try:
        return optimizer_class(filled, lr=filled[0]["lr"], **options)  # type: ignore[call-arg]
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, SettingError):
            raise
        raise SettingError(
            "optimizer_kwargs",
            f"{optimizer_class.__name__} cannot be built with optimizer_kwargs={dict(options)!r}: {error}",
        ) from error
