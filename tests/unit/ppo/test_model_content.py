"""What goes wrong with a file's content is an error of the file, unless the machine or the program is the reason."""

from __future__ import annotations

import pytest
import torch

from rlcore.errors import CheckpointError, StateError
from rlcore.ppo.model_content import refusals_of


@pytest.mark.parametrize("error", [MemoryError("no more"), torch.OutOfMemoryError("CUDA out of memory")])
def test_a_machine_without_memory_does_not_make_a_file_damaged(error: Exception) -> None:
    with (
        pytest.raises(CheckpointError, match=r"model\.zip: asks for a model larger than this machine's memory"),
        refusals_of("model.zip", "the model"),
    ):
        raise error


def test_an_unforeseen_error_names_file_field_and_both_possible_reasons() -> None:
    words = (
        r"model\.zip: the model cannot be used \(AttributeError: 'gone'\); the file is damaged or of another version"
    )
    with pytest.raises(CheckpointError, match=words), refusals_of("model.zip", "the model"):
        raise AttributeError("gone")


def test_an_error_of_the_state_is_not_wrapped_twice() -> None:
    with (
        pytest.raises(CheckpointError, match=r"^model\.zip: the policy is gone$"),
        refusals_of("model.zip", "the model"),
    ):
        raise StateError("the policy is gone")
