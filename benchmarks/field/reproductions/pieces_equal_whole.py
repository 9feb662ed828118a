from stable_baselines3 import PPO
from stable_baselines3.common.utils import LinearSchedule

rate = LinearSchedule(1e-3, 1e-4, 1)
whole, pieces = (PPO("MlpPolicy", "CartPole-v1", rate, n_steps=64, seed=0).learn(steps) for steps in (128, 64))
pieces.learn(64, reset_num_timesteps=False)
print("same parameters:", all(map(lambda a, b: a.equal(b), whole.policy.parameters(), pieces.policy.parameters())))
