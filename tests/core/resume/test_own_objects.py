"""What objects of a user's own hold is compared by value, whatever their class is; what torch computes again is not."""

from __future__ import annotations

import itertools
import queue
import random
import warnings
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.distributions import CategoricalDistribution, DiagGaussianDistribution
from stable_baselines3.common.policies import ActorCriticPolicy
from torch.nn.utils import prune

from rlcore.errors import CheckpointError
from rlcore.ppo.adaptive import ReturnScale
from rlcore.resume import continue_learning, load_exact, save_exact
from tests.core.resume.small_models import Counter, Keeps, keeping, net, ruled, sac
from tests.support.environments import make_vec
from tests.support.exact_runs import differences, finished


def demonstrations() -> ReplayBuffer:
    return ReplayBuffer(3, spaces.Discrete(2), spaces.Discrete(2), device="cpu")


def add_one(kept: ReplayBuffer) -> None:
    kept.add(*(np.zeros(1, int),) * 3, np.zeros(1), np.zeros(1), [{}])


def counting() -> Callable[..., None]:
    n = 0

    def hook(*_: Any) -> None:
        nonlocal n
        n += 1

    return hook


def hooked(register: Callable[[torch.nn.Module], Callable[[Any], object]]) -> Callable[[], Any]:
    def make() -> torch.nn.Module:
        layer = torch.nn.Linear(4, 4)
        register(layer)(counting())
        return layer

    return keeping(make, lambda kept: kept(torch.ones(4)).sum().backward())


class Averages(CategoricalDistribution):
    """Keeps a tensor."""

    def __init__(self, action_dim: int) -> None:
        super().__init__(action_dim)
        self.mean = torch.zeros(action_dim)


class AveragingPolicy(ActorCriticPolicy):
    """Has a distribution of its own."""

    def _build(self, lr_schedule: Any) -> None:
        self.action_dist = Averages(2)
        super()._build(lr_schedule)


def averaging() -> PPO:
    return PPO(AveragingPolicy, make_vec(), **net(), n_steps=8, batch_size=4)


