"""A model on one device is saved, and goes on training on another."""

from __future__ import annotations

import io

import pytest
import torch

from rlcore import DistributionalPPO
from tests.support.training import make_envs, make_model, tensors_in

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.cuda,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ],
    ),
]


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
