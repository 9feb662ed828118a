from stable_baselines3 import PPO
from stable_baselines3.common.utils import LinearSchedule

whole, pieces = (PPO("MlpPolicy", "CartPole-v1", LinearSchedule(1e-3, 1e-4, 1), n_steps=64, seed=0) for _ in range(2))
whole.learn(128)
pieces.learn(64).learn(64, reset_num_timesteps=False)
print("same parameters:", all(map(lambda a, b: a.equal(b), whole.policy.parameters(), pieces.policy.parameters())))
