"""Whose a part of a state is."""

from __future__ import annotations

import collections
import importlib
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

from rlverify.checks.state.owners import YOURS, Owner, owner_of


class Env(gym.Env[Any, Any]):
    def __init__(self) -> None:
        self.place = [0.0, 1.0]


class Model:
    def __init__(self) -> None:
        self.env = gym.Wrapper(Env())
        self.net = torch.nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters())


class Base(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)


PARTS = {
    "env.env.place[1]": Owner(YOURS, "Model"),
    "net.weight": Owner(YOURS, "Model"),
    "added": Owner(YOURS, "Model"),
    "global random generators": Owner("python", ""),
}


@pytest.mark.parametrize(("path", "owner"), PARTS.items())
def test_the_owner_of_a_part_of_yours(path: str, owner: Owner) -> None:
    model = Model()
    model.added = 3  # type: ignore[attr-defined]
    assert owner_of(model, path) == owner


OF_LIBRARIES = {
    "weight": Owner("torch", "Linear"),
    "bias": Owner("torch", "Linear"),
}


@pytest.mark.parametrize(("path", "owner"), OF_LIBRARIES.items())
def test_the_owner_of_a_part_of_a_library(path: str, owner: Owner) -> None:
    assert owner_of(torch.nn.Linear(2, 2), path) == owner


@pytest.mark.parametrize(
    ("folder", "owner"), [("site-packages", "elsewhere"), ("dist-packages", "elsewhere"), ("src", YOURS)]
)
def test_a_library_of_another_environment_is_no_code_of_yours(
    folder: str, owner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "elsewhere.py").write_text("class Part:\n    def __init__(self):\n        self.count = 0\n")
    monkeypatch.syspath_prepend(tmp_path / folder)
    monkeypatch.delitem(sys.modules, "elsewhere", raising=False)
    made = importlib.import_module("elsewhere").Part()
    assert owner_of(made, "count") == Owner(owner, "Part")


def test_what_a_base_class_names_is_the_base_classs() -> None:
    assert owner_of(gym.Wrapper(Env()), "env").library == "gymnasium"
    assert owner_of(gym.Wrapper(Env()), "env.place[1]") == Owner(YOURS, "Env")
    assert owner_of(Base(), "training").library == "torch"
    assert owner_of(collections.OrderedDict(a=1), "['a']") == Owner("python", "")
