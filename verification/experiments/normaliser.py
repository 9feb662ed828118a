"""What an exploit costs that takes the policy and leaves the statistics of VecNormalize behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from rlcore import DistributionalPPO
from rlverify import experiment
from verification.experiments.episodes import Listener, Normalise, first_episodes
from verification.experiments.training import trained
from verification.probes.make import Make

UPDATES: Final = 12
SOURCE: Final[Mapping[str, Any]] = {"learning_rate": 2e-3, "return_scale": "zero_lag"}
MEMBER: Final[Mapping[str, Any]] = {"learning_rate": 5e-4, "return_scale": "zero_lag"}
N_ENVS: Final = 64
EPISODES: Final = 2


@experiment("normaliser-left-behind")
def normaliser_left_behind(make: Make, seed: int) -> Mapping[str, float]:
    """The policy of a source behind its own statistics and behind those of the member that took it over.

    Of the first two episodes, before anything is learnt from them. Where the source's statistics act, those of the
    member listen: what they make of the same observations is told apart from what they lead to when they act.
    """
    source = trained(make, 2 * seed, UPDATES, wrapper=normalised, **SOURCE)
    member = trained(make, 2 * seed + 1, UPDATES, wrapper=normalised, **MEMBER)
    return compared(make, seed, source, statistics_of(source), statistics_of(member))


def compared(
    make: Make, seed: int, source: DistributionalPPO, taken: Normalise, kept: Normalise
) -> Mapping[str, float]:
    """What is lost where ``kept`` stands in front of the source's policy and not ``taken``, in %."""
    together = [Listener(source, taken), Listener(source, kept)]
    right = first_episodes(make.envs(seed, n_envs=N_ENVS), together, EPISODES, seed)
    wrong = first_episodes(make.envs(seed, n_envs=N_ENVS), together[1:], EPISODES, seed)
    loss = right.value_loss(0)
    return {
        "decisions changed": 100.0 * right.share_of_decisions_that_differ(),
        "return lost": 100.0 * (1.0 - wrong.mean_return / right.mean_return),
        "value loss gained": 100.0 * (wrong.value_loss(0) / loss - 1.0),
        "value loss gained on the same observations": 100.0 * (right.value_loss(1) / loss - 1.0),
    }


def normalised(envs: VecEnv) -> VecNormalize:
    """Observations alone, so that both members' rewards mean the same."""
    return VecNormalize(envs, norm_reward=False)


def statistics_of(model: DistributionalPPO) -> Normalise:
    """What the normaliser of that model does to observations, with what it has collected up to now."""
    normalizer = model.get_vec_normalize_env()
    assert normalizer is not None
    return normalizer.normalize_obs
