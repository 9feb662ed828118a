"""TorchRL 0.14.1: a new ``DQNTrainer`` cannot load what a trained one saved, and what is saved is a pickle."""

import tempfile
from pathlib import Path

import torch
from torchrl.checkpoint import Checkpoint
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs.libs.gym import GymEnv
from torchrl.modules import MLP, QValueActor
from torchrl.objectives import DQNLoss
from torchrl.objectives.utils import HardUpdate
from torchrl.trainers.algorithms import DQNTrainer


def make(folder):
    env = GymEnv("CartPole-v1", categorical_action_encoding=False)
    actor = QValueActor(MLP(in_features=4, out_features=2), in_keys=["observation"], spec=env.action_spec)
    loss = DQNLoss(actor, delay_value=True, action_space=env.action_spec)
    return DQNTrainer(
        collector=Collector(env, actor, frames_per_batch=16, total_frames=64),
        total_frames=64,
        frame_skip=1,
        optim_steps_per_batch=2,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters()),
        replay_buffer=TensorDictReplayBuffer(storage=LazyTensorStorage(1000), batch_size=8),
        target_net_updater=HardUpdate(loss, value_network_update_interval=3),
        checkpoint=Checkpoint(),
        save_trainer_file=folder / "trainer",
        progress_bar=False,
        enable_logging=False,
    )


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    make(folder).train()
    print("pickles:", sorted(each.name for each in folder.rglob("*.pkl")))
    try:
        make(folder).load_from_file(folder / "trainer")
    except RuntimeError as error:
        print("load_from_file() raises", type(error).__name__, str(error).splitlines()[-1].strip())
