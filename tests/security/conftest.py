"""Tools to forge checkpoint files instruction by instruction, as an attacker would."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch


class Forge:
    """Builds the parts of a torch.save file by hand; without changes the result is a healthy file."""

    @staticmethod
    def literal(value: object) -> bytes:
        """Return the instructions for a plain value, without header, end and memo."""
        return pickle.dumps(value, protocol=2)[2:-1]

    def text(self, value: str) -> bytes:
        encoded = value.encode()
        return b"X" + len(encoded).to_bytes(4, "little") + encoded

    def tensor(self, **changes: Any) -> bytes:
        """Return the instructions for a tensor of four floats in record data/0."""
        claim: dict[str, Any] = {
            "size": (4,),
            "stride": (1,),
            "offset": 0,
            "numel": 4,
            "kind": "torch\nFloatStorage",
            "key": "0",
        }
        claim |= changes
        storage: bytes = b"(" + self.text("storage") + b"c" + claim["kind"].encode() + b"\n" + self.text(claim["key"])
        storage += self.text("cpu") + self.integer(claim["numel"]) + b"tQ"
        shape: bytes = self.integer(claim["offset"]) + self.integers(claim["size"]) + self.integers(claim["stride"])
        return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + shape + b"\x89ccollections\nOrderedDict\n)RtR"

    def integer(self, value: int) -> bytes:
        encoded = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes([len(encoded)]) + encoded

    def integers(self, values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(map(self.integer, values)) + b"t"

    def dictionary(self, **items: bytes) -> bytes:
        """Return a whole pickle of one dict."""
        return b"\x80\x02}(" + b"".join(self.text(name) + item for name, item in items.items()) + b"u."

    def file(self, pickled: bytes, storages: Mapping[str, bytes] | None = None, **records: bytes) -> io.BytesIO:
        """Return a file of this pickle; without ``storages`` it holds the four floats 1, 2, 3, 4."""
        if storages is None:
            storages = {"0": torch.arange(1.0, 5.0).numpy().tobytes()}
        content = {"data.pkl": pickled, "byteorder": b"little", "version": b"3\n", **records}
        content |= {f"data/{key}": data for key, data in storages.items()}
        return self.archive(content.items())

    @staticmethod
    def archive(records: Any, compression: int = zipfile.ZIP_STORED) -> io.BytesIO:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", compression) as archive:
            for name, data in records:
                archive.writestr(f"archive/{name}", data)
        file.seek(0)
        return file


@pytest.fixture
def forge() -> Forge:
    return Forge()


@pytest.fixture
def torch_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail if torch.load is called: it would allocate what the attacker asks for."""
    calls: list[object] = []
    real_load = torch.load

    def recording_load(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return real_load(*arguments, **options)

    monkeypatch.setattr(torch, "load", recording_load)
    yield
    assert calls == []
