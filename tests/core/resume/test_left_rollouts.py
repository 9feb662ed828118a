"""A rollout, or an update, that is under way or was left is not saved."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import SubprocVecEnv

from rlcore.errors import CallOrderError
from rlcore.resume import continue_learning, save_exact
from tests.core.resume.small_models import ppo, sac
from tests.support.environments import make_vec
from tests.support.exact_runs import StopAt
from tests.support.training import make_model


class SaveInTheMiddle(BaseCallback):
    def __init__(self, path: Path, moment: str) -> None:
        super().__init__()
        self.path, self.moment = path, moment

    def _on_step(self) -> bool:
        if self.moment == "step":
            save_exact(self.model, self.path)
        if self.moment == "thread":
            with ThreadPoolExecutor() as executor:
                executor.submit(save_exact, self.model, self.path).result()
        return True

    def _on_rollout_end(self) -> None:
        if self.moment == "end":
            save_exact(self.model, self.path)


@pytest.mark.parametrize("moment", ["step", "end", "thread"])
@pytest.mark.parametrize("make", [ppo, sac])
def test_a_rollout_is_not_saved_in_its_middle(make: Callable[[], Any], moment: str, tmp_path: Path) -> None:
    with pytest.raises(CallOrderError, match=r"inside of a rollout, .* cannot be continued in its middle"):
        make().learn(30, callback=SaveInTheMiddle(tmp_path / "file.zip", moment))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [ppo, sac])
def test_an_update_that_an_exception_leaves_is_not_saved_where_the_exception_is_handled(
    make: Any, tmp_path: Path
) -> None:
    model = make()
    hook: Any = (model.policy if make is ppo else model.actor).optimizer.register_step_pre_hook(interrupt)
    try:
        model.learn(32)
    except KeyboardInterrupt:
        hook.remove()
        with pytest.raises(CallOrderError, match=r"after learn\(\) ended in one"):
            save_exact(model, tmp_path / "file.zip")


@pytest.mark.parametrize("make", [ppo, partial(sac, train_freq=4), make_model])
def test_a_model_whose_rollout_was_left_does_not_continue_and_one_between_rollouts_does(make: Any) -> None:
    model = make().learn(192, callback=StopAt(38))
    with pytest.raises(
        CallOrderError, match=r"ended inside of a rollout.*continue with load_exact and the newest file"
    ):
        continue_learning(model)
    model = make().learn(96)
    assert continue_learning(model, total_timesteps=192).num_timesteps == 192


def test_workers_that_have_not_answered_are_not_asked_for_their_state(tmp_path: Path) -> None:
    env = make_vec(vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "fork"})
    model = ppo(env).learn(16)
    env.step_async(np.zeros(2, np.int64))
    with pytest.raises(CallOrderError, match=r"after learn\(\) ended in one"):
        save_exact(model, tmp_path / "file.zip")
    env.step_wait()
    save_exact(model, tmp_path / "file.zip")
    env.close()


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt
