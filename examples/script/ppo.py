"""A training script in the manner of CleanRL: `main` trains, and `script` gives its variables to the checks."""

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from rlverify.checks import Script

NUM_ENVS, NUM_STEPS, SEED = 2, 16, 1


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
        self.critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))


def script():
    torch.manual_seed(SEED)
    envs = gym.make_vec("CartPole-v1", NUM_ENVS, vectorization_mode="sync")
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    next_obs = torch.as_tensor(envs.reset(seed=SEED)[0])
    names = {"agent": agent, "optimizer": optimizer, "envs": envs, "next_obs": next_obs, "global_step": 0}
    return Script(iteration, NUM_STEPS * NUM_ENVS, save=save, load=load, **names)


def iteration(run):
    """The body of `for iteration in range(...)` of the script."""
    obs, actions, logprobs, rewards, dones = [], [], [], [], []
    for _ in range(NUM_STEPS):
        with torch.no_grad():
            policy = Categorical(logits=run.agent.actor(run.next_obs))
            action = policy.sample()
        observation, reward, terminated, truncated, _ = run.envs.step(action.numpy())
        obs.append(run.next_obs)
        actions.append(action)
        logprobs.append(policy.log_prob(action))
        rewards.append(torch.as_tensor(reward, dtype=torch.float32))
        dones.append(torch.as_tensor(np.logical_or(terminated, truncated), dtype=torch.float32))
        run.next_obs = torch.as_tensor(observation)
        run.global_step += NUM_ENVS
    returns, value = [], run.agent.critic(run.next_obs).detach().squeeze(-1)
    for reward, done in zip(reversed(rewards), reversed(dones), strict=True):
        value = reward + 0.99 * value * (1 - done)
        returns.insert(0, value)
    obs, actions, logprobs, returns = map(torch.cat, (obs, actions, logprobs, returns))
    for _ in range(4):
        values = run.agent.critic(obs).squeeze(-1)
        policy = Categorical(logits=run.agent.actor(obs))
        advantages = (returns - values).detach()
        ratio = (policy.log_prob(actions) - logprobs).exp()
        loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
        loss = loss + 0.5 * (returns - values).square().mean() - 0.01 * policy.entropy().mean()
        run.optimizer.zero_grad()
        loss.backward()
        run.optimizer.step()


def save(run, folder):
    torch.save({"agent": run.agent.state_dict(), "optimizer": run.optimizer.state_dict()}, folder / "model.pt")


def load(run, folder):
    saved = torch.load(folder / "model.pt", weights_only=True)
    run.agent.load_state_dict(saved["agent"])
    run.optimizer.load_state_dict(saved["optimizer"])


def main(total_timesteps=100_000):
    run = script()
    while run.global_step < total_timesteps:
        iteration(run)


if __name__ == "__main__":
    main()
