"""Damage is found: with a digest always, without one it is never anything but a clear error or the same values."""

from __future__ import annotations

import hashlib
import io
import random
import struct
import warnings
from typing import Any

import pytest
import torch

from rlcore.checkpoint.container import MARK, decode, load_container
from rlcore.checkpoint.formats import load_checkpoint, save_checkpoint
from rlcore.checkpoint.torch_file import RefusedError
from rlcore.errors import CheckpointError

UNPROTECTED_FLIPS = 600


def protected_file() -> bytes:
    file = io.BytesIO()
    parameters: Any = {
        "policy": {"w": torch.arange(4.0)},
        "policy.optimizer": {"state": {}, "param_groups": [{"lr": 0.1}]},
    }
    save_checkpoint(file, parameters, step=3, performance=1.5)
    return file.getvalue()


def flipped(content: bytes, bit: int) -> io.BytesIO:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << (bit % 8)
    return io.BytesIO(bytes(changed))


def test_the_file_that_is_damaged_below_is_healthy() -> None:
    assert load_checkpoint(io.BytesIO(protected_file()), require_digest=True).step == 3


def test_every_truncation_is_refused() -> None:
    content = protected_file()
    for length in range(len(content)):
        with pytest.raises(CheckpointError):
            load_checkpoint(io.BytesIO(content[:length]))


def test_every_single_bit_flip_is_refused_by_the_digest() -> None:
    content = protected_file()
    for bit in range(0, 8 * len(content), 3):
        with pytest.raises(CheckpointError):
            load_checkpoint(flipped(content, bit))


def test_a_flip_in_a_file_without_digest_is_an_error_or_harmless_to_the_weights() -> None:
    file = io.BytesIO()
    torch.save({"w": torch.arange(64.0), "n": [1, 2.5, "x"]}, file)
    content = file.getvalue()
    refusals = 0
    for bit in random.Random(7).sample(range(8 * len(content)), UNPROTECTED_FLIPS):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                payload = load_container(flipped(content, bit))
        except CheckpointError:
            refusals += 1
        else:
            assert torch.equal(payload["w"], torch.arange(64.0))  # type: ignore[arg-type]
            assert payload["n"] == [1, 2.5, "x"]
    assert refusals > UNPROTECTED_FLIPS // 3


def test_a_damaged_record_of_a_file_without_digest_is_named() -> None:
    file = io.BytesIO()
    torch.save({"w": torch.arange(64.0)}, file)
    place = file.getvalue().find(torch.arange(64.0).numpy().tobytes())
    damaged = flipped(file.getvalue(), 8 * place)
    with pytest.raises(CheckpointError, match="its record 'data/0' is damaged"):
        load_container(damaged)
    with pytest.raises(RefusedError):
        decode(memoryview(damaged.getvalue()))


def test_two_files_spliced_together_are_refused() -> None:
    content = protected_file()
    half = len(content) // 2
    for spliced in (content + content, content[:half] + content, content[half:] + content[:half]):
        with pytest.raises(CheckpointError):
            load_checkpoint(io.BytesIO(spliced))


def test_a_digest_of_another_file_is_refused() -> None:
    content = protected_file()
    with pytest.raises(CheckpointError, match="digest does not fit"):
        load_checkpoint(io.BytesIO(content[:-32] + b"0" * 32))


def of_an_older_version(content: bytes) -> bytes:
    """The same file with the digest that was written before XXH3-128."""
    archive = content[: -2 - len(MARK) - 32] + struct.pack("<H", 78) + b"rlcore-sha256:"
    return archive + hashlib.sha256(archive).hexdigest().encode()


def test_a_file_with_a_sha_256_digest_is_read_and_checked() -> None:
    content = of_an_older_version(protected_file())
    assert load_checkpoint(io.BytesIO(content), require_digest=True).step == 3
    for changed in (content[:-64] + b"0" * 64, flipped(content, 8 * content.find(b"policy")).getvalue()):
        with pytest.raises(CheckpointError, match="digest does not fit"):
            load_checkpoint(io.BytesIO(changed))


def test_a_file_names_the_algorithm_of_its_digest_and_one_that_is_unknown_is_refused() -> None:
    content = protected_file()
    assert content[-32 - len(MARK) : -32] == b"rlcore-xxh3-128:"
    with pytest.raises(CheckpointError, match="zip comment is damaged"):
        load_checkpoint(io.BytesIO(content.replace(MARK, b"rlcore-xxh9-128:")))
    longer = content[: -2 - len(MARK) - 32] + struct.pack("<H", 99) + b"rlcore-later:".ljust(99, b"0")
    with pytest.raises(CheckpointError, match="has a digest of a newer version"):
        load_checkpoint(io.BytesIO(longer))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"PK\x05\x06" + bytes(18), b"\x80\x02}.", b"\x00" * 5000])
def test_what_is_no_checkpoint_is_refused(content: bytes) -> None:
    with pytest.raises(CheckpointError, match="zip"):
        load_checkpoint(io.BytesIO(content))
