"""The formats: v2 comes back, v1 is read with a warning, everything else is named for what it is."""

from __future__ import annotations

import io
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlcore.checkpoint import FORMAT_V1, FORMAT_V2, load_checkpoint, save_checkpoint, save_container
from rlcore.checkpoint.formats import save_policy
from rlcore.errors import CheckpointError, ResumeWarning

OPTIONAL = [
    *("vgs_state", "kl_penalty_state", "entropy_state", "return_scale_state"),
    *("normalizer_state", "lstm_state", "rng_state"),
]


def parameters(**more: Any) -> dict[Any, Any]:
    network = nn.Linear(2, 2)
    nn.init.constant_(network.weight, 0.5)
    return {"policy": network.state_dict(), "policy.optimizer": torch.optim.Adam([network.weight]).state_dict(), **more}


def v2_payload(**changes: Any) -> dict[Any, Any]:
    return {"format_version": FORMAT_V2, "data": parameters(), "step": 3, "performance": 1.5, **changes}


def container_of(payload: Any) -> io.BytesIO:
    file = io.BytesIO()
    save_container(file, payload)
    file.seek(0)
    return file


def test_format_names_are_those_of_the_document() -> None:
    assert (FORMAT_V1, FORMAT_V2) == ("v1_policy_only", "v2_full_parameters")


def test_v2_comes_back_whole(tmp_path: Path) -> None:
    data = parameters(vgs_state={"step_count": 8, "ema": torch.tensor([2.0])}, rng_state=None)
    save_checkpoint(tmp_path / "x.pt", data, step=7, performance=2.5)
    checkpoint = load_checkpoint(tmp_path / "x.pt", require_digest=True)
    assert (checkpoint.format_version, checkpoint.step, checkpoint.performance) == (FORMAT_V2, 7, 2.5)
    assert set(checkpoint.data) == {"policy", "policy.optimizer", "vgs_state", "rng_state"}
    assert repr(checkpoint.data) == repr(data)


def test_v2_file_holds_exactly_four_fields(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "x.pt", parameters(), step=0, performance=0.0)
    assert set(torch.load(tmp_path / "x.pt", weights_only=True)) == {"format_version", "data", "step", "performance"}


