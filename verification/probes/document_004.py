"""The fixes and tests that document 004 proposes, executed as written."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn

from rlcore import DistributionalPPO, apply_exploit
from rlverify import Observation, probe
from verification.probes.cited import cited_text
from verification.probes.make import Make
from verification.probes.return_timeline import move_to_the_end

FIX_2, TEST_1, TEST_2, TEST_3 = "004:326-354", "004:397-418", "004:424-449", "004:455-471"
UPDATE = 48

Test = Callable[[], None]


def _defined(cite: str, name: str, names: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function of the document.

    :param names: the names that its code uses without defining them
    """
    namespace = dict(names)
    exec(compile(cited_text(cite), cite, "exec"), namespace)  # noqa: S102  # the document is what is tested
    function: Callable[..., Any] = namespace[name]
    return function


def _ended(action: Callable[[], object]) -> str:
    """Run the document's code. Return "passes" or the name of the error that it raises."""
    try:
        action()
    except (AssertionError, AttributeError, KeyError, NameError, TypeError) as error:
        return type(error).__name__
    return "passes"


def _outcome(symptom: str, action: Callable[[], object], *, passes: bool) -> Observation:
    ended = _ended(action)
    expected = "passes" if passes else "fails"
    return Observation(symptom, expected, ended, holds=(ended == "passes") == passes)


_NAMES = {
    "_ret_mean_value": ("statistics", "mean"),
    "_ret_std_value": ("statistics", "std"),
    "_ret_mean_snapshot": ("snapshot", "mean"),
    "_ret_std_snapshot": ("snapshot", "std"),
}
"""Where our return scale has what the document's attributes hold."""


class _ReturnScaleModel:
    """A real model with the attributes that test 1 uses. Test 1 may set an attribute only to its value."""

    def __init__(self, model: DistributionalPPO) -> None:
        self.__dict__.update(_model=model, _callback=model._setup_learn(10 * UPDATE)[1])

    def __getattr__(self, name: str) -> Any:
        if name in _NAMES:
            kind, attribute = _NAMES[name]
            return getattr(getattr(self._model.value_scale, kind), attribute)
        return getattr(self._model, name)

    def __setattr__(self, name: str, value: float) -> None:
        assert getattr(self, name) == value, "the test starts from the statistics of a fresh model"

    def collect_rollouts(self, _: object) -> None:
        model: Any = self._model
        model.collect_rollouts(model.env, self._callback, model.rollout_buffer, model.n_steps)

    def train(self) -> None:
        self._model.train()


def _without_scaling(model: DistributionalPPO) -> None:
    """Take the snapshot when the document wants it, but scale nothing with it."""
    move_to_the_end(model)
    scale: Any = model.value_scale
    scale.normalise = scale.denormalise = lambda values: values


@probe("test-1-of-document-004-as-written")
def run_test_1_as_written(make: Make, seed: int) -> Sequence[Observation]:
    """Run test 1 on four variants: without the lag, with it, with the snapshot moved only, and without scaling."""

    def run(prepare: Callable[[DistributionalPPO], None] = lambda _: None, **settings: Any) -> Test:
        model = make.model(seed, n_steps=16, batch_size=48, n_epochs=1, **settings)
        prepare(model)
        names = {"DistributionalPPO": lambda _: _ReturnScaleModel(model)}
        return _defined(TEST_1, "test_return_scale_snapshot_timing", names)

    late: dict[str, Any] = {"return_scale": "snapshot"}
    return [
        _outcome("document 004's test 1, each update trained on its own statistics", run(), passes=True),
        _outcome("document 004's test 1, snapshot in the documented order", run(**late), passes=False),
        _outcome(
            "document 004's test 1, snapshot moved, still used for the next update",
            run(move_to_the_end, **late),
            passes=False,
        ),
        _outcome("document 004's test 1, snapshot not used for scaling", run(_without_scaling, **late), passes=False),
    ]


def _agent(make: Make, seed: int) -> DistributionalPPO:
    model = make.model(seed, VecNormalize(make.envs(seed)), n_steps=16, batch_size=24)
    model.learn(UPDATE)
    return model


def _fix_2(name: str) -> Callable[..., Any]:
    names = {"torch": torch, "VecNormalize": VecNormalize, "logger": logging.getLogger(__name__)}
    return _defined(FIX_2, name, names)


