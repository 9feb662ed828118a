"""``DistributionalPPO.train()`` on the device and on the CPU, each again and again on one rollout of its own."""

from __future__ import annotations

import math
from itertools import product
from typing import Any, Final

import torch
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.cuda.plan import Plan
from benchmarks.cuda.timing import Action, Budget, Record, comparison, side_by_side
from rlcore import DistributionalPPO

SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "defaults": {},
    "with variance gradient scaling": {"variance_gradient_scaling": True},
}
DEVICE, CPU = "device", "CPU"


def training(envs: int, steps: int, lstm: int, batch_size: int, device: torch.device, **settings: Any) -> Action:
    """Collect a rollout of ``envs * steps`` steps; return one pass of training over it."""
    model = DistributionalPPO(
        "MlpLstmPolicy",
        make_vec_env("CartPole-v1", n_envs=envs, seed=0),
        n_steps=steps,
        batch_size=batch_size,
        n_epochs=1,
        policy_kwargs={"lstm_hidden_size": lstm},
        seed=0,
        device=device,
        **settings,
    )
    _, callback = model._setup_learn(10**9)
    assert model.env is not None
    model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
    return model.train


def measure(plan: Plan, device: torch.device, budget: Budget) -> list[Record]:
    """One comparison for each size of minibatch and each setting; ``updates`` are the optimizer steps of one call."""
    sizes, rounds = plan.training, plan.training_rounds
    cases = list(product(sizes.steps.items(), SETTINGS.items()))
    records = []
    for number, ((batch_size, steps), (setting, settings)) in enumerate(cases):
        share = budget.share(len(cases) - number)
        seconds: dict[str, list[float]] = {DEVICE: [], CPU: []}
        if not share.is_over():
            places = {DEVICE: device, CPU: torch.device("cpu")}
            trained = {
                name: training(sizes.envs, steps, sizes.lstm, batch_size, place, **settings)
                for name, place in places.items()
            }
            seconds = side_by_side(trained, device, rounds, share)
        updates = math.ceil(sizes.envs * steps / batch_size)
        title = f"minibatches of {batch_size}, {setting}"
        records.append(comparison(title, seconds, {CPU: CPU}, rounds.planned, updates=updates))
    return records
