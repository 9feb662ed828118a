"""The class of a model says which adapter talks to it."""

from __future__ import annotations

import sys

import pytest

from rlverify.checks import Script
from rlverify.checks.adapters.adapter import LIBRARIES, Adapter, adapter_name, adapter_named
from rlverify.checks.adapters.script import ScriptAdapter


@pytest.mark.parametrize(("base", "name"), [(base, name) for base, (name, _) in LIBRARIES.items()])
def test_a_subclass_of_a_library_is_recognised_without_an_import(base: str, name: str) -> None:
    module, _, kind = base.rpartition(".")
    before = set(sys.modules)
    own = type("Mine", (type(kind, (), {"__module__": module, "__qualname__": kind}),), {})
    assert adapter_name(own()) == name
    assert set(sys.modules) == before


def test_anything_else_is_plain() -> None:
    assert adapter_name(object()) == "plain"


def test_an_adapter_of_yours_gets_the_rest_from_the_library() -> None:
    class Mine(Adapter):
        def act(self, model: object) -> str:  # noqa: ARG002
            return "mine"

    script = Script(print, 7)
    adapter = adapter_named(adapter_name(script), Mine())
    assert isinstance(adapter, ScriptAdapter)
    assert (adapter.act(script), adapter.steps(script)) == ("mine", 7)
