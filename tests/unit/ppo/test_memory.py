"""What asks for more memory than there is, is named by its setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from rlcore import CheckpointError, DistributionalPPO, TooLargeError
from rlcore.checkpoint import load_container, save_container
from tests.support.training import make_model

TOO_LARGE: dict[str, tuple[dict[str, Any], str, str]] = {
    "a rollout": ({"n_steps": 10**15}, "n_steps", f"n_steps={10**15} in n_envs=3"),
    "a rollout beyond what NumPy counts": ({"n_steps": 10**20}, "n_steps", f"n_steps={10**20}"),
    "hidden layers": ({"policy_kwargs": {"net_arch": [10**14]}}, "policy_kwargs", r"\{'net_arch'"),
    "outputs": ({"n_quantiles": 10**13}, "policy_kwargs", f"{10**13} outputs for each critic"),
    "outputs beyond what torch counts": ({"n_quantiles": 10**18}, "policy_kwargs", f"{10**18} outputs"),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_the_setting_is_named(case: str) -> None:
    settings, setting, words = TOO_LARGE[case]
    with pytest.raises(TooLargeError, match=words) as caught:
        make_model(**settings)
    assert caught.value.setting == setting
    assert "\n" not in str(caught.value)


def test_a_file_that_asks_for_it_is_refused_by_name(tmp_path: Path) -> None:
    make_model().save(tmp_path / "model.zip")
    content: Any = load_container(tmp_path / "model.zip")
    content["settings"]["n_steps"] = 10**15
    save_container(tmp_path / "model.zip", content)
    with pytest.raises(CheckpointError, match=r"model\.zip: asks for a model larger .*n_steps"):
        DistributionalPPO.load(tmp_path / "model.zip")


class Failing(nn.Module):
    """Fails for a reason of its own."""

    def __init__(self) -> None:
        super().__init__()
        raise RuntimeError("a reason of its own")


def test_another_error_while_the_network_is_built_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match="a reason of its own") as caught:
        make_model(policy_kwargs={"lstm_hidden_size": 8, "activation_fn": Failing})
    assert not isinstance(caught.value, TooLargeError)
