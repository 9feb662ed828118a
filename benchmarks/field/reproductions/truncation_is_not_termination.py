import gymnasium as gym
from stable_baselines3 import DQN


class Short(gym.Wrapper):
    def __init__(self, terminates):
        super().__init__(gym.make("CartPole-v1"))
        self.terminates, self.count = terminates, 0

    def step(self, action):
        seen, reward, _, _, info = super().step(action)
        self.count += 1
        ends = self.count % 5 == 0
        return seen, reward, ends and self.terminates, ends and not self.terminates, info


settings = {"replay_buffer_kwargs": {"handle_timeout_termination": False}, "learning_starts": 32, "seed": 0}
cut, ended = (DQN("MlpPolicy", Short(each), **settings).learn(64) for each in (False, True))
print("same parameters:", all(map(lambda a, b: a.equal(b), cut.policy.parameters(), ended.policy.parameters())))
