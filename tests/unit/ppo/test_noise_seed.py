"""Which seed the noise of a model's optimizer has: that of the file, unless the caller asks for another one."""

from __future__ import annotations

import io
from typing import Any

from rlcore import DistributionalPPO
from tests.support.training import make_envs, make_model


def seeds(model: DistributionalPPO) -> set[int]:
    return {group["seed"] for group in model.policy.optimizer.param_groups}


def loaded(model: DistributionalPPO, **settings: Any) -> DistributionalPPO:
    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    return DistributionalPPO.load(file, env=make_envs(), device="cpu", **settings)


def trained(**settings: Any) -> DistributionalPPO:
    return make_model(**settings).learn(48)


def test_a_load_keeps_the_seed_of_the_file_unless_another_one_is_asked_for() -> None:
    model, own = trained(), trained(optimizer_kwargs={"seed": 5})
    assert seeds(loaded(model)) == seeds(loaded(model, gamma=0.5)) == seeds(model)
    assert seeds(own) == seeds(loaded(own, seed=123)) == {5}
    assert seeds(loaded(own, optimizer_kwargs={"seed": 7})) == seeds(loaded(model, optimizer_kwargs={"seed": 7})) == {7}


def test_another_seed_of_the_model_gives_other_noise_and_always_the_same() -> None:
    model = trained()
    one, other, again = (loaded(model, seed=seed) for seed in (123, 124, 123))
    assert seeds(one) == seeds(again)
    assert len(seeds(one) | seeds(other) | seeds(model)) == 3
