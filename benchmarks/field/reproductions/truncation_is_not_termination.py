import numpy as np
from gymnasium.spaces import Box, Discrete
from stable_baselines3.common.buffers import ReplayBuffer

buffer = ReplayBuffer(4, Box(-1, 1, (1,)), Discrete(2), handle_timeout_termination=False)
seen, number = np.zeros((1, 1)), np.zeros(1)
buffer.add(seen, seen, number, number, np.array([True]), [{"TimeLimit.truncated": True}])
print("the episode counts as going on:", not buffer.sample(1).dones.all())
