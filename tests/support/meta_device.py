"""Training on the device ``meta``, which has shapes and no numbers, so that every read of one by the CPU shows."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rlcore import DistributionalPPO

META = torch.device("meta")


class Crossings(TorchDispatchMode):
    """Counts ``reads`` of numbers on the device, for each of which the CPU waits, and tensors ``sent`` there.

    What is read is 1. An operator whose shape needs a number, like ``nonzero``, raises on that device.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads = self.sent = 0

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, options = operator.overloadpacket.__name__, kwargs or {}
        if name == "_local_scalar_dense" and args[0].is_meta:
            self.reads += 1
            return 1
        if name == "_to_copy" and options.get("device", args[0].device) != args[0].device:
            self.reads += args[0].is_meta
            self.sent += not args[0].is_meta
            if args[0].is_meta:
                return torch.ones(args[0].shape, dtype=args[0].dtype)
        return operator(*args, **options)


def move_to_meta(model: DistributionalPPO) -> None:
    """Leave nothing of a model on the CPU but its rollout."""
    model.device = model.rollout_buffer.device = META
    model.policy.to(META)
    model.rebuild_optimizer()


def crossings_of_a_minibatch(model: DistributionalPPO) -> tuple[int, int]:
    """How many reads and sent tensors an update of two minibatches has more than one of one.

    :param model: with a collected rollout
    """
    move_to_meta(model)
    counts = []
    for minibatches in (1, 1, 2):  # the first update begins without averages
        model.batch_size = model.n_steps * model.n_envs // minibatches
        with Crossings() as crossings:
            model.train()
        counts.append((crossings.reads, crossings.sent))
    return counts[2][0] - counts[1][0], counts[2][1] - counts[1][1]