@pytest.mark.parametrize("name", OPTIONAL)
def test_every_optional_part_may_be_there_none_or_absent_without_a_warning(name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in ({"a": 1}, None):
            save_checkpoint(tmp_path / "x.pt", parameters(**{name: value}), step=0, performance=0.0)
            assert load_checkpoint(tmp_path / "x.pt").data[name] == value
        save_checkpoint(tmp_path / "x.pt", parameters(), step=0, performance=0.0)
        assert name not in load_checkpoint(tmp_path / "x.pt").data


def test_numbers_of_numpy_are_taken_as_step_and_performance(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "x.pt", parameters(), step=np.int64(4), performance=np.float32(0.5))  # type: ignore[arg-type]
    checkpoint = load_checkpoint(tmp_path / "x.pt")
    assert (checkpoint.step, type(checkpoint.step)) == (4, int)
    assert (checkpoint.performance, type(checkpoint.performance)) == (0.5, float)


def test_performance_of_a_diverged_member_is_kept(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "x.pt", parameters(), step=4, performance=math.nan)
    performance = load_checkpoint(tmp_path / "x.pt").performance
    assert performance is not None
    assert math.isnan(performance)


WRONG_FIELDS = [
    ({"step": 1.5}, "'step' must be an integer"),
    ({"step": -1}, "'step' must be an integer of at least 0, and is -1"),
    ({"step": True}, "'step' must be an integer"),
    ({"step": None}, "'step' must be an integer"),
    ({"performance": "good"}, "'performance' must be a float, and is 'good'"),
    ({"performance": True}, "'performance' must be a float"),
    ({"data": 3}, "'data' must be a dict, and is 3"),
    ({"data": torch.ones(2)}, "'data' must be a dict, and is a tensor"),
    ({"data": {}}, "'data' lacks 'policy'"),
    ({"data": {"policy": {"w": torch.ones(1)}}}, "'data' lacks 'policy.optimizer'"),
    ({"data": parameters(vgs_stat={})}, "'data' has the unknown key 'vgs_stat'; known are policy, "),
    ({"data": {**parameters(), 7: {}}}, "unknown key 7; known are policy, policy.optimizer, vgs_state"),
    ({"data": parameters(vgs_state=3)}, "'data'['vgs_state'] must be a dict or None, and is 3"),
    ({"data": parameters(lstm_state=[1])}, "'data'['lstm_state'] must be a dict or None, and is a list of 1"),
    (
        {"data": {**parameters(), "policy": {}}},
        "'policy'] must be a dict from parameter name to tensor, and is a dict of 0",
    ),
    (
        {"data": {**parameters(), "policy": {"w": 1.0}}},
        "'data'['policy']['w'] must be a tensor under a name, and is 1.0",
    ),
    ({"data": {**parameters(), "policy": {1: torch.ones(1)}}}, "'data'['policy'][1] must be a tensor under a name"),
    ({"data": {**parameters(), "policy.optimizer": None}}, "'data'['policy.optimizer'] must be a dict, and is None"),
    (
        {"data": {**parameters(), "policy.optimizer": [1]}},
        "'data'['policy.optimizer'] must be a dict, and is a list of 1",
    ),
]


@pytest.mark.parametrize(("changes", "said"), WRONG_FIELDS, ids=[said for _, said in WRONG_FIELDS])
def test_a_wrong_field_is_named_on_load_and_on_save(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as on_load:
        load_checkpoint(container_of(v2_payload(**changes)))
    assert said in str(on_load.value)
    payload = v2_payload(**changes)
    with pytest.raises(CheckpointError) as on_save:
        save_checkpoint(tmp_path / "x", payload["data"], step=payload["step"], performance=payload["performance"])
    assert said in str(on_save.value)
    assert on_save.value.path == str(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_performance_in_a_file_must_be_a_float() -> None:
    with pytest.raises(CheckpointError, match="'performance' must be a float, and is 2"):
        load_checkpoint(container_of(v2_payload(performance=2)))


@pytest.mark.parametrize("field", ["data", "step", "performance"])
def test_a_missing_field_is_named(field: str) -> None:
    payload = v2_payload()
    del payload[field]
    with pytest.raises(CheckpointError, match=f"the checkpoint lacks '{field}'"):
        load_checkpoint(container_of(payload))


def test_an_unknown_field_is_named_with_the_known_ones() -> None:
    with pytest.raises(CheckpointError, match="unknown key 'preformance'; known are format_version, data"):
        load_checkpoint(container_of(v2_payload(preformance=1.0)))


@pytest.mark.parametrize("version", ["v3", "", None, 2, [FORMAT_V2], torch.ones(2)], ids=repr)
def test_an_unknown_version_is_refused(version: Any) -> None:
    with pytest.raises(CheckpointError, match="unknown format_version"):
        load_checkpoint(container_of(v2_payload(format_version=version)))


def test_a_v1_file_is_read_with_one_warning(tmp_path: Path) -> None:
    state = nn.Linear(2, 2).state_dict()
    torch.save(state, tmp_path / "policy.pt")
    with pytest.warns(ResumeWarning, match="v1_policy_only: the file holds only the policy") as caught:
        checkpoint = load_checkpoint(tmp_path / "policy.pt")
    assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]
    assert (checkpoint.format_version, checkpoint.step, checkpoint.performance) == (FORMAT_V1, None, None)
    policy = checkpoint.data["policy"]
    assert isinstance(policy, dict)
    assert list(policy) == list(state)
    assert all(torch.equal(policy[name], tensor) for name, tensor in state.items())  # type: ignore[arg-type]


def test_a_policy_alone_is_written_as_v1_with_a_digest(tmp_path: Path) -> None:
    state = nn.Linear(2, 2).state_dict()
    save_policy(tmp_path / "policy.pt", state)  # type: ignore[arg-type]
    with pytest.warns(ResumeWarning, match="^v1_policy_only: the file holds only the policy"):
        checkpoint = load_checkpoint(tmp_path / "policy.pt", require_digest=True)
    assert checkpoint.format_version == FORMAT_V1
    assert repr(checkpoint.data) == repr({"policy": state})


@pytest.mark.parametrize("policy", [{}, {"w": 1.0}], ids=repr)
def test_a_policy_that_is_none_is_named_with_its_file_and_not_written(policy: Any, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="the policy") as caught:
        save_policy(tmp_path / "policy.pt", policy)
    assert caught.value.path == str(tmp_path / "policy.pt")
    assert list(tmp_path.iterdir()) == []


def test_a_v1_file_of_modules_that_share_tensors_is_read(tmp_path: Path) -> None:
    layer = nn.Linear(2, 2)
    torch.save(nn.ModuleDict({"actor": layer, "critic": layer}).state_dict(), tmp_path / "policy.pt")
    with pytest.warns(ResumeWarning):
        policy: Any = load_checkpoint(tmp_path / "policy.pt").data["policy"]
    assert torch.equal(policy["actor.weight"], layer.weight)
    assert torch.equal(policy["critic.weight"], layer.weight)


def test_a_v1_file_without_digest_is_refused_on_demand(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "policy.pt")
    with pytest.raises(CheckpointError, match="no digest"):
        load_checkpoint(tmp_path / "policy.pt", require_digest=True)


def test_a_v2_file_without_digest_is_read_with_a_warning(tmp_path: Path) -> None:
    torch.save(v2_payload(), tmp_path / "x.pt")
    with pytest.warns(UserWarning, match="carries no digest") as caught:
        checkpoint = load_checkpoint(tmp_path / "x.pt")
    assert checkpoint.step == 3
    assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]


def test_a_checkpoint_goes_to_the_device_that_is_asked_for() -> None:
    with pytest.raises(CheckpointError, match="cannot be loaded onto 'nowhere'"):
        load_checkpoint(container_of(v2_payload()), map_location="nowhere")


def test_a_file_of_no_known_format_is_named_with_its_version_or_its_first_keys(tmp_path: Path) -> None:
    save_container(tmp_path / "x.pt", v2_payload(format_version="v3"))
    with pytest.raises(CheckpointError, match="unknown format_version 'v3'") as caught:
        load_checkpoint(tmp_path / "x.pt")
    assert caught.value.path == str(tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=r"its keys: \[1, 2, 3, 4, 5\]\)"):
        load_checkpoint(container_of(dict.fromkeys(range(1, 8))))


def test_the_third_format_is_recognised(tmp_path: Path) -> None:
    network = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(network.parameters())
    third = {"model_state_dict": network.state_dict(), "optimizer_state_dict": optimizer.state_dict()}
    torch.save({**third, "vgs_state_dict": {"step_count": 3}}, tmp_path / "x.pt")
    with pytest.raises(
        CheckpointError,
        match=r"holds model_state_dict, optimizer_state_dict, vgs_state_dict:.*never adopted.*save_checkpoint",
    ):
        load_checkpoint(tmp_path / "x.pt")


def test_a_model_file_is_sent_to_the_models_own_load() -> None:
    with pytest.raises(CheckpointError, match=r"DistributionalPPO\.load"):
        load_checkpoint(container_of({"format_version": "model_v1", "settings": {}}))


@pytest.mark.parametrize("payload", [{}, {"w": torch.ones(1), "n": 1}, {1: torch.ones(1)}], ids=repr)
def test_a_dict_of_no_known_format_is_refused(payload: Any) -> None:
    with pytest.raises(CheckpointError, match="has no format_version and is no policy state dict"):
        load_checkpoint(container_of(payload))
