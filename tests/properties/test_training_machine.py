"""A live training object through anything that can be done to it, in any order.

Hypothesis builds up to four models of one configuration and trains, saves, loads, copies, mends and evaluates them.
After every step each model is whole (scaler, optimizer and settings belong to its policy), shares nothing with another,
is finite, has not gone back, and has changed only if the step was about it.
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.utils import set_random_seed

from rlcore import (
    DistributionalPPO,
    ResumeWarning,
    SettingError,
    StateError,
    apply_exploit,
    set_hyperparameters,
)
from rlcore.pbt.turns import OPTIMIZER_STRATEGIES
from rlcore.ppo.saving import SCALER_SETTINGS
from rlcore.state.training import LEARNT, Scope, apply_generators, capture_generators
from tests.support.configurations import CONFIGURATIONS, N_ENVS, ROLLOUT, configured_envs, trained_model
from tests.support.costly import costly
from tests.support.isolation import shared_memory, storages
from tests.support.live_models import (
    OPTIMIZER,
    captured,
    counters,
    held,
    learnt,
    through_v2_file,
    whole,
    without_settings,
)
from tests.support.training import differing, make_envs, tensors_in

MOST_MODELS = 4

VALID: dict[str, list[Any]] = {
    "learning_rate": [1e-3, 1e-2],
    "critic_lr_multiplier": [0.5, 2.0],
    "gamma": [0.9, 0.999],
    "gae_lambda": [0.0, 0.8],
    "clip_range": [0.05, 0.3],
    "clip_range_vf": [None, 0.2],
    "ent_coef": [0.01, 0.1],
    "n_epochs": [1, 2],
    "weight_decay": [0.0, 1e-3],
    "vgs_alpha": [0.0, 2.0],
    "vgs_beta": [0.5, 0.9],
}
INVALID: dict[str, Any] = {
    "gamma": 1.5,
    "learning_rate": -1.0,
    "weight_decay": "much",
    "vgs_alpha": float("nan"),
    "clip_range": lambda remaining: float("inf"),  # noqa: ARG005
    "n_steps": 16,
    "vgs_alhpa": 1.0,
    "lerning_rate": 1e-3,
}

changes = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in VALID.items()})


@dataclass
class Known:
    """A model, and what it was like after the step before."""

    model: DistributionalPPO
    state: dict[str, Any]
    counters: dict[str, int]


def trained_parts(model: DistributionalPPO) -> list[list[str]]:
    """Names of parameters of which training moves at least one.

    This is each of them, but a whole group for SGD, whose step can be smaller than the last bit of a weight.
    """
    names = {id(parameter): name for name, parameter in model.policy.named_parameters()}
    optimizer = model.policy.optimizer
    groups = [[names[id(parameter)] for parameter in group["params"]] for group in optimizer.param_groups]
    return groups if isinstance(optimizer, torch.optim.SGD) else [[name] for group in groups for name in group]


class TrainingMachine(RuleBasedStateMachine):
    """Every rule that changes a model names it in ``self.about``, and in ``self.falls`` the counters that may fall."""

    models = Bundle("models")
    files = Bundle("files")

    def __init__(self) -> None:
        super().__init__()
        self.known: list[Known] = []
        self.about: DistributionalPPO | None = None
        self.falls: set[str] = set()

    @initialize(target=models, name=st.sampled_from(sorted(CONFIGURATIONS)))
    def begin(self, name: str) -> Any:
        set_random_seed(0)
        self.name = name
        return multiple(*(self.admit(trained_model(name, seed, rollouts=2 - seed)) for seed in (0, 1)))

    def admit(self, model: DistributionalPPO) -> DistributionalPPO:
        self.known.append(Known(model, captured(model), counters(model)))
        return model

    def room(self) -> bool:
        return len(self.known) < MOST_MODELS

    # -- training -------------------------------------------------------------------------------------------------

    @rule(model=models, rollouts=st.integers(1, 2), anew=st.booleans())
    def learn(self, model: DistributionalPPO, rollouts: int, anew: bool) -> None:
        self.about = model
        self.falls = {"timesteps"} if anew else set()
        self.give_env(model)
        before, weights = counters(model), captured(model, Scope.LEARNER)["policy"]
        model.learn(rollouts * ROLLOUT, reset_num_timesteps=anew)
        assert model.pending_state == {}, "what waited for training to go on has been taken up"
        kept: Any = model.__getstate__()["state"]
        assert kept["progress_state"]["num_timesteps"] == model.num_timesteps
        now = counters(model)
        steps = 0 if model.variance_gradient_scaler is None else rollouts * model.n_epochs * 2
        assert now["timesteps"] == (0 if anew else before["timesteps"]) + rollouts * ROLLOUT
        assert now["updates"] == before["updates"] + rollouts * model.n_epochs
        assert now["scaler"] == before["scaler"] + steps
        moved = captured(model, Scope.LEARNER)["policy"]
        stuck = [part for part in trained_parts(model) if all(torch.equal(weights[name], moved[name]) for name in part)]
        assert stuck == []

    @rule(model=models, steps=st.integers(1, ROLLOUT // N_ENVS - 1))
    def stop_in_a_rollout(self, model: DistributionalPPO, steps: int) -> None:
        self.about = model
        self.give_env(model)
        start, before = model.num_timesteps, learnt(model)
        stop = start + steps * N_ENVS
        model.learn(ROLLOUT, lambda seen, _: seen["self"].num_timesteps < stop, reset_num_timesteps=False)
        assert model.num_timesteps == stop
        kept: Any = model.__getstate__()["state"]
        assert kept["progress_state"]["num_timesteps"] == start
        by_updates = [key for key in before if key not in ("normalizer_state", "return_scale_state")]
        assert differing(*({key: state[key] for key in by_updates} for state in (learnt(model), before))) == []

    def give_env(self, model: DistributionalPPO) -> None:
        if model.env is None:
            model.set_env(configured_envs(self.name, seed=3))

    # -- keeping and copying --------------------------------------------------------------------------------------

    @rule(target=files, model=models)
    def save(self, model: DistributionalPPO) -> Any:
        file, kept = io.BytesIO(), model.__getstate__()["state"]
        model.save(file)
        lost = [key for key, state in captured(model).items() if state is not None and kept[key] is None]
        assert lost == []
        return file.getvalue(), kept

    @precondition(room)
    @rule(target=models, saved=files, with_env=st.booleans())
    def load(self, saved: tuple[bytes, Any], with_env: bool) -> DistributionalPPO:
        content, kept = saved
        env = configured_envs(self.name, seed=5) if with_env else None
        model = DistributionalPPO.load(io.BytesIO(content), env=env, device="cpu")
        assert differing(model.__getstate__()["state"], kept) == []
        return self.admit(model)

    @precondition(room)
    @rule(target=models, model=models)
    def pickled(self, model: DistributionalPPO) -> DistributionalPPO:
        kept = model.__getstate__()["state"]
        copied = pickle.loads(pickle.dumps(model))  # noqa: S301
        assert differing(copied.__getstate__()["state"], kept) == []
        return self.admit(copied)

    @rule(source=models, model=models, way=st.sampled_from(["memory", "file", *OPTIMIZER_STRATEGIES]), explored=changes)
    def hand_over(self, source: DistributionalPPO, model: DistributionalPPO, way: Any, explored: Any) -> None:
        self.about, self.falls = model, {"scaler"}
        expected, own = learnt(source), captured(model, Scope.PROGRESS, Scope.RUN)
        parameters = source.get_parameters()
        if way in OPTIMIZER_STRATEGIES:
            apply_exploit(model, parameters, explored, optimizer_exploit_strategy=way)
            self.check_settings(model, explored)
            self.check_no_memory(model)
            own["lstm_state"] = captured(model)["lstm_state"]
        else:
            model.set_parameters(parameters if way == "memory" else through_v2_file(parameters))
        if way == "reset":
            expected[OPTIMIZER] = {}
        assert differing(learnt(model), expected) == []
        assert differing(held(model), expected) == []
        assert not storages(parameters) & storages(model)
        assert differing(captured(model, Scope.PROGRESS, Scope.RUN), own) == []

    # -- changing parts -------------------------------------------------------------------------------------------

    @rule(model=models, seed=st.integers(0, 3))
    def set_env(self, model: DistributionalPPO, seed: int) -> None:
        self.about = model
        before = captured(model, Scope.LEARNER, Scope.PROGRESS)
        waiting = model.pending_state.get("normalizer_state")
        model.set_env(configured_envs(self.name, seed=seed))
        assert differing(captured(model, Scope.LEARNER, Scope.PROGRESS), before) == []
        if waiting is not None:
            assert differing(captured(model)["normalizer_state"], waiting) == []

    @rule(model=models, replaced=st.sampled_from([None, "action_net", "value_net", "lstm_critic"]))
    def rebuild_the_optimizer(self, model: DistributionalPPO, replaced: str | None) -> None:
        self.about = model
        before = learnt(model)
        if replaced is not None:
            setattr(model.policy, replaced, copy.deepcopy(getattr(model.policy, replaced)))
        model.rebuild_optimizer()
        assert differing(learnt(model), {**before, OPTIMIZER: {}}) == []

    @rule(model=models, hyperparams=changes)
    def set_hyperparameters(self, model: DistributionalPPO, hyperparams: dict[str, Any]) -> None:
        self.about = model
        before, own = learnt(model), captured(model, Scope.PROGRESS, Scope.RUN)
        set_hyperparameters(model, hyperparams)
        assert differing(learnt(model), before) == []
        assert differing(captured(model, Scope.PROGRESS, Scope.RUN), own) == []
        self.check_settings(model, hyperparams)

    @rule(model=models, wrong=st.sampled_from(sorted(INVALID)), hyperparams=changes, first=st.booleans())
    def refuse_hyperparameters(self, model: Any, wrong: str, hyperparams: dict[str, Any], first: bool) -> None:
        bad = {wrong: INVALID[wrong]}
        before = whole(model)
        with pytest.raises(SettingError):
            set_hyperparameters(model, {**bad, **hyperparams, **bad} if first else {**hyperparams, **bad})
        assert differing(whole(model), before) == []

    @rule(source=models, model=models, damaged=st.sampled_from(["policy", OPTIMIZER, "vgs_state", "env"]))
    def refuse_what_does_not_fit(self, source: DistributionalPPO, model: DistributionalPPO, damaged: str) -> None:
        before, parameters = whole(model), source.get_parameters()
        if damaged == "env":
            with pytest.raises((AssertionError, StateError), match="environment"):
                model.set_env(make_envs(n_envs=N_ENVS + 1))
        else:
            with pytest.raises(StateError):
                model.set_parameters({**parameters, damaged: {"nothing": torch.zeros(1)}})
        assert differing(whole(model), before) == []

    @rule(model=models)
    def forget(self, model: DistributionalPPO) -> None:
        """Of what was learnt only network and optimizer stay; the rest is as of a model that never trained."""
        self.about, self.falls = model, {"scaler"}
        self.give_env(model)
        before = captured(model, *LEARNT)
        fresh = [key for key in before if before[key] is not None and key not in ("policy", OPTIMIZER)]
        given, never = {key: before[key] for key in ("policy", OPTIMIZER)}, learnt(trained_model(self.name, rollouts=0))
        if fresh:
            with pytest.warns(ResumeWarning, match="starts fresh"):
                model.set_parameters(given)
        else:
            model.set_parameters(given)
        expected = {**without_settings(before), **{key: never[key] for key in fresh}}
        assert differing(learnt(model), expected) == []
        assert differing(held(model), expected) == []

    @rule(model=models)
    def forget_the_episodes(self, model: DistributionalPPO) -> None:
        self.about = model
        before = captured(model, *LEARNT, Scope.PROGRESS)
        model.reset_lstm_states_to_initial()
        assert differing(captured(model, *LEARNT, Scope.PROGRESS), before) == []
        self.check_no_memory(model)

    # -- looking --------------------------------------------------------------------------------------------------

    @rule(model=models, seed=st.integers(0, 3))
    def evaluate(self, model: DistributionalPPO, seed: int) -> None:
        """Acting at random draws from the global generators, and changes nothing else."""
        before, generators = whole(model), capture_generators()
        env = make_vec_env("CartPole-v1", N_ENVS, seed=seed, env_kwargs={"max_episode_steps": 6})
        evaluate_policy(model, env, n_eval_episodes=2, deterministic=True)
        assert differing(capture_generators(), generators) == []
        model.predict(env.reset())  # type: ignore[arg-type]
        apply_generators(generators)
        assert differing(whole(model), before) == []

    # -- what a rule asks of its own model ------------------------------------------------------------------------

    def check_settings(self, model: DistributionalPPO, given: dict[str, Any]) -> None:
        remaining = model._current_progress_remaining
        for name, value in given.items():
            if name == "weight_decay":
                assert {group[name] for group in model.policy.optimizer.param_groups} == {value}
            elif name in ("clip_range", "clip_range_vf"):
                schedule = getattr(model, name)
                assert (schedule and schedule(remaining)) == value
            else:
                assert getattr(model, name) == value

    def check_no_memory(self, model: DistributionalPPO) -> None:
        for state in (captured(model), model.__getstate__()["state"]):
            memory: Any = state["lstm_state"]
            if memory is not None:
                assert not any(bool(tensor.any()) for name in ("actor", "critic") for tensor in memory[name])

    # -- what always holds ----------------------------------------------------------------------------------------

    @invariant()
    def every_model_is_whole(self) -> None:
        for model in (known.model for known in self.known):
            self.check_identity(model)
            self.check_consistency(model)
            self.check_finiteness(model)
        self.check_isolation()
        self.check_progress()
        for known in self.known:
            known.state, known.counters = captured(known.model), counters(known.model)
        self.about, self.falls = None, set()

    def check_identity(self, model: DistributionalPPO) -> None:
        """Scaler and optimizer have the policy's parameters, each once."""
        own = [id(parameter) for parameter in model.policy.parameters()]
        optimizer = model.policy.optimizer
        trained = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
        assert sorted(trained) == sorted(own)
        assert {id(parameter) for parameter in optimizer.state} <= set(own)
        if model.variance_gradient_scaler is not None:
            assert [id(parameter) for parameter in model.variance_gradient_scaler.parameters] == own

    def check_consistency(self, model: DistributionalPPO) -> None:
        """Whatever keeps a copy of a setting or of a shape has the model's."""
        lr = model.learning_rate
        rates = {group["name"]: group["lr"] for group in model.policy.optimizer.param_groups}
        assert rates == {"actor": lr, "critic": lr * model.critic_lr_multiplier}  # type: ignore[operator]
        assert model.lr_schedule(model._current_progress_remaining) == lr
        assert (model.rollout_buffer.gamma, model.rollout_buffer.gae_lambda) == (model.gamma, model.gae_lambda)
        scaler, lstm = model.variance_gradient_scaler, model.policy.lstm_actor
        if scaler is not None:
            scaled = {name: getattr(scaler.settings, name.removeprefix("vgs_")) for name in SCALER_SETTINGS}
            assert scaled == {name: getattr(model, name) for name in SCALER_SETTINGS}
        shapes = {tuple(tensor.shape) for pair in model._last_lstm_states for tensor in pair}
        assert shapes == {(lstm.num_layers, N_ENVS, lstm.hidden_size)}

    def check_finiteness(self, model: DistributionalPPO) -> None:
        for tensor in tensors_in(captured(model, *LEARNT)):
            assert bool(tensor.isfinite().all())

    def check_isolation(self) -> None:
        """What a rule is not about is as it was, and would be if the others trained on."""
        assert shared_memory([known.model for known in self.known]) == []
        for known in self.known:
            if known.model is not self.about:
                assert differing(captured(known.model), known.state) == []

    def check_progress(self) -> None:
        """Nothing counts backwards but what the rule says."""
        for known in self.known:
            now, allowed = counters(known.model), self.falls if known.model is self.about else set()
            assert [name for name in now if now[name] < known.counters[name] and name not in allowed] == []


