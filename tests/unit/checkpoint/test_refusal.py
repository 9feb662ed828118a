"""A refusal names what was given, and shows no more of it than fits into a message."""

from __future__ import annotations

import io
from typing import Any, Literal

import pytest

from rlcore.checkpoint import load_container, save_container
from rlcore.checkpoint.container import quoted, require_place
from rlcore.errors import SettingError


class Writable:
    def write(self, content: bytes) -> int:
        return len(content)


METHODS: list[Literal["read", "write"]] = ["read", "write"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("path", "said"),
    [
        (3, "path=3 is neither a path nor a binary file object; give one"),
        (None, "path=None is neither a path nor a binary file object; give one"),
        ("x" * 100, None),
        (["x" * 100], f"path=['{'x' * 78} is neither a path nor a binary file object; give one"),
        ("", "path='' names no file; give a name"),
    ],
)
def test_what_is_no_place_is_refused_as_a_setting(
    path: Any, said: str | None, method: Literal["read", "write"]
) -> None:
    if said is None:
        require_place(path, method)
        return
    with pytest.raises(SettingError) as caught:
        require_place(path, method)
    assert (str(caught.value), caught.value.setting) == (said, "path")


def test_a_file_object_has_the_method_that_is_needed() -> None:
    save_container(Writable(), {"n": 1})  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="neither a path nor a binary file object"):
        load_container(Writable())  # type: ignore[arg-type]
    require_place(io.BytesIO(), "read")


def test_a_text_is_quoted_in_80_characters_whatever_follows_them() -> None:
    assert quoted("x" * 78) == "'" + "x" * 78 + "'"
    assert quoted("x" * 79) == "'" + "x" * 76 + "..."
    assert quoted("x" * 90 + "'") == quoted("x" * 91)
