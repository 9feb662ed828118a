"""Public names can be imported from the top of the package and from the package that they belong to."""

from __future__ import annotations

import importlib
from importlib import metadata

import pytest

import rlcore
from tests.support.training import make_model


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


@pytest.mark.filterwarnings("ignore:rich is experimental")  # as Stable-Baselines3 asks, before pytest's own filters
def test_a_progress_bar_is_shown_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    """Stable-Baselines3 asks for tqdm and rich, which the extra ``rlcore`` brings."""
    make_model().learn(16, progress_bar=True)
    assert "48/16" in capsys.readouterr().out