def walk(machine: TrainingMachine) -> Iterator[Any]:
    """Every rule once, in an order in which each has something to lose."""
    first, second = machine.begin(machine.name).values
    yield machine.set_hyperparameters(first, {name: values[1] for name, values in VALID.items()})
    yield machine.stop_in_a_rollout(first, 3)
    file = machine.save(first)
    yield machine.evaluate(first, 1)
    for wrong in INVALID:
        yield machine.refuse_hyperparameters(first, wrong, {"gamma": 0.9, "vgs_alpha": 2.0}, first=False)
    loaded = machine.load(file, with_env=False)
    yield machine.learn(first, 2, anew=False)
    for replaced in ("value_net", None):
        yield machine.rebuild_the_optimizer(first, replaced)
    yield machine.learn(first, 1, anew=True)
    for damaged in ("policy", OPTIMIZER, "vgs_state", "env"):
        yield machine.refuse_what_does_not_fit(second, first, damaged)
    for way in ("memory", "file", "copy", "reset"):
        yield machine.stop_in_a_rollout(second, 3)
        yield machine.hand_over(first, second, way, {"weight_decay": 1e-3})
        yield machine.learn(second, 1, anew=False)
    yield machine.set_env(loaded, 2)
    yield machine.learn(loaded, 1, anew=False)
    copied = machine.pickled(second)
    yield machine.forget_the_episodes(copied)
    yield machine.stop_in_a_rollout(copied, 2)
    yield machine.forget(copied)
    yield machine.learn(copied, 1, anew=False)


FAST = ("schedules, normaliser, mean", "atoms, Adam, element")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST)) for name in CONFIGURATIONS]
)
def test_every_rule_in_one_order(name: str) -> None:
    machine = TrainingMachine()
    machine.name = name
    for _ in walk(machine):
        machine.every_model_is_whole()


TestTraining = TrainingMachine.TestCase
TestTraining.settings = costly(12, stateful_step_count=15)
