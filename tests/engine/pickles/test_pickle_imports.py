"""What a pickle would import and call is found from its instructions, however it is written."""

from __future__ import annotations

import collections
import copyreg
import io
import os
import pickle
import struct
from collections.abc import Callable
from typing import Any

import pytest

from rlverify.pickles import COMPUTED, PickleContent, PickleImport, content_of

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
SYSTEM = PickleImport(os.system.__module__, "system", is_called=True)


class Calls:
    """Makes whoever unpickles it call a function."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


class Built:
    """Is pickled by its class and state."""

    def __init__(self) -> None:
        self.x = 1


class WithKeywords:
    """Is made with keyword arguments, which takes NEWOBJ_EX."""

    def __new__(cls, **_: int) -> WithKeywords:
        return super().__new__(cls)

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, int]]:
        return (), {"x": 1}


def content(pickled: bytes, **options: Any) -> PickleContent:
    return content_of(io.BytesIO(pickled), **options)


def names(pickled: bytes) -> list[str]:
    return [f"{each}{'()' if each.is_called else ''}" for each in content(pickled).imports]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_call_is_found_in_every_protocol(protocol: int) -> None:
    pickled = pickle.dumps({"a": [1, 2.5, None, Calls(os.system, "x"), "text" * 1000]}, protocol)
    assert content(pickled) == PickleContent((SYSTEM,), None)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_class_that_is_only_named_is_not_called(protocol: int) -> None:
    assert content(pickle.dumps([os.system, 1], protocol)).imports == (PickleImport(SYSTEM.module, "system", False),)


@pytest.mark.parametrize("protocol", PROTOCOLS[2:])
def test_objects_with_state_are_calls(protocol: int) -> None:
    assert f"{__name__}.Built()" in names(pickle.dumps(Built(), protocol))


@pytest.mark.parametrize("protocol", range(4, 6))
def test_objects_with_keywords_are_calls(protocol: int) -> None:
    assert names(pickle.dumps(WithKeywords(x=1), protocol)) == [f"{__name__}.WithKeywords()"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_plain_values_import_nothing(protocol: int) -> None:
    plain = [1, -(2**70), 2.5, True, None, "ü", b"x" * 300, (1, 2, 3, 4), {"a": {"b": []}}, "long" * 70_000]
    found = content(pickle.dumps(plain, protocol))
    assert found.problem is None
    assert [str(each) for each in found.imports] == (["_codecs.encode"] if protocol < 3 else [])


def text(value: bytes) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value


WRITTEN_BY_HAND = {
    "GLOBAL": b"cposix\nsystem\n(X\x01\x00\x00\x00xtR.",
    "no STOP": b"cposix\nsystem\n(X\x01\x00\x00\x00xtR",
    "INST": b"(X\x01\x00\x00\x00xiposix\nsystem\n.",
    "OBJ": b"(cposix\nsystem\nX\x01\x00\x00\x00xo.",
    "NEWOBJ": b"\x80\x02cposix\nsystem\n(X\x01\x00\x00\x00xt\x81.",
    "NEWOBJ_EX": b"\x80\x04" + text(b"posix") + text(b"system") + b"\x93)}\x92.",
    "BUILD of the function itself": b"cposix\nsystem\n}b.",
    "BUILD of what INST made": b"(iposix\nsystem\n}b.",
    "STACK_GLOBAL": b"\x80\x04" + text(b"posix") + text(b"system") + b"\x93" + text(b"x") + b"\x85R.",
    "memo, numbered": b"\x80\x04" + text(b"posix") + b"q\x070" + text(b"system") + b"q\x080h\x07h\x08\x93)R.",
    "memo, in long form": b"\x80\x04"
    + text(b"posix")
    + b"r\x07\x00\x00\x000"
    + text(b"system")
    + b"r\x08\x00\x00\x000j\x07\x00\x00\x00j\x08\x00\x00\x00\x93)R.",
    "memo, in lines": b"\x80\x04" + text(b"posix") + b"p7\n0" + text(b"system") + b"p8\n0g7\ng8\n\x93)R.",
    "memo, in order": b"\x80\x04" + text(b"posix") + b"\x940" + text(b"system") + b"\x940h\x00h\x01\x93)R.",
    "memo, overwritten": b"\x80\x04"
    + text(b"torch")
    + b"q\x00"
    + text(b"posix")
    + b"q\x000"
    + b"\x940"
    + b"h\x00"
    + text(b"system")
    + b"\x93)R.",
    "memo, numbered twice and then in order": b"\x80\x04"
    + (text(b"torch") + b"q\x000") * 2
    + text(b"posix")
    + b"\x940h\x01"
    + text(b"system")
    + b"\x93)R.",
    "memo, out of order and then in order": b"\x80\x04"
    + (text(b"torch") + b"q\x050")
    + text(b"posix")
    + b"\x940h\x01"
    + text(b"system")
    + b"\x93)R.",
    "DUP": b"\x80\x04" + text(b"posix") + b"20" + text(b"system") + b"\x93)R.",
    "a long text between": b"\x80\x04"
    + text(b"posix")
    + b"X\x00\x10\x00\x00"
    + b"x" * 4096
    + b"0"
    + text(b"system")
    + b"\x93)R.",
    "values to a mark between": b"\x80\x04" + text(b"posix") + b"(NNN1" + text(b"system") + b"\x93)R.",
    "a list between": b"\x80\x04" + text(b"posix") + b"](NNNe0" + text(b"system") + b"\x93)R.",
    "UNICODE": b"Vposix\nVsystem\n\x93)R.",
    "UNICODE, escaped": b"V\\u0070osix\nVsystem\n\x93)R.",
    "STRING": b"S'posix'\nS'system'\n\x93)R.",
    "STRING, escaped": b"S'\\x70osix'\nS\"sys\\164em\"\n\x93)R.",
    "SHORT_BINSTRING": b"U\x05posixU\x06system\x93)R.",
    "BINSTRING": b"T\x05\x00\x00\x00posixT\x06\x00\x00\x00system\x93)R.",
    "BINUNICODE8": b"\x8d" + struct.pack("<Q", 5) + b"posix" + text(b"system") + b"\x93)R.",
    "FRAME of another length": b"\x80\x04\x95" + struct.pack("<Q", 3) + b"cposix\nsystem\n)R.",
    "numbers that pickletools refuses": b"I 0x1\n0L1_0L\n0cposix\nsystem\n)R.",
}


@pytest.mark.parametrize("kind", WRITTEN_BY_HAND)
def test_a_call_written_by_hand_is_found(kind: str) -> None:
    assert PickleImport("posix", "system", is_called=True) in content(WRITTEN_BY_HAND[kind]).imports


@pytest.mark.parametrize(
    ("pickled", "name"),
    [
        (b"c__builtin__\neval\n)R.", "builtins.eval()"),
        (b"ccommands\ngetoutput\n)R.", "subprocess.getoutput()"),
        (b"c__builtin__\nreduce\n)R.", "functools.reduce()"),
        (b"\x82\x07)R.", "copyreg.extension 7()"),
        (b"\x83\x07\x01)R.", "copyreg.extension 263()"),
        (b"\x80\x04N" + text(b"system") + b"\x93)R.", f"{COMPUTED}.system()"),
        (b"\x80\x04" + text(b"posix") + b"c_codecs\nencode\n)R\x93)R.", f"posix.{COMPUTED}()"),
        (b"\x93)R.", f"{COMPUTED}.{COMPUTED}()"),
        (b"c" + b"x" * 5000 + b"\nsystem\n)R.", f"{COMPUTED}.{COMPUTED}()"),
    ],
)
def test_names_of_python_2_and_unknown_names(pickled: bytes, name: str) -> None:
    assert name in names(pickled)


def test_the_extension_registry_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(copyreg._inverted_registry, 7, ("posix", "system"))  # type: ignore[attr-defined]
    assert names(b"\x82\x07)R.") == ["copyreg.extension 7()"]


@pytest.mark.parametrize(
    ("pickled", "reason"),
    [
        (b"", "ends before"),
        (b"\x80", "ends before"),
        (b"\x80\x04N", "ends before"),
        (b"\xff", "no pickle instruction at byte 0"),
        (b"NN\x00", "no pickle instruction at byte 2"),
        (b"cposix", "ends before"),
        (b"X\xff\xff\xff\x7fab", "ends within"),
        (b"\x8e" + b"\xff" * 8, "ends within"),
        (b"\x8b\xff\xff\xff\xff.", "ends within"),
        (b"Np-1\n.", "numbers a value as b'-1'"),
        (b"Npx\n.", "numbers a value as b'x'"),
        (b"Np" + b"1" * 5000 + b"\n.", "numbers a value as None"),
    ],
)
def test_a_damaged_pickle_says_what_is_wrong(pickled: bytes, reason: str) -> None:
    problem = content(pickled).problem
    assert problem is not None
    assert reason in problem.reason
    assert problem.rule == "unreadable-file"


def test_what_precedes_the_damage_is_reported() -> None:
    found = content(b"cposix\nsystem\n)R\xff")
    assert [str(each) for each in found.imports] == ["posix.system"]
    assert found.problem is not None


def test_instructions_are_limited() -> None:
    found = content(b"N0" * 50 + b"cposix\nsystem\n.", most=100)
    assert found.imports == ()
    assert found.problem is not None
    assert (found.problem.rule, "more than 100 pickle instructions" in found.problem.reason) == ("scan-limit", True)
    assert content(b"N0" * 49 + b"N.", most=100).problem is None


def test_the_stream_is_left_behind_the_pickle() -> None:
    stream = io.BytesIO(pickle.dumps(1) + b"rest")
    assert content_of(stream).problem is None
    assert stream.read() == b"rest"


@pytest.mark.parametrize("adding", [b"Na", b"NNs", b"(NNe", b"(NNu", b"(N\x90"])
def test_what_is_added_to_stays_what_it_is(adding: bytes) -> None:
    assert names(b"cmine\nThing\n" + adding + b")R.") == ["mine.Thing()"]


def test_a_container_that_a_class_made_stays_what_it_is() -> None:
    made = pickle.dumps(collections.OrderedDict(a=1, b=2), 2)
    assert names(made) == ["collections.OrderedDict()"]
    assert names(made[:-1] + b"}b.") == ["collections.OrderedDict()"]


def test_an_empty_stack_is_tolerated() -> None:
    assert names(b"R0210bcposix\nsystem\nRcposix\nsystem\n)R.")[0] == "posix.system()"
