"""How many kernels an action launches, and how often it makes the CPU wait for the device."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile

from benchmarks.cuda import optimizers, scaler, training
from benchmarks.cuda.plan import Plan
from benchmarks.cuda.timing import Action, Budget, Record, wait


def measure(plan: Plan, device: torch.device, budget: Budget) -> list[Record]:
    """One record for each action; without counts where the budget was over before it."""
    shapes, sizes = plan.tensors[plan.counted], plan.training
    actions = {f"{name}, a step": action for name, action in optimizers.steps(shapes, device).items()}
    ends = scaler.ends_of_updates(shapes, device)
    actions |= {f"end of an update, scaling {name}": action for name, action in ends.items()}
    batch_size = 2 * sizes.envs
    train = training.training(sizes.envs, 2, sizes.lstm, batch_size, device)
    actions[f"train() with one minibatch of {batch_size}"] = train
    return [{"title": name, **({} if budget.is_over() else count(action, device))} for name, action in actions.items()]


def count(action: Action, device: torch.device) -> Record:
    """Count in one call each, after one that warms up.

    :return: ``operators`` that Python asked torch for, ``kernels`` and ``copies`` (memory sets too) that the device
        ran, ``waits`` of the CPU for the device. On the CPU the last three are 0.
    """
    action()
    waits = count_waits(action) if device.type == "cuda" else 0
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities) as profiler:
        action()
        wait(device)
    return {**count_events(profiler.events() or []), "waits": waits}


def count_events(events: Iterable[Any]) -> Record:
    """Sort the events of a profile into operators, kernels and copies."""
    counts = {"operators": 0, "kernels": 0, "copies": 0}
    for event in events:
        if event.device_type == DeviceType.CPU:
            parent = event.cpu_parent
            inner = parent is not None and parent.name.startswith("aten::")
            counts["operators"] += event.name.startswith("aten::") and not inner
        elif not event.is_user_annotation:
            counts["copies" if event.name.startswith(("Memcpy", "Memset")) else "kernels"] += 1
    return counts


def count_waits(action: Action) -> int:
    """Operations that torch knows to wait for a CUDA device; it does not know all of them."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            action()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("called a synchronizing" in str(each.message) for each in seen)
