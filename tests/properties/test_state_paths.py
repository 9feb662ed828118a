"""Every part of what was learnt, along every path and compositions of them: the same bits, in memory of its own."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcore import DistributionalPPO, load_checkpoint, save_checkpoint
from rlcore.pbt.turns import apply_exploit
from rlcore.state.registry import LEARNT, Scope
from tests.support.configurations import CONFIGURATIONS, configured_envs, new_model, trained_model
from tests.support.costly import costly
from tests.support.isolation import shared_memory, storages
from tests.support.training import differing

OPTIMIZER = "policy.optimizer"

Path = Callable[[DistributionalPPO, DistributionalPPO], DistributionalPPO]
"""Takes the source and a model trained on its own; gives the one that has what the source has learnt."""


def part_by_part(source: DistributionalPPO, target: DistributionalPPO) -> DistributionalPPO:
    for key, state in source.get_parameters().items():
        target.set_parameters({key: state}, exact_match=False)
    return target


def parameters(source: DistributionalPPO, target: DistributionalPPO) -> DistributionalPPO:
    target.set_parameters(source.get_parameters())
    return target


def pickled(source: DistributionalPPO, _: DistributionalPPO) -> DistributionalPPO:
    return pickle.loads(pickle.dumps(source))  # type: ignore[no-any-return]  # noqa: S301


def deep_copied(source: DistributionalPPO, _: DistributionalPPO) -> DistributionalPPO:
    return copy.deepcopy(source)


def model_file(source: DistributionalPPO, target: DistributionalPPO) -> DistributionalPPO:
    file = io.BytesIO()
    source.save(file)
    file.seek(0)
    return DistributionalPPO.load(file, env=target.env, device="cpu")


def v2_file(source: DistributionalPPO, target: DistributionalPPO) -> DistributionalPPO:
    file = io.BytesIO()
    save_checkpoint(file, source.get_parameters(), step=source.num_timesteps, performance=0.0)
    file.seek(0)
    target.set_parameters(load_checkpoint(file).data)
    return target


def exploit_copy(source: DistributionalPPO, target: DistributionalPPO) -> DistributionalPPO:
    apply_exploit(target, source.get_parameters(), {}, optimizer_exploit_strategy="copy")
    return target


def exploit_reset(source: DistributionalPPO, target: DistributionalPPO) -> DistributionalPPO:
    apply_exploit(target, source.get_parameters(), {}, optimizer_exploit_strategy="reset")
    return target


PATHS: list[Path] = [
    *(part_by_part, parameters, pickled, deep_copied, model_file, v2_file, exploit_copy, exploit_reset),
]


def learnt(model: DistributionalPPO) -> dict[str, Any]:
    return model._training_state().capture(*LEARNT)


@cache
def source_of(name: str) -> DistributionalPPO:
    """One source for all paths, since none of them changes it; it has never been saved or restored itself."""
    return new_model(name)


def components_of(model: DistributionalPPO) -> dict[str, Any]:
    """What every object of the model that has a ``state_dict()`` says itself, whatever the registry knows of it."""
    owners = {**vars(model), "optimizer": model.policy.optimizer}
    keepers = {name: owner for name, owner in owners.items() if hasattr(owner, "state_dict")}
    return {name: dict(owner.state_dict() or {}) for name, owner in keepers.items() if not isinstance(owner, type)}


def after(path: Path, optimizer: dict[str, Any], seeds: list[dict[str, int]]) -> dict[str, Any]:
    """The same state of an optimizer, but with the target's noise after an exploit, and after a reset without moments.

    :param seeds: the target's own seed of each group, where its optimizer has noise
    """
    if path not in (exploit_copy, exploit_reset):
        return optimizer
    groups = [{**group, **seed} for group, seed in zip(optimizer["param_groups"], seeds, strict=True)]
    return {**optimizer, "param_groups": groups, **({"state": {}} if path is exploit_reset else {})}


def check_hand_over(path: Path, source: DistributionalPPO, target: DistributionalPPO) -> DistributionalPPO:
    """One path, checked against what the source is before it."""
    groups = target.policy.optimizer.param_groups
    seeds = [{name: value for name, value in group.items() if name == "seed"} for group in groups]
    before, expected, components = source._training_state().capture(*Scope), learnt(source), components_of(source)
    received = path(source, target)
    optimizer = after(path, expected[OPTIMIZER], seeds)
    assert differing(learnt(received), {**expected, OPTIMIZER: optimizer}) == []
    assert differing(components_of(received), {**components, "optimizer": optimizer}) == []
    assert differing(source._training_state().capture(*Scope), before) == []
    assert shared_memory([source, received]) == []
    return received


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_no_part_of_the_source_is_in_the_target_already(name: str) -> None:
    """Or the property below would say nothing of it."""
    source, target = learnt(source_of(name)), learnt(trained_model(name, seed=7, rollouts=1))
    assert [key for key in source if source[key] is not None and not differing(source[key], target[key])] == []


def test_every_part_is_in_some_configuration() -> None:
    states = [learnt(source_of(name)) for name in CONFIGURATIONS]
    assert [key for key in states[0] if all(state[key] is None for state in states)] == []


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_what_was_learnt_travels_bit_for_bit_and_shares_nothing(name: str, path: Path) -> None:
    check_hand_over(path, source_of(name), trained_model(name, seed=7, rollouts=1))


@costly(12)
@given(st.sampled_from(sorted(CONFIGURATIONS)), st.lists(st.sampled_from(PATHS), min_size=2, max_size=3))
def test_it_travels_along_paths_one_after_the_other(name: str, paths: list[Path]) -> None:
    first = model = source_of(name)
    for number, path in enumerate(paths):
        model = check_hand_over(path, model, trained_model(name, seed=7 + number, rollouts=1))
    model.set_env(configured_envs(name, seed=90))
    assert shared_memory([first, model]) == []


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_parameters_share_no_memory_with_the_model_that_they_are_of(name: str) -> None:
    assert not storages(source_of(name)) & storages(source_of(name).get_parameters())