class Remembers(torch.nn.Linear):
    """Keeps older weights."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.old = torch.zeros(4, 4)


class Counted(torch.nn.Module):
    """Counts in TorchScript."""

    def __init__(self) -> None:
        super().__init__()
        self.n: int = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n += 1
        return x


def scripted(module: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(module)


KEPT = r"extractor\.kept"


class _Slotted:
    """Has no dict."""

    __slots__ = ("__n",)

    def __init__(self) -> None:
        self.__n = 0

    def __call__(self) -> None:
        self.__n += 1


class OneSlot:
    """Names its only slot in a text."""

    __slots__ = "count"

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


class Listed(list[int]):
    """A list with an attribute."""

    n = 0

    def __call__(self) -> None:
        self.n += 1


def closed() -> Callable[[], None]:
    n = 0

    def count() -> None:
        nonlocal n
        n += 1

    return count


def defaulted() -> Callable[..., None]:
    def count(one: list[int] = [], *, two: list[int] = []) -> None:  # noqa: B006
        (two if one else one).append(1)

    return count


def attributed() -> Any:
    def count() -> None:
        count.n += 1  # type: ignore[attr-defined]

    count.n = 0  # type: ignore[attr-defined]
    return count


OWN: dict[str, tuple[Callable[[], Any], str]] = {
    "a closure": (keeping(closed), f"{KEPT}.n is 1, .* 0"),
    "a bound method": (keeping(lambda: Counter().next), f"{KEPT}.__self__.n is 1, .* 0"),
    "an attribute of a function": (keeping(attributed), f"{KEPT}.n is 1, .* 0"),
    "an attribute of a list": (keeping(Listed), f"{KEPT}.n is 1, .* missing"),
    "a private slot": (keeping(_Slotted), f"{KEPT}._Slotted__n is 1, .* 0"),
    "a slot that is named in a text": (keeping(OneSlot), f"{KEPT}.count is 1, .* 0"),
    "a default": (keeping(defaulted), rf"{KEPT}.defaults\[0\]\[0\] is 1, .* missing"),
    "a default of a keyword": (
        keeping(defaulted, lambda kept: kept([1])),
        rf"{KEPT}.kwdefaults\['two'\]\[0\] is 1, .* missing",
    ),
    "the code of a function": (
        keeping(lambda: lambda: 1, lambda kept: setattr(kept, "__code__", (lambda: 2).__code__)),
        f"{KEPT} is a function .*<lambda>, .* another",
    ),
    "random numbers of Python": (
        keeping(lambda: random.Random(0), lambda kept: kept.random()),
        r"kept.state is '\(3, ",
    ),
    "a bit generator": (keeping(lambda: np.random.PCG64(0), lambda kept: kept.random_raw()), "kept.state is \"{'bit_g"),
    "a generator": (keeping(lambda: (n for n in range(9)), next), f"{KEPT} is a generator, which shows nothing"),
    "an iterator": (keeping(lambda: itertools.cycle([1, 2]), next), f"{KEPT} is a cycle, which shows nothing"),
    "a queue": (keeping(queue.SimpleQueue, lambda kept: kept.put(1)), "kept is a SimpleQueue, which shows nothing"),
    "rows of a buffer": (keeping(demonstrations, add_one), rf"{KEPT}.pos is 1, .* 0"),
    "values of a buffer": (
        keeping(demonstrations, lambda kept: kept.rewards.fill(1)),
        rf"{KEPT}.rewards is a ndarray .* that has changed",
    ),
    "an array of the replay buffer": (
        ruled(lambda model: setattr(model.replay_buffer, "priorities", np.ones(2)), sac),
        "replay_buffer.priorities is a ndarray .* missing",
    ),
    "a tensor of a policy's distribution": (
        ruled(lambda model: model.policy.action_dist.mean.add_(1), averaging),
        "policy.action_dist.mean is a Tensor .* that has changed",
    ),
    "a distribution of torch": (
        keeping(
            lambda: [torch.distributions.Normal(0.0, 1.0)],
            lambda kept: kept.append(torch.distributions.Normal(0.0, kept.pop().scale / 2)),
        ),
        rf"{KEPT}\[0\].scale is a Tensor .* that has changed",
    ),
    "an environment": (
        keeping(lambda: gym.make("CartPole-v1"), lambda kept: kept.reset(seed=0)),
        rf"{KEPT}\.\S+ is .*, and of a model that is loaded it would be",
    ),
    "a scale of returns": (
        keeping(ReturnScale, lambda kept: setattr(kept, "_weight", 1.0)),
        rf"{KEPT}._weight is 1.0, .* 0.0",
    ),
    "a hook of a module that counts": (
        hooked(lambda layer: layer.register_forward_hook),
        rf"{KEPT}._forward_hooks\[0\].n is 1, .* 0",
    ),
    "a hook of a parameter that counts": (
        hooked(lambda layer: layer.weight.register_hook),  # type: ignore[union-attr, return-value]
        rf"{KEPT}.weight._backward_hooks\[0\].n is 1, .* 0",
    ),
    "a hook after a gradient that counts": (
        hooked(lambda layer: layer.weight.register_post_accumulate_grad_hook),  # type: ignore[union-attr, return-value]
        rf"{KEPT}.weight._post_accumulate_grad_hooks\[0\].n is 1, .* 0",
    ),
    "an argument of a partial": (
        keeping(lambda: partial(dict, n=0), lambda kept: kept.keywords.update(n=1)),
        rf"{KEPT}.keywords\['n'\] is 1, .* 0",
    ),
    "an order of keys": (
        keeping(lambda: OrderedDict(a=1, b=2), lambda kept: kept.move_to_end("a")),
        rf"{KEPT}.keys\(\)\[0\] is 'b', .* 'a'",
    ),
    "a tensor that had a graph": (
        keeping(lambda: torch.ones(2, requires_grad=True) * 2, lambda kept: kept.data.add_(1)),
        f"{KEPT} is a Tensor .* that has changed",
    ),
    "a tensor that has become an alias": (
        keeping(Remembers, lambda kept: setattr(kept, "old", kept.weight.detach())),
        f"{KEPT}.old is a Tensor .* that has changed",
    ),
    "numbers of bfloat16": (
        keeping(lambda: torch.zeros((), dtype=torch.bfloat16), lambda kept: kept.add_(1)),
        f"{KEPT} is a Tensor .* that has changed",
    ),
    "a set": (keeping(lambda: {1}, lambda kept: kept.add(2)), rf"{KEPT} is {{1, 2}}, .* {{1}}"),
    "a number in TorchScript": (
        keeping(lambda: scripted(Counted()), lambda kept: kept(torch.ones(4))),
        rf"{KEPT}.n is 1, .* 0",
    ),
}


@pytest.mark.parametrize(("make", "message"), OWN.values(), ids=OWN)
def test_what_own_objects_hold_is_named(make: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        save_exact(make(), tmp_path / "file.zip")


class Through(Keeps):
    """Passes observations through what it keeps."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.kept(observations)  # type: ignore[no-any-return]


