from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

a, b = (PPO("MlpPolicy", VecNormalize(make_vec_env("Pendulum-v1")), n_steps=64).learn(n) for n in (1024, 64))
b.set_parameters(a.get_parameters())
print(a.get_env().obs_rms.var, b.get_env().obs_rms.var)
