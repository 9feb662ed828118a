"""Files that earlier versions wrote can be read: they hold what they held, and training continues from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlcore import DistributionalPPO, ResumeWarning, load_checkpoint, load_policy
from rlcore.checkpoint.container import load_container
from rlcore.resume import continue_learning, load_exact
from tests.support.exact_runs import CASES
from tests.support.training import differing, make_envs, make_model

FILES = Path(__file__).parents[1] / "data" / "old_files"
SETTINGS: dict[str, Any] = {
    "optimizer_class": "adaptive_upgd",
    "ent_coef": 0.01,
    "ent_coef_boost": 2.0,
    "kl_penalty_target": 0.01,
    "policy_kwargs": {"lstm_hidden_size": 4, "net_arch": [4]},
    "n_quantiles": 4,
}


@pytest.mark.parametrize(("name", "normalize"), [("model_v1", True), ("model_v1_adam", False)])
def test_a_model_file_is_loaded_and_trains_on(name: str, normalize: bool) -> None:
    path = FILES / f"{name}.zip"
    state: Any = load_container(path)["state"]
    model = DistributionalPPO.load(path, env=make_envs(normalize=normalize), device="cpu")
    held = model.__getstate__()["state"]
    (state["vgs_state"] or {}).pop("grad_max_ema", None)
    assert held["progress_state"].pop("frozen") == []
    assert [found for key in state for found in differing(state[key], held[key], key)] == []
    steps = model.num_timesteps
    model.learn(48, reset_num_timesteps=False)
    assert model.num_timesteps == steps + 48
    assert load_policy(path) is not None


def test_a_checkpoint_of_all_parameters_is_taken_over() -> None:
    model, data = make_model(make_envs(normalize=True), **SETTINGS), load_checkpoint(FILES / "v2.pt").data
    model.set_parameters(FILES / "v2.pt")
    data["vgs_state"].pop("grad_max_ema")
    assert differing(model.get_parameters(), data) == []


def test_a_checkpoint_of_the_policy_alone_is_taken_over() -> None:
    model = make_model(make_envs(normalize=True), **SETTINGS)
    with pytest.warns(ResumeWarning, match="only the policy"), pytest.warns(UserWarning, match="no digest"):
        model.set_parameters(FILES / "v1.pt", exact_match=False)
    assert differing(model.get_parameters()["policy"], load_checkpoint(FILES / "v2.pt").data["policy"]) == []


@pytest.mark.filterwarnings("ignore::rlcore.ResumeWarning")  # the libraries have other versions by now
@pytest.mark.parametrize("name", ["RecurrentPPO", "TD3", "DQN"])
def test_an_exact_file_is_loaded_and_trains_on(name: str) -> None:
    model = load_exact(FILES / f"exact_v1_{name}.zip", CASES[name].envs())
    steps = model.num_timesteps
    continue_learning(model, total_timesteps=steps + 64)
    assert model.num_timesteps >= steps + 64
