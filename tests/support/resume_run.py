"""One training run, whole or in two processes: ``python -m tests.support.resume_run MODEL_FILE ENV_ID RESULT``."""

from __future__ import annotations

import sys
from typing import Any

import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import LinearSchedule

from rlcore import DistributionalPPO
from rlcore.state.training import Scope
from tests.support.space_cases import KEYED
from tests.support.training import make_envs, make_model

N_ENVS = 3
UPDATES = 6
TOTAL = UPDATES * N_ENVS * 16


class Trace(BaseCallback):
    """Records what every step saw, did and earned; stops after ``stop_after`` updates, in the middle of a rollout."""

    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__()
        self.stop_after = stop_after
        self.steps: list[dict[str, Any]] = []
        self.rollouts = 0

    def _on_rollout_start(self) -> None:
        self.rollouts += 1
        self.complete_steps = len(self.steps)

    def _on_step(self) -> bool:
        names = ("new_obs", "actions", "rewards", "dones")
        self.steps.append({name: _as_tensors(self.locals[name]) for name in names})
        return self.stop_after is None or self.rollouts <= self.stop_after or len(self.steps) % 16 != 5


ADAPTIVE: dict[str, Any] = {
    "ent_coef_final": 0.001,
    "ent_coef_boost": 8.0,
    "ent_coef_plateau_explained_variance": 1.0,
    "ent_coef_plateau_patience": 3,
    "kl_penalty_target": 1e-6,
}
"""Entropy and KL penalty so that the counters of the updates before the cut matter after it."""


def _as_tensors(value: Any) -> Any:
    """A copy that torch.save keeps as it is, of an array or a dict of arrays."""
    if isinstance(value, dict):
        return {key: _as_tensors(part) for key, part in value.items()}
    return torch.as_tensor(value).clone()


def build(env_id: str, **settings: Any) -> DistributionalPPO:
    """A model with everything on that exact resume must carry: schedule, scaler, noise, normaliser."""
    return make_model(
        make_envs(env_id, N_ENVS, normalize=True),
        "MultiInputLstmPolicy" if env_id == KEYED else "MlpLstmPolicy",
        learning_rate=LinearSchedule(1e-2, 1e-4, 1.0),
        clip_range=LinearSchedule(0.3, 0.1, 1.0),
        clip_range_vf=0.2,
        ent_coef=0.01,
        critic_lr_multiplier=2.0,
        vgs_estimator="element",
        optimizer_kwargs={"sigma": 0.01, "adaptive_noise": True},
        **settings,
    )


def outcome(model: DistributionalPPO) -> dict[str, Any]:
    """Everything that must be the same, in the bits, however the run was cut."""
    state = model._training_state().capture(*Scope)
    for episode in state["progress_state"]["ep_info_buffer"]:  # type: ignore[index,union-attr]
        del episode["t"]  # type: ignore[union-attr,arg-type]
    return state


def resume(path: str, env_id: str) -> dict[str, Any]:
    """Load in this process and train to the original total."""
    model = DistributionalPPO.load(path, env=make_envs(env_id, N_ENVS, normalize=True, seed=99), device="cpu")
    trace = Trace()
    model.learn(TOTAL - model.num_timesteps, callback=trace, reset_num_timesteps=False)
    return {"state": outcome(model), "trace": trace.steps}


if __name__ == "__main__":
    torch.set_num_threads(1)
    model_file, env_name, result = sys.argv[1:]
    torch.save(resume(model_file, env_name), result)
