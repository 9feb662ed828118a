"""The second environment of the experiments: its rewards, its ends, and its state."""

from __future__ import annotations

import pytest

from verification.experiments.second_environment import LONGEST, Drift, in_drift
from verification.probes.make import Make


def test_the_reward_is_what_is_left_of_the_way_to_an_end() -> None:
    env = Drift()
    env.reset(seed=0)
    seen, reward, ended, _, _ = env.step(1)
    assert reward == pytest.approx(1.0 - abs(seen[0]))
    assert not ended
    env.reset(seed=0)
    ends = [env.step(1)[1:3] for _ in range(60)]
    first = next(step for step, (_, ended) in enumerate(ends) if ended)
    assert all(reward > 0.0 for reward, ended in ends[:first])
    assert ends[first][0] == 0.0


def test_an_episode_that_stays_on_the_line_ends_in_time() -> None:
    envs = in_drift(Make()).envs(0, n_envs=2)
    seen, lengths = envs.reset(), []
    for _ in range(2 * LONGEST):
        seen, _, _, infos = envs.step((seen[:, 0] < 0.0).astype(int))
        lengths += [info["episode"]["l"] for info in infos if "episode" in info]
    assert max(lengths) == LONGEST
