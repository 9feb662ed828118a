"""The adapter of TorchRL on a small training of DQN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("torchrl.trainers.algorithms")  # whose imports warn

from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs.libs.gym import GymEnv
from torchrl.modules import MLP, QValueActor
from torchrl.objectives import DQNLoss
from torchrl.objectives.utils import HardUpdate
from torchrl.trainers.algorithms import DQNTrainer

from rlverify.checks import Status
from rlverify.checks.adapters.torchrl import TorchRLAdapter
from tests.engine.libraries.findings import all_decided, checked, failed, loses

FRAMES = 10**6


def dqn_of_the_documentation() -> DQNTrainer:
    env = GymEnv("CartPole-v1", categorical_action_encoding=False)
    env.set_seed(0)
    network = MLP(in_features=4, out_features=2, num_cells=[16])
    actor = QValueActor(network, in_keys=["observation"], spec=env.action_spec)
    loss = DQNLoss(actor, delay_value=True, action_space=env.action_spec)
    return DQNTrainer(
        collector=Collector(env, actor, frames_per_batch=16, total_frames=FRAMES),
        total_frames=FRAMES,
        frame_skip=1,
        optim_steps_per_batch=2,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters(), lr=1e-3),
        replay_buffer=TensorDictReplayBuffer(storage=LazyTensorStorage(1000), batch_size=8),
        target_net_updater=HardUpdate(loss, value_network_update_interval=3),
        progress_bar=False,
        enable_logging=False,
    )


def dqn() -> DQNTrainer:
    trainer = dqn_of_the_documentation()
    trainer.loss_module.make_value_estimator()
    return trainer


class ForgetsOptimizer(TorchRLAdapter):
    def load(self, folder: Path, fresh: Any) -> Any:
        model = super().load(folder, fresh)
        model.optimizer.state.clear()
        return model


class ForgetsTarget(TorchRLAdapter):
    def load(self, folder: Path, fresh: Any) -> Any:
        model = super().load(folder, fresh)
        for tensor in self.target_modules(model)[0].state_dict().values():
            if isinstance(tensor, torch.Tensor):
                tensor.zero_()
        return model


FAILED = {
    "nan_observation_is_reported",
    "resume_is_exact",
    "save_load_save_is_a_fixed_point",
    "artefact_needs_no_unpickling",
    "artefact_runs_nothing_when_read",
}


def test_every_check_of_dqn_is_decided() -> None:
    assert failed(all_decided(dqn).values()) == FAILED


def test_a_new_trainer_of_the_documentation_cannot_load() -> None:
    record = checked(dqn_of_the_documentation, "load_returns_a_model")
    assert record.status is Status.FAIL
    assert "_value_estimator.gamma" in record.finding.seen


def test_a_forgotten_optimizer_is_found() -> None:
    assert not loses(checked(dqn, "resume_is_exact"), "optimizer.state")
    assert loses(checked(dqn, "resume_is_exact", ForgetsOptimizer()), "optimizer")


def test_a_forgotten_target_network_is_found() -> None:
    assert not loses(checked(dqn, "resume_is_exact"), "target_value")
    assert loses(checked(dqn, "resume_is_exact", ForgetsTarget()), "target_value")
