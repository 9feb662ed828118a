"""Tianshou 2.0.1: what ``state_dict()`` of an algorithm leaves out, and a schedule whose rates cannot be read again."""

import io
import pickle

import gymnasium as gym
import torch
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory, LRSchedulerFactoryLinear
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net


def make():
    policy = DiscreteQLearningPolicy(model=Net(state_shape=(4,), action_shape=2), action_space=gym.spaces.Discrete(2))
    schedule = LRSchedulerFactoryLinear(max_epochs=10, epoch_num_steps=64, collection_step_num_env_steps=16)
    optim = AdamOptimizerFactory().with_lr_scheduler_factory(schedule)
    return DQN(policy=policy, optim=optim, target_update_freq=100)


algorithm = make()
collector = Collector(algorithm, DummyVectorEnv([lambda: gym.make("CartPole-v1")]), VectorReplayBuffer(100, 1))
params = OffPolicyTrainerParams(
    training_collector=collector,
    max_epochs=1,
    epoch_num_steps=64,
    collection_step_num_env_steps=16,
    show_progress=False,
    verbose=False,
)
algorithm.run_training(params)
saved = algorithm.state_dict()
loaded = make()
loaded.load_state_dict(dict(saved))
print("updates, from which target networks follow: ", algorithm._iter, "after the load:", loaded._iter)
print("steps of the schedule:", algorithm.lr_schedulers[0].last_epoch, "after:", loaded.lr_schedulers[0].last_epoch)

loaded.load_state_dict(saved)
print("load_state_dict() leaves its argument as it was:", "_optimizers" in saved)

file = io.BytesIO()
torch.save(algorithm.state_dict(), file)
file.seek(0)
print("learning rate:", repr(algorithm._optimizers[0]._optim.param_groups[0]["lr"]))
try:
    torch.load(file, weights_only=True)
except pickle.UnpicklingError as error:
    print("torch.load() raises", type(error).__name__)
