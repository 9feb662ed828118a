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

from rlcore.checkpoint.container import save_container
from rlcore.checkpoint.formats import FORMAT_V1, FORMAT_V2, load_checkpoint, save_checkpoint, save_policy
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
    save_checkpoint(tmp_path / "x.pt", data, step=7, performance=math.inf)
    checkpoint = load_checkpoint(tmp_path / "x.pt", require_digest=True)
    assert (checkpoint.format_version, checkpoint.step, checkpoint.performance) == (FORMAT_V2, 7, math.inf)
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


def test_a_v2_file_without_digest_is_read_with_a_warning(tmp_path: Path) -> None:
    torch.save(v2_payload(), tmp_path / "x.pt")
    with pytest.warns(UserWarning, match="carries no digest") as caught:
        checkpoint = load_checkpoint(tmp_path / "x.pt")
    assert checkpoint.step == 3
    assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]


def test_the_third_format_is_recognised(tmp_path: Path) -> None:
    """It was proposed once and never adopted."""
    network = nn.Linear(2, 2)
    torch.save({"model_state_dict": network.state_dict(), "optimizer_state_dict": {}}, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=r"no format_version .*model_state_dict"):
        load_checkpoint(tmp_path / "x.pt")


POLICY: Any = {"w": torch.ones(1)}
WRONG_DATA = [
    *(3, torch.ones(2), {}, {"policy": POLICY}, parameters(vgs_stat={}), {**parameters(), 7: {}}),
    *(parameters(vgs_state=3), parameters(lstm_state=[1]), {**parameters(), "policy": {}}),
    *({**parameters(), "policy": {"w": 1.0}}, {**parameters(), "policy": {1: torch.ones(1)}}),
    *({**parameters(), "policy.optimizer": None}, {**parameters(), "policy.optimizer": [1]}),
]
WRONG: list[tuple[Any, str]] = [
    *(({"step": step}, "step") for step in (1.5, -1, None)),
    ({"performance": "good"}, "performance"),
    *(({"data": data}, "data|policy") for data in WRONG_DATA),
]
UNREADABLE: list[tuple[Any, str]] = [
    *((v2_payload(format_version=version), "format_version") for version in ("v3", "model_v1", None, 2, [FORMAT_V2])),
    *((v2_payload(**{name: True}), name) for name in ("step", "performance")),
    (v2_payload(preformance=1.0), "unknown fields .*'preformance'.*; known are format_version, data"),
    *(({k: v for k, v in v2_payload().items() if k != name}, f"lacks .*'{name}'") for name in ("data", "step")),
    *((payload, "no policy state dict") for payload in ({}, {"w": torch.ones(1), "n": 1}, {1: torch.ones(1)})),
]


@pytest.mark.parametrize(("payload", "said"), [*UNREADABLE, *((v2_payload(**each), said) for each, said in WRONG)])
def test_a_file_of_another_form_is_refused(payload: Any, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        load_checkpoint(container_of(payload))


@pytest.mark.parametrize(("changes", "said"), WRONG)
def test_what_would_not_be_read_is_not_written(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    payload = v2_payload(**changes)
    with pytest.raises(CheckpointError, match=said) as caught:
        save_checkpoint(tmp_path / "x", payload["data"], step=payload["step"], performance=payload["performance"])
    assert caught.value.path == str(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
