from copy import deepcopy

from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

copy = deepcopy(VecNormalize(make_vec_env("Pendulum-v1")))
print(copy.venv)
