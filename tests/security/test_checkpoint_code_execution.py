"""A file that would run code is refused, whatever version it claims, and nothing of it is run."""

from __future__ import annotations

import os
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rlcore.checkpoint.container import load_container
from rlcore.checkpoint.formats import load_checkpoint
from rlcore.errors import CheckpointError


class Payload:
    """Makes whoever unpickles it call ``function`` with ``arguments``."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


CONTAINERS: dict[str, Callable[[object], object]] = {
    "valid version": lambda payload: {
        "format_version": "v2_full_parameters",
        "step": 1,
        "performance": 1.0,
        "data": {"policy": {"w": torch.ones(1)}, "policy.optimizer": {"hidden": payload}},
    },
    "payload before the version": lambda payload: {"data": payload, "format_version": "v2_full_parameters"},
    "missing version": lambda payload: {"data": payload, "step": 1, "performance": 1.0},
    "unknown version": lambda payload: {"format_version": "v9", "data": payload},
    "version itself": lambda payload: {"format_version": payload},
    "v1": lambda payload: OrderedDict(nn.Linear(2, 2).state_dict(), extra=payload),
    "third format": lambda payload: {"model_state_dict": {}, "vgs_state_dict": payload},
    "model file": lambda payload: {"format_version": "model_v1", "settings": payload},
    "no dict at all": lambda payload: payload,
}
ATTACKS: dict[str, Callable[[Path], Payload]] = {
    "os.system": lambda marker: Payload(os.system, f"touch {marker}"),
    "eval": lambda marker: Payload(eval, f"open({str(marker)!r}, 'w')"),
    "Path.touch": lambda marker: Payload(Path.touch, marker),
    "os.mkdir": lambda marker: Payload(os.mkdir, str(marker)),
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("kind", CONTAINERS)
def test_nothing_is_executed(kind: str, attack: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    torch.save(CONTAINERS[kind](ATTACKS[attack](marker)), tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match="could run code"):
        load_checkpoint(tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match="could run code"):
        load_container(tmp_path / "x.pt")
    assert not marker.exists()


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_attacks_are_real(attack: str, tmp_path: Path) -> None:
    """The same files do execute where they are unpickled without protection, or the test above proves nothing."""
    marker = tmp_path / "marker"
    torch.save(CONTAINERS["valid version"](ATTACKS[attack](marker)), tmp_path / "x.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the file that eval opens and never closes
        torch.load(tmp_path / "x.pt", weights_only=False)
    assert marker.exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_of_any_protocol_executes_nothing(protocol: int, tmp_path: Path, forge: Any) -> None:
    marker = tmp_path / "marker"
    pickled = pickle.dumps({"format_version": "v2_full_parameters", "data": Payload(os.mkdir, str(marker))}, protocol)
    (tmp_path / "bare.pkl").write_bytes(pickled)
    for source in (forge.file(pickled, {}), tmp_path / "bare.pkl"):
        with pytest.raises(CheckpointError):
            load_checkpoint(source)
    assert not marker.exists()


def test_the_legacy_stream_is_refused_before_its_pickle_is_read(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    payload = {"data": Payload(os.mkdir, str(marker))}
    torch.save(payload, tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointError, match=r"not a file that torch\.save wrote in its zip format"):
        load_checkpoint(tmp_path / "x.pt")
    assert not marker.exists()


GLOBALS = [
    *(
        "builtins\neval",
        "posix\nsystem",
        "__builtin__\nbytearray",
        "torch\nload",
        "torch._utils\n_rebuild_sparse_tensor",
    ),
    *(
        "torch._utils\n_rebuild_qtensor",
        "torch._utils\n_rebuild_meta_tensor_no_storage",
        "torch._utils\n_rebuild_parameter",
    ),
    *("torch\nTensor", "torch\ndevice", "torch\nSize", "torch.storage\nUntypedStorage", "collections\nCounter"),
    *("numpy._core.multiarray\nscalar", "torch\nFloatStorage.x", "collections\nOrderedDict.fromkeys", "\n"),
]


@pytest.mark.parametrize("name", GLOBALS, ids=lambda name: name.replace("\n", " "))
@pytest.mark.usefixtures("torch_sees_nothing")
def test_only_three_kinds_of_name_may_be_referred_to(name: str, forge: Any) -> None:
    with pytest.raises(CheckpointError, match="refers to"):
        load_container(forge.file(forge.dictionary(x=b"c" + name.encode() + b"\n"), {}))


ABUSES: dict[str, bytes] = {
    "OrderedDict called with items": b"ccollections\nOrderedDict\n](](X\x01\x00\x00\x00aK\x01ee\x85R",
    "a type called": b"ctorch\nFloatStorage\n)R",
    "a type as value": b"ctorch\nFloatStorage\n",
    "the class as value": b"ccollections\nOrderedDict\n",
    "attributes set on the class": b"ccollections\nOrderedDict\n}X\x04\x00\x00\x00copyNsb",
    "attributes set on a dict": b"}}X\x04\x00\x00\x00copyNsb",
    "metadata set on a dict": b"}}X\x09\x00\x00\x00_metadataNsb",
    "metadata in an OrderedDict": 2 * b"ccollections\nOrderedDict\n)R" + b"X\x09\x00\x00\x00_metadataNsb",
    "a method replaced": b"ccollections\nOrderedDict\n)R}X\x05\x00\x00\x00itemsNsb",
    "attributes in pairs": b"ccollections\nOrderedDict\n)RN}X\x05\x00\x00\x00itemsNs\x86b",
    "a set": b"\x8f",
    "bytes": b"C\x01a",
    "a bytearray": b"\x96\x01\x00\x00\x00\x00\x00\x00\x00a",
    "an extension": b"\x82\x01",
    "a stack global": b"X\x02\x00\x00\x00osX\x06\x00\x00\x00system\x93",
    "an instance": b"(ios\nsystem\n",
    "an object": b"(ccollections\nOrderedDict\no",
    "a new object": b"ccollections\nOrderedDict\n)\x81",
    "a persistent text": b"P0\n",
    "a persistent number": b"K\x00Q",
    "a duplicated value": b"N20",
}


@pytest.mark.parametrize("abuse", ABUSES)
@pytest.mark.usefixtures("torch_sees_nothing")
def test_no_other_instruction_is_followed(abuse: str, forge: Any) -> None:
    with pytest.raises(CheckpointError):
        load_container(forge.file(forge.dictionary(x=ABUSES[abuse]), {}))


@pytest.mark.parametrize("abuse", ["a method replaced", "attributes set on a dict", "metadata set on a dict"])
def test_attributes_are_refused_before_they_are_set(abuse: str, forge: Any) -> None:
    with pytest.raises(CheckpointError, match="pickle is damaged"):
        load_container(forge.file(forge.dictionary(x=ABUSES[abuse]), {}))


def test_an_instruction_that_no_checkpoint_needs_is_named(forge: Any) -> None:
    with pytest.raises(CheckpointError, match=r"instruction '\\x8f', .*do not load it"):
        load_container(forge.file(forge.dictionary(x=ABUSES["a set"]), {}))


@pytest.mark.usefixtures("torch_sees_nothing")
def test_no_unpickler_is_given_the_file_even_of_a_healthy_one(monkeypatch: pytest.MonkeyPatch, forge: Any) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("an unpickler was made")

    file = forge.file(forge.dictionary(x=forge.tensor()))
    for module in (pickle, torch._weights_only_unpickler):
        for name in ("load", "loads", "Unpickler"):
            monkeypatch.setattr(module, name, fail, raising=False)
    with pytest.warns(UserWarning, match="no digest"):
        assert load_container(file)["x"].tolist() == [1.0, 2.0, 3.0, 4.0]  # type: ignore[union-attr]


def test_texts_of_the_file_are_escaped_and_cut_and_nothing_advises_to_drop_the_protection(forge: Any) -> None:
    escape = "\x1b[2J\u202e" + "a" * 10_000
    pickles = [
        forge.dictionary(x=b"c" + escape.encode() + b"\nname\n"),
        forge.dictionary(format_version=forge.text(escape)),
        forge.dictionary(**{escape: b"N", "data": b"N"}),
        forge.dictionary(**{escape: b"(]t"}),
        forge.dictionary(x=forge.tensor(key=escape)),
        forge.dictionary(x=b"cos\nsystem\n"),
    ]
    for pickled in pickles:
        with pytest.raises(CheckpointError) as caught:
            load_checkpoint(forge.file(pickled, {}))
        assert str(caught.value).isascii()
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 500
        assert "weights_only" not in str(caught.value)
        assert caught.value.__cause__ is None