class Empty:
    """Has nothing that could change."""


class Mixed(torch.nn.Linear):
    """Keeps what is sound, such as a path that caches its text, a view of its weight, and numbers of bfloat16."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.folder, self.view = Path("folder"), self.weight.detach()
        self.marks = [object(), Empty()]
        self.noise = DiagGaussianDistribution(4)
        self.register_buffer("scales", torch.ones(4, dtype=torch.bfloat16), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x * self.scales.float()) + self.view.mean() * len(str(self.folder))
        return self.noise.proba_distribution(y, torch.zeros(4)).sample()


class OtherName(PPO):
    """Has no parameter ``self``."""

    def __init__(this, *arguments: Any, **settings: Any) -> None:  # noqa: N805
        super().__init__(*arguments, **settings)


def pruned() -> torch.nn.Module:
    return prune.l1_unstructured(torch.nn.Linear(4, 4), "weight", 0.5)  # type: ignore[no-any-return, no-untyped-call]


RECOMPUTED: dict[str, Callable[[], Any]] = {
    "torch.nn.utils.spectral_norm": lambda: torch.nn.utils.spectral_norm(torch.nn.Linear(4, 4)),
    "torch.nn.utils.weight_norm": lambda: torch.nn.utils.weight_norm(torch.nn.Linear(4, 4)),
    "torch.nn.utils.parametrizations": lambda: torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 4)),
    "torch.nn.utils.prune": pruned,
    "TorchScript": lambda: scripted(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))),
    "paths, views, bfloat16 and distributions": Mixed,
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("make", RECOMPUTED.values(), ids=RECOMPUTED)
def test_what_is_computed_again_is_no_obstacle(make: Any, tmp_path: Path) -> None:
    settings = {"features_extractor_class": Through, "features_extractor_kwargs": {"make": make}}
    model = OtherName(
        "MlpPolicy", make_vec(), n_steps=8, batch_size=4, seed=0, policy_kwargs={"net_arch": [4], **settings}
    )
    model.learn(32)
    save_exact(model, tmp_path / "file.zip")
    expected = finished(continue_learning(model, total_timesteps=96))
    objects = {f"policy_kwargs.{name}": each for name, each in settings.items() if name != "features_extractor_kwargs"}
    objects["policy_kwargs.features_extractor_kwargs.make"] = make
    loaded = load_exact(tmp_path / "file.zip", make_vec(), algorithm=OtherName, custom_objects=objects)
    assert differences(finished(continue_learning(loaded, total_timesteps=96)), expected) == []
