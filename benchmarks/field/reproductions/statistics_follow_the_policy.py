from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

envs = [VecNormalize(make_vec_env("Pendulum-v1", seed=0)) for _ in range(2)]
a, b = (PPO("MlpPolicy", env, n_steps=64, seed=0).learn(n) for env, n in zip(envs, (1024, 64), strict=True))
b.set_parameters(a.get_parameters())
print(a.get_env().obs_rms.var.round(2), b.get_env().obs_rms.var.round(2))