class _Agent:
    """An agent for test 2. learn() makes one update, whatever the number of steps.

    :param readable: whether get_attr() of its environment finds the statistics
    """

    def __init__(self, model: DistributionalPPO, readable: bool) -> None:
        self.model, self.readable = model, readable

    def learn(self, total_timesteps: int) -> None:  # noqa: ARG002
        self.model.learn(UPDATE, reset_num_timesteps=False)

    def get_env(self) -> Any:
        env: Any = self.model.get_env()
        return SimpleNamespace(get_attr=lambda name: [getattr(env, name)]) if self.readable else env

    @property
    def _last_lstm_states(self) -> object:
        return self.model._last_lstm_states


@probe("test-2-of-document-004-as-written")
def run_test_2_as_written(make: Make, seed: int) -> Sequence[Observation]:
    """Run test 2 on a core that hands the statistics over, and on one that does not reset LSTM states."""

    def run(*, readable: bool, exploit: Callable[[DistributionalPPO, Mapping[str, Any]], None]) -> Test:
        names = {
            "np": np,
            "create_pbt_agent": lambda member_id: _Agent(_agent(make, seed + member_id), readable),
            "save_pbt_checkpoint": lambda agent, _: {"policy": agent.model.get_parameters()},
            "checkpoint_path": "",
            "coordinator": SimpleNamespace(
                _apply_exploited_parameters=lambda agent, parameters, _: exploit(agent.model, parameters)
            ),
        }
        return _defined(TEST_2, "test_vecnormalize_lstm_sync_after_pbt", names)

    def remembering(model: DistributionalPPO, parameters: Mapping[str, Any]) -> None:
        model.set_parameters(parameters)

    def taking(model: DistributionalPPO, parameters: Mapping[str, Any]) -> None:
        apply_exploit(model, parameters, {})

    return [
        _outcome(
            "document 004's test 2, unchanged environment, LSTM states reset",
            run(readable=False, exploit=taking),
            passes=True,
        ),
        _outcome(
            "document 004's test 2, get_attr() finds the statistics, LSTM states reset",
            run(readable=True, exploit=taking),
            passes=True,
        ),
        _outcome(
            "document 004's test 2, get_attr() finds the statistics, LSTM states not reset",
            run(readable=True, exploit=remembering),
            passes=False,
        ),
    ]


@probe("fix-2-of-document-004-as-written")
def fix_2_as_written(make: Make, seed: int) -> Sequence[Observation]:
    """Save a member with the document's code and let another exploit it. Also call both as test 2 does."""
    source, target = _agent(make, seed), _agent(make, seed + 1)
    save, apply = _fix_2("save_pbt_checkpoint"), _fix_2("_apply_exploited_parameters")
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/member.zip"
        written = save(source, source.get_env(), path)
        member = SimpleNamespace(vecnormalize_path=written["vecnormalize"])
        parameters = source.get_parameters()
        return [
            _outcome(
                "document 004's save_pbt_checkpoint(), called as test 2 does", lambda: save(source, path), passes=True
            ),
            _outcome(
                "result of document 004's save_pbt_checkpoint(), read as test 2 does",
                lambda: written["policy"],
                passes=True,
            ),
            _outcome(
                "result of document 004's save_pbt_checkpoint() without VecNormalize",
                lambda: save(source, None, path)["checkpoint"],
                passes=True,
            ),
            _outcome(
                "document 004's _apply_exploited_parameters()",
                lambda: apply(None, target, parameters, member),
                passes=True,
            ),
        ]


@probe("test-3-of-document-004-as-written")
def run_test_3_as_written(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Run test 3 on the estimator that it describes, on two others, and on a scaler that measures nothing."""

    class Blind(make.scaler):  # type: ignore[name-defined, misc]
        def update_statistics(self) -> None:
            pass

    def run(scaler: Callable[..., Any] = make.scaler, **settings: Any) -> Test:
        parameters = [nn.Parameter(torch.zeros(4))]
        names = {
            "torch": torch,
            "model": SimpleNamespace(parameters=lambda: parameters),
            "VarianceGradientScaler": lambda given: scaler(given, **settings),
        }
        return _defined(TEST_3, "test_vgs_variance_semantics", names)

    return [
        _outcome("document 004's test 3, variance of the mean", run(estimator="mean"), passes=True),
        _outcome("document 004's test 3, variance between elements", run(estimator="spatial"), passes=False),
        _outcome("document 004's test 3, variance of the elements over time", run(estimator="element"), passes=False),
        _outcome("document 004's test 3, scaler that measures nothing", run(Blind), passes=False),
    ]
