"""A model on one device is saved, and goes on training on another; and what a minibatch costs to bring there."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rlcore import DistributionalPPO
from tests.support.training import make_envs, make_model, tensors_in

NEEDS_CUDA = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
DEVICES = ["cpu", pytest.param("cuda", marks=NEEDS_CUDA)]


@pytest.mark.parametrize("later", DEVICES)
@pytest.mark.parametrize("first", DEVICES)
def test_a_model_goes_on_training_where_it_is_loaded(first: str, later: str) -> None:
    model, file = make_model(device=first), io.BytesIO()
    model.learn(96)
    assert {parameter.device.type for parameter in model.policy.parameters()} == {first}
    model.save(file)
    file.seek(0)
    loaded = DistributionalPPO.load(file, env=make_envs(), device=later)
    assert {parameter.device.type for parameter in loaded.policy.parameters()} == {later}
    saved, restored = ([each.cpu() for each in tensors_in(m.get_parameters())] for m in (model, loaded))
    assert len(saved) > 20
    assert all(torch.equal(one, other) for one, other in zip(saved, restored, strict=True))
    loaded.learn(48, reset_num_timesteps=False)
    trained = [each.cpu() for each in tensors_in(loaded.get_parameters())]
    assert any(not torch.equal(one, other) for one, other in zip(saved, trained, strict=True))
    assert all(parameter.isfinite().all() for parameter in loaded.policy.parameters())


class OnMeta(TorchDispatchMode):
    """Counts the operators that give a tensor on the device `meta`."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func(*args, **(kwargs or {}))
        self.count += isinstance(given, torch.Tensor) and given.is_meta
        return given


def test_a_minibatch_of_many_sequences_comes_to_the_device_in_one_copy_a_field() -> None:
    model = make_model()
    model.learn(96)
    buffer = model.rollout_buffer
    on_cpu, buffer.device = buffer.device, torch.device("meta")
    with OnMeta() as meta:
        samples = next(buffer.get(None))
    assert buffer.device.type == "meta" != on_cpu.type
    assert len(buffer.seq_start_indices) > 3
    fields = tree_leaves(samples)
    assert {field.device.type for field in fields} == {"meta"}
    assert meta.count == len(fields) == 12
