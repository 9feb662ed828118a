"""What document 000 planned: which checkpoints with and without gradient statistics a member can go on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlcore import DistributionalPPO, apply_exploit, load_checkpoint, save_checkpoint
from rlcore.errors import CheckpointError, ResumeWarning, StateError
from tests.support.steps import after, scaler_of, weights_of
from tests.support.training import differing


@pytest.fixture(scope="module")
def source() -> DistributionalPPO:
    """Ten steps on; only looked at."""
    return after(10)


def file_of(model: DistributionalPPO, folder: Path, **changes: Any) -> Path:
    """A v2 checkpoint of the model, with some parts exchanged and those that are ``...`` left out."""
    parts: Any = {str(name): part for name, part in {**model.get_parameters(), **changes}.items() if part is not ...}
    save_checkpoint(folder / "member.pt", parts, step=10, performance=0.5)
    return folder / "member.pt"


def test_full_checkpoint_restores_weights_and_statistics(source: DistributionalPPO, tmp_path: Path) -> None:
    target = after(4, seed=1)
    apply_exploit(target, load_checkpoint(file_of(source, tmp_path)).data, {})
    assert differing(weights_of(target), weights_of(source)) == []
    assert differing(scaler_of(target).state_dict(), scaler_of(source).state_dict()) == []


@pytest.mark.parametrize("absent", [None, ...])
def test_checkpoint_without_statistics_starts_them_fresh(
    absent: Any, source: DistributionalPPO, tmp_path: Path
) -> None:
    target = after(4, seed=1)
    data = load_checkpoint(file_of(source, tmp_path, vgs_state=absent)).data
    with pytest.warns(ResumeWarning, match="no state for vgs_state"):
        apply_exploit(target, data, {})
    assert differing(weights_of(target), weights_of(source)) == []
    assert scaler_of(target).step_count == 0


def refused_whole(path: Path, words: str, **settings: Any) -> None:
    target = after(4, seed=1, **settings)
    before = target.get_parameters()
    with pytest.raises(StateError, match=words):
        apply_exploit(target, load_checkpoint(path).data, {})
    assert differing(target.get_parameters(), before) == []


def test_statistics_for_a_model_without_scaling_are_refused_whole(source: DistributionalPPO, tmp_path: Path) -> None:
    refused_whole(file_of(source, tmp_path), "variance_gradient_scaling=False", variance_gradient_scaling=False)


def test_damaged_statistics_are_refused_whole(source: DistributionalPPO, tmp_path: Path) -> None:
    damaged = {**scaler_of(source).state_dict(), "step_count": -1}
    refused_whole(file_of(source, tmp_path, vgs_state=damaged), "step_count")


def test_statistics_come_and_settings_stay(source: DistributionalPPO, tmp_path: Path) -> None:
    target = after(4, seed=1, vgs_alpha=3.0, vgs_warmup_steps=7)
    apply_exploit(target, load_checkpoint(file_of(source, tmp_path)).data, {})
    assert (scaler_of(target).settings.alpha, scaler_of(target).settings.warmup_steps) == (3.0, 7)
    assert scaler_of(target).step_count == 10
    assert scaler_of(target).get_normalized_variance() == scaler_of(source).get_normalized_variance() > 0


def test_third_format_is_refused_by_name(source: DistributionalPPO, tmp_path: Path) -> None:
    """The dict that document 000 proposed beside the two formats."""
    third = {
        "model_state_dict": source.policy.state_dict(),
        "optimizer_state_dict": source.policy.optimizer.state_dict(),
        "vgs_state_dict": scaler_of(source).state_dict(),
    }
    torch.save(third, tmp_path / "third.pt")
    with pytest.raises(CheckpointError, match=r"model_state_dict"):
        load_checkpoint(tmp_path / "third.pt")
