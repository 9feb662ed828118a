"""skrl 2.1.1: what ``save()`` of an agent leaves out, and two calls of ``train()`` instead of one."""

import tempfile
from pathlib import Path

import gymnasium as gym
import torch
from skrl.agents.torch.dqn import DQN
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer


class Network(DeterministicMixin, Model):
    def __init__(self, env):
        Model.__init__(self, observation_space=env.observation_space, action_space=env.action_space, device="cpu")
        DeterministicMixin.__init__(self)
        self.net = torch.nn.Linear(4, 2)

    def compute(self, inputs, role=""):  # noqa: ARG002
        return self.net(inputs["observations"]), {}


def make(steps):
    env = wrap_env(gym.make("CartPole-v1"), verbose=False)
    agent = DQN(
        models={"q_network": Network(env), "target_q_network": Network(env)},
        memory=RandomMemory(memory_size=200, num_envs=1, device="cpu"),
        observation_space=env.observation_space,
        action_space=env.action_space,
        device="cpu",
        cfg={
            "batch_size": 8,
            "learning_starts": 16,
            "learning_rate_scheduler": torch.optim.lr_scheduler.StepLR,
            "learning_rate_scheduler_kwargs": {"step_size": 5},
            "experiment": {"write_interval": 0, "checkpoint_interval": 0},
        },
    )
    cfg = {"timesteps": steps, "headless": True, "disable_progressbar": True, "close_environment_at_exit": False}
    return SequentialTrainer(env=env, agents=agent, cfg=cfg)


whole = make(48)
whole.train()
print("updates in 48 steps:", whole.agents._update_counter)
pieces = make(24)
pieces.train()
pieces.train()
print("in two times 24 steps:", pieces.agents._update_counter)

with tempfile.TemporaryDirectory() as folder:
    path = str(Path(folder) / "agent.pt")
    whole.agents.save(path)
    loaded = make(48)
    loaded.agents.load(path)
print("samples in the memory:", len(whole.agents.memory), "after the load:", len(loaded.agents.memory))
print("count of updates:", whole.agents._update_counter, "after the load:", loaded.agents._update_counter)
print("steps of the schedule:", whole.agents.scheduler.last_epoch, "after:", loaded.agents.scheduler.last_epoch)
