"""Each value of a file replaced by a wrong one: the file is refused by one error, or the model that it gives trains."""

from __future__ import annotations

import copy
import io
import random
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from rlcore import CheckpointError, DistributionalPPO, RLCoreError, save_checkpoint
from rlcore.checkpoint.container import load_container, save_container
from tests.support.training import make_envs, make_model

WRONG: dict[str, Any] = {
    "None": None,
    "True": True,
    "minus one": -1,
    "two to the power of 70": 2**70,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "a text": "x",
    "a list": [],
    "a dict": {},
    "a tuple": (1, 2),
    "a tensor of NaN": torch.full((2,), float("nan")),
    "a tensor of integers": torch.arange(6).reshape(2, 3),
}
KINDS = [f"{kind} of {optimizer}" for kind in ("model file", "checkpoint") for optimizer in ("adaptive_upgd", "adam")]
ENDS = 2
"""How many entries at each end of a list are replaced; those between are of the same kind."""
SAMPLE = 60


def trained(optimizer_class: str) -> DistributionalPPO:
    model = make_model(
        make_envs(normalize=True),
        optimizer_class=optimizer_class,
        ent_coef=0.01,
        ent_coef_boost=2.0,
        kl_penalty_target=0.01,
    )
    model.learn(96)
    return model


@cache
def healthy(kind: str) -> bytes:
    file, of = io.BytesIO(), kind.rpartition(" ")[2]
    if kind.startswith("model"):
        trained(of).save(file)
    else:
        save_checkpoint(file, trained(of).get_parameters(), step=96, performance=1.0)
    return file.getvalue()


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, (*path, key))
    elif isinstance(value, list):
        places = range(len(value))
        for place in places if len(value) <= 2 * ENDS else (*places[:ENDS], *places[-ENDS:]):
            yield from leaves(value[place], (*path, place))
    else:
        yield path


def cases() -> list[tuple[str, tuple[Any, ...], str]]:
    found = {kind: list(leaves(content(kind))) for kind in KINDS}
    return [(kind, path, wrong) for kind, paths in found.items() for path in paths for wrong in WRONG]


@cache
def content(kind: str) -> Any:
    """What a healthy file holds; not to be changed."""
    return load_container(io.BytesIO(healthy(kind)))


def replaced(value: Any, path: tuple[Any, ...], wrong: object) -> Any:
    """A copy of ``value`` with another value at ``path``; the rest is shared."""
    if not path:
        return wrong
    changed = copy.copy(value)
    changed[path[0]] = replaced(value[path[0]], path[1:], wrong)
    return changed


def with_wrong_value(kind: str, path: tuple[Any, ...], wrong: str) -> io.BytesIO:
    file = io.BytesIO()
    save_container(file, replaced(content(kind), path, WRONG[wrong]))
    file.seek(0)
    return file


def outcome(case: tuple[str, tuple[Any, ...], str]) -> str:
    """What loading and 64 steps of training give: "refused", "trained", or what was raised in place of that."""
    kind, optimizer = case[0].split(" of ")
    loaded = False
    try:
        file = with_wrong_value(*case)
        if kind == "model file":
            model = DistributionalPPO.load(file, env=make_envs(normalize=True), device="cpu")
        else:
            other = io.BytesIO(healthy(f"model file of {optimizer}"))
            model = DistributionalPPO.load(other, env=make_envs(normalize=True), device="cpu")
            model.set_parameters(file)
        loaded = True
        model.learn(64, reset_num_timesteps=False)
    except RLCoreError as error:
        if not loaded and not isinstance(error, CheckpointError):
            return f"{case}: {error!r}"
        return "refused"
    except Exception as error:  # noqa: BLE001  # any other error is what this looks for
        return f"{case}: {error!r}"
    return "trained"


def one_for_each_place() -> list[tuple[str, tuple[Any, ...], str]]:
    """Of the cases of each place in a file one; every wrong value is that of a twelfth of the places."""
    found, kinds = cases(), list(WRONG)
    return [case for number, case in enumerate(found) if case[2] == kinds[number // len(kinds) % len(kinds)]]


def outcomes(chosen: list[tuple[str, tuple[Any, ...], str]]) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [outcome(case) for case in chosen]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a text may be a folder for TensorBoard


@pytest.fixture
def without_coverage() -> Iterator[None]:
    """The sample runs the same lines; tracing them would double the minutes. ``no_cover`` does nothing under xdist."""
    tracer = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(tracer)


def require_clear(found: list[str]) -> None:
    assert [each for each in found if each not in ("refused", "trained")] == []
    assert {"refused", "trained"} <= set(found)


def test_a_sample_of_wrong_values_is_refused_or_trains() -> None:
    require_clear(outcomes(random.Random(0).sample(cases(), SAMPLE)))


@pytest.mark.slow
@pytest.mark.usefixtures("without_coverage")
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_value_at_each_place_is_refused_or_trains(kind: str) -> None:
    chosen = one_for_each_place()
    assert {case[:2] for case in chosen} == {case[:2] for case in cases()}
    require_clear(outcomes([case for case in chosen if case[0] == kind]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_every_wrong_value_is_refused_or_trains(kind: str) -> None:
    require_clear(outcomes([case for case in cases() if case[0] == kind]))
