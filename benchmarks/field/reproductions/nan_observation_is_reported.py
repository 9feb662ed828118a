from gymnasium import make
from gymnasium.wrappers import TransformObservation
from stable_baselines3 import DQN

env = make("CartPole-v1")
model = DQN("MlpPolicy", TransformObservation(env, lambda seen: seen * float("nan"), None), learning_starts=8).learn(64)
print("finite:", all(each.isfinite().all() for each in model.policy.parameters()))
