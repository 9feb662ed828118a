"""Public names can be imported from the top of the package and from the package that they belong to."""

from __future__ import annotations

import importlib
from importlib import metadata

import pytest

import rlcore


@pytest.mark.parametrize("package", ["rlcore.checkpoint", "rlcore.optim", "rlcore.pbt", "rlcore.ppo", "rlcore.resume"])
def test_what_a_package_offers_is_public(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__ == sorted(module.__all__, key=lambda name: (not name.isupper(), name)) != []
    for name in set(module.__all__) & set(rlcore.__all__):
        assert getattr(module, name) is getattr(rlcore, name)


def test_every_public_name_exists() -> None:
    assert [name for name in rlcore.__all__ if not hasattr(rlcore, name)] == []


def test_the_version_is_that_of_the_distribution() -> None:
    assert rlcore.__version__ == metadata.version("rlverify")
    with pytest.raises(AttributeError, match="has no attribute 'version'"):
        _ = rlcore.version
