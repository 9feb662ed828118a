"""A pickle has as many instructions, large keys and shared bytes as a checkpoint needs, and no more."""

from __future__ import annotations

import io
from typing import Any

import pytest

from rlcore.checkpoint import torch_file
from rlcore.checkpoint.container import load_container
from rlcore.errors import CheckpointError

FRAME = 8
"""Instructions around a list of nothings: PROTO, EMPTY_DICT, MARK, a key, EMPTY_LIST, MARK; APPENDS, SETITEMS, STOP."""


def nothings(forge: Any, count: int, **tensors: bytes) -> bytes:
    pickled: bytes = forge.dictionary(**tensors, x=b"](" + b"N" * count + b"e")
    return pickled


def refused(file: io.BytesIO, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        load_container(file)


def read(file: io.BytesIO) -> Any:
    with pytest.warns(UserWarning, match="no digest"):
        return load_container(file)


def test_a_pickle_has_as_many_instructions_as_are_read_and_no_more(forge: Any) -> None:
    most = torch_file.OPERATIONS - FRAME - 1
    assert len(read(forge.file(nothings(forge, most), {}))["x"]) == most
    refused(forge.file(nothings(forge, most + 1), {}), f"more than {torch_file.OPERATIONS} instructions")


def test_every_record_of_tensor_data_may_have_instructions_of_its_own(forge: Any) -> None:
    tensors = {f"t{number}": forge.tensor(key=str(number)) for number in range(3)}
    records = {str(number): bytes(16) for number in range(3)}
    most = torch_file.OPERATIONS + 3 * torch_file.OPERATIONS_OF_A_TENSOR
    refused(forge.file(nothings(forge, most, **tensors), records), f"more than {most} instructions")
    assert (
        len(read(forge.file(nothings(forge, torch_file.OPERATIONS, **tensors), records))["x"]) == torch_file.OPERATIONS
    )


def test_no_number_of_records_buys_more_than_the_most(forge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_file, "MAX_OPERATIONS", 1000)
    refused(forge.file(nothings(forge, 1000), {}), "more than 1000 instructions")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_tensors_are_at_most_four_times_the_data_that_they_share(forge: Any) -> None:
    five = {f"t{number}": forge.tensor() for number in range(5)}
    refused(forge.file(forge.dictionary(**five)), "share their data, and would need more than 4 times")


def test_tied_weights_share_their_data(forge: Any) -> None:
    payload = read(forge.file(forge.dictionary(**{f"t{number}": forge.tensor() for number in range(4)})))
    assert [payload[f"t{number}"].tolist() for number in range(4)] == [[1.0, 2.0, 3.0, 4.0]] * 4


MODULUS = 2**61 - 1
"""Of Python's hash of an integer: all its multiples have the hash 0."""


def with_keys(forge: Any, count: int, first: int = MODULUS, step: int = MODULUS) -> io.BytesIO:
    keys = b"".join(forge.integer(first + step * number) + b"N" for number in range(count))
    file: io.BytesIO = forge.file(forge.dictionary(x=b"}(" + keys + b"u"), {})
    return file


@pytest.mark.usefixtures("torch_sees_nothing")
def test_integers_whose_hashes_are_equal_are_few(forge: Any) -> None:
    refused(with_keys(forge, torch_file.LARGE_KEYS + 1), "pickle is damaged")


def test_a_few_large_integers_are_keys_as_good_as_others(forge: Any) -> None:
    assert len(read(with_keys(forge, torch_file.LARGE_KEYS))["x"]) == torch_file.LARGE_KEYS


def test_integers_of_60_bits_are_keys_without_a_limit(forge: Any) -> None:
    assert len(read(with_keys(forge, torch_file.LARGE_KEYS + 1, 2**60 - 2000, 1))["x"]) == torch_file.LARGE_KEYS + 1
