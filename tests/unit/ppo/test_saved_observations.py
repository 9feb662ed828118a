"""Observations of every kind in a model file, and what Monitor noted of finished episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlcore import CheckpointError, DistributionalPPO
from rlcore.checkpoint import load_container, save_container
from rlcore.state import position as observations
from tests.support.space_cases import KEYED
from tests.support.training import make_envs, make_model

TYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("dtype", [*TYPES, "float16", "float32", "float64"])
def test_an_array_of_any_type_comes_back_from_a_file_bit_for_bit(dtype: str, tmp_path: Path) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    save_container(tmp_path / "file.zip", {"observations": observations.to_state(array)})
    back = observations.from_state(load_container(tmp_path / "file.zip")["observations"])
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())


OTHER_SPACE: dict[str, Any] = {
    "a key too few": lambda kept: {key: part for key, part in kept.items() if key != "mask"},
    "a key too many": lambda kept: {**kept, "more": torch.zeros(2)},
    "one array for all": lambda _: torch.zeros(2, 3),
    "a part of another shape": lambda kept: {**kept, "mask": torch.zeros(2, 5)},
}
DAMAGED: dict[str, Any] = {
    "a part of another number": lambda kept: {**kept, "kind": torch.zeros(3)},
    "a text for a part": lambda kept: {**kept, "mask": "x"},
    "a dict for a part": lambda kept: {**kept, "mask": {"x": torch.zeros(2, 3)}},
    "bytes that are not all": lambda kept: {**kept, "counter": {**kept["counter"], "shape": [2, 3]}},
    "a class in place of bytes": lambda kept: {**kept, "counter": {"__kind__": "class", "name": "torch.nn.Tanh"}},
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "model.zip"
    model = make_model(make_envs(KEYED, 2, normalize=True), "MultiInputLstmPolicy")
    model.learn(32)
    model.save(path)
    return path


@pytest.mark.parametrize(
    ("field", "case"),
    [
        *[("observations", case) for case in (*OTHER_SPACE, *DAMAGED)],
        *[("original_observations", case) for case in DAMAGED if case != "a dict for a part"],
    ],
)
def test_damaged_observations_of_a_dict_are_refused_on_loading(
    field: str, case: str, saved: Path, tmp_path: Path
) -> None:
    content: Any = load_container(saved)
    state = content["state"]["lstm_state"]
    state[field] = {**OTHER_SPACE, **DAMAGED}[case](state[field])
    save_container(tmp_path / "model.zip", content)
    with pytest.raises(CheckpointError, match=r"model\.zip.*(original_)?observations"):
        DistributionalPPO.load(tmp_path / "model.zip", device="cpu")
