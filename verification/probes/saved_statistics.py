"""Whether gradient statistics survive when models are saved, loaded, pickled and handed over."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from rlcore import CheckpointError, DistributionalPPO, ResumeWarning, StateError
from rlcore.state.training import Scope, StatePart
from rlcore.types import StateDict
from rlverify import Observation, probe
from verification.probes.make import Make, equal
from verification.probes.models import saved_and_loaded, scaler_of

ROLLOUT = 48
"""Environment steps of one update."""
OF_AN_UPDATE = 4
"""Optimizer steps of one update."""
WARM_UP = 6
"""Longer than one update and shorter than two."""
CYCLES = 2


@probe("the-scaler-acts-right-after-a-load")
def the_scaler_acts_right_after_a_load(make: Make, seed: int) -> Sequence[Observation]:
    """Save and load a model after its warm-up. Count the next steps that are not scaled."""
    loaded = saved_and_loaded(make, _trained(make, seed, updates=2), seed)
    scaler = scaler_of(loaded)
    generator = torch.Generator().manual_seed(seed)
    factors = []
    for _ in range(2 * WARM_UP):
        for parameter in scaler.parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        factors.append(scaler.scale_gradients())
        scaler.step()
    idle = sum(factor == 1.0 for factor in factors)
    return [equal("unscaled steps after load()", 0, idle)]


@probe("statistics-add-up-over-restarts")
def statistics_add_up_over_restarts(make: Make, seed: int) -> Sequence[Observation]:
    """Save and load after every update. Compare with an uninterrupted run."""
    whole = _trained(make, seed, updates=CYCLES)
    model, cycles = _cycled(make, seed)
    steps = scaler_of(model).step_count
    expected = CYCLES * OF_AN_UPDATE
    same = scaler_of(model).get_normalized_variance() == scaler_of(whole).get_normalized_variance()
    return [
        equal("save and load cycles without an error", CYCLES, cycles),
        equal(f"step_count after {CYCLES} restarts", expected, steps),
        Observation("normalized variance equal to an uninterrupted run's", "yes", _yes(same), holds=same),
    ]


@probe("saving-and-loading-again-and-again-completes")
def saving_and_loading_again_and_again_completes(make: Make, seed: int) -> Sequence[Observation]:
    """Save and load after every update. Count the cycles without an error."""
    _, cycles = _cycled(make, seed)
    return [equal("save and load cycles without an error", CYCLES, cycles)]


@probe("the-scaler-of-a-population-gets-beyond-its-warm-up")
def the_scaler_of_a_population_gets_beyond_its_warm_up(make: Make, seed: int) -> Sequence[Observation]:
    """Save and load a member after every update, as a population does, with a warm-up longer than one update."""
    model, acted = _trained(make, seed, updates=0), 0
    for _ in range(CYCLES):
        model.learn(ROLLOUT, reset_num_timesteps=False)
        acted += not scaler_of(model).is_warming_up
        model = saved_and_loaded(make, model, seed)
    expected = CYCLES - 1
    return [equal("updates after which the scaler's warm-up is over", expected, acted)]


@probe("evaluation-needs-the-statistics")
def evaluation_needs_the_statistics(make: Make, seed: int) -> Sequence[Observation]:
    """Compare a trained model's actions and values before and after its gradient statistics are reset."""
    model = _trained(make, seed, updates=2)
    observations = torch.randn(64, 4, generator=torch.Generator().manual_seed(seed))
    before = _answers(model, observations)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)
        scaler_of(model).reset_statistics()
    changed = [int((one != other).sum()) for one, other in zip(before, _answers(model, observations), strict=True)]
    return [
        Observation(f"{what} changed by a reset of the statistics", "some", str(count), holds=count > 0)
        for what, count in zip(("actions", "values"), changed, strict=True)
    ]


@probe("a-pickle-and-a-file-hold-the-statistics")
def a_pickle_and_a_file_hold_the_statistics(make: Make, seed: int) -> Sequence[Observation]:
    """Read step_count after unpickling, set_parameters() and load()."""
    model = _trained(make, seed, updates=1)
    pickled: DistributionalPPO = pickle.loads(pickle.dumps(model))  # noqa: S301  # our own object
    handed = _trained(make, seed + 1, updates=2)
    handed.set_parameters(model.get_parameters())
    return [
        _steps("step_count after unpickling", pickled),
        _steps("step_count after set_parameters()", handed),
        _steps("step_count after load()", saved_and_loaded(make, model, seed)),
    ]


@probe("damaged-statistics-are-refused-whole")
def damaged_statistics_are_refused_whole(make: Make, seed: int) -> Sequence[Observation]:
    """Load intact statistics, and pass parameters with damaged ones."""
    source, target = _trained(make, seed, updates=1), _trained(make, seed + 1, updates=2)
    parameters = source.get_parameters()
    damaged = {**parameters, "vgs_state": {**scaler_of(source).state_dict(), "step_count": -1}}
    before = target.policy.state_dict()["action_net.weight"].clone()
    outcome = "accepted"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)
        try:
            target.set_parameters(damaged)
        except StateError:
            outcome = "refused"
        kept = bool(torch.equal(before, target.policy.state_dict()["action_net.weight"]))
        loaded = saved_and_loaded(make, source, seed)
    return [
        _steps("step_count after load()", loaded, scaler_of(source).step_count),
        equal("set_parameters() with damaged statistics", "refused", outcome),
        Observation("weights after damaged statistics", "unchanged", "unchanged" if kept else "the source's", kept),
    ]


@probe("no-statistics-outlive-their-weights")
def no_statistics_outlive_their_weights(make: Make, seed: int) -> Sequence[Observation]:
    """Pass parameters with and without statistics. Check the scaler's step_count."""
    source, target, other = (_trained(make, seed + i, updates=updates) for i, updates in enumerate((1, 2, 2)))
    parameters = source.get_parameters()
    target.set_parameters(parameters, exact_match=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)
        other.set_parameters({key: state for key, state in parameters.items() if key != "vgs_state"})
    steps = scaler_of(other).step_count
    return [
        _steps("step_count after set_parameters() with statistics", target, scaler_of(source).step_count),
        equal("step_count after set_parameters() without statistics", 0, steps),
    ]


@probe("statistics-wait-for-whoever-goes-on")
def statistics_wait_for_whoever_goes_on(make: Make, seed: int) -> Sequence[Observation]:
    """Load and unpickle without an environment, set one afterwards, and train."""
    model = _trained(make, seed, updates=1)
    loaded = saved_and_loaded(make, model, seed, with_env=False)
    pickled: DistributionalPPO = pickle.loads(pickle.dumps(model))  # noqa: S301  # our own object
    observations = []
    for path, arrived in (("load()", loaded), ("unpickling", pickled)):
        observations.append(_steps(f"step_count after {path}, without an environment", arrived))
        arrived.set_env(make.envs(seed))
        arrived.learn(ROLLOUT, reset_num_timesteps=False)
        observations.append(_steps(f"step_count after {path}, set_env() and an update", arrived, 2 * OF_AN_UPDATE))
    return observations


@probe("a-relinked-scaler-remembers")
def a_relinked_scaler_remembers(make: Make, seed: int) -> Sequence[Observation]:
    """Load a model. Check that its scaler is linked to the policy and keeps its statistics."""
    loaded = saved_and_loaded(make, _trained(make, seed, updates=1), seed)
    linked = {id(parameter) for parameter in scaler_of(loaded).parameters}
    shared, total = sum(id(each) in linked for each in loaded.policy.parameters()), len(linked)
    norm = scaler_of(loaded).grad_norm_ema
    return [
        Observation(
            "parameters shared by scaler and policy after load()",
            f"{total}/{total}",
            f"{shared}/{total}",
            shared == total,
        ),
        _steps("step_count after load()", loaded),
        Observation(
            "grad_norm_ema after load()", "a number", "None" if norm is None else "a number", holds=norm is not None
        ),
    ]


@probe("the-scaler-is-linked-after-every-event")
def the_scaler_is_linked_after_every_event(make: Make, seed: int) -> Sequence[Observation]:
    """Count the policy's gradients that the scaler scales, after each event that could unlink them."""
    model, handed, rebuilt = (_trained(make, seed + i, updates=2) for i in range(3))
    handed.set_parameters(model.get_parameters())
    rebuilt.rebuild_optimizer()
    pickled: DistributionalPPO = pickle.loads(pickle.dumps(model))  # noqa: S301  # our own object
    arrived = {
        "load()": saved_and_loaded(make, model, seed),
        "unpickling": pickled,
        "set_parameters()": handed,
        "rebuild_optimizer()": rebuilt,
    }
    return [_scaled(f"gradients scaled after {event}", each) for event, each in arrived.items()]


@probe("the-kl-penalty-survives")
def the_kl_penalty_survives(make: Make, seed: int) -> Sequence[Observation]:
    """Train with a KL penalty that grows every update. Check its coefficient after load() and set_parameters()."""
    model = _trained(make, seed, updates=2, kl_penalty_target=1e-9)
    other = _trained(make, seed + 1, updates=0, kl_penalty_target=1e-9)
    before, fresh = model.kl_penalty.coefficient, other.kl_penalty.coefficient
    other.set_parameters(model.get_parameters())
    after = {"load()": saved_and_loaded(make, model, seed), "set_parameters()": other}
    return [
        Observation(
            f"KL penalty coefficient after {path}",
            f"{before / fresh:g} times the initial one",
            f"{each.kl_penalty.coefficient / fresh:g} times the initial one",
            holds=each.kl_penalty.coefficient == before != fresh,
        )
        for path, each in after.items()
    ]


class WithOneMorePart(DistributionalPPO):
    """A model with one more part of training state: a count that only the registry knows."""

    added = 0

    def _state_parts(self) -> list[StatePart]:
        def restore(state: StateDict) -> None:
            self.added = int(str(state["count"]))

        return [
            *super()._state_parts(),
            StatePart("added_state", Scope.LEARNER, lambda: {"count": self.added}, restore),
        ]


@probe("a-part-added-later-travels-on-every-path")
def a_part_added_later_travels_on_every_path(make: Make, seed: int) -> Sequence[Observation]:
    """Add a part to the registry. Check it after load(), unpickling and set_parameters()."""
    extended = replace(make, algorithm=WithOneMorePart)
    model, other = (_trained(extended, seed + i, updates=1) for i in range(2))
    assert isinstance(model, WithOneMorePart), "the class was asked for"
    model.added = 41
    other.set_parameters(model.get_parameters(), exact_match=False)
    arrived: dict[str, Any] = {
        "load()": saved_and_loaded(extended, model, seed),
        "unpickling": pickle.loads(pickle.dumps(model)),  # noqa: S301  # our own object
        "set_parameters()": other,
    }
    parts = [equal(f"value of the added state part after {path}", 41, each.added) for path, each in arrived.items()]
    return [*parts, _steps("step_count after set_parameters()", other)]


def _trained(make: Make, seed: int, *, updates: int, **settings: Any) -> DistributionalPPO:
    model = make.model(seed, n_steps=16, batch_size=24, vgs_warmup_steps=WARM_UP, vgs_alpha=1.0, **settings)
    if updates:
        model.learn(updates * model.n_steps * model.n_envs)
    return model


def _cycled(make: Make, seed: int) -> tuple[DistributionalPPO, int]:
    """Return a model saved and loaded after every update, and the number of cycles without an error."""
    model = _trained(make, seed, updates=0)
    for cycle in range(CYCLES):
        model.learn(ROLLOUT, reset_num_timesteps=False)
        try:
            model = saved_and_loaded(make, model, seed)
        except CheckpointError:
            return model, cycle
    return model, CYCLES


def _steps(symptom: str, model: DistributionalPPO, expected: int = OF_AN_UPDATE) -> Observation:
    steps = scaler_of(model).step_count
    return equal(symptom, expected, steps)


def _scaled(symptom: str, model: DistributionalPPO) -> Observation:
    parameters = list(model.policy.parameters())
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    scaler_of(model).scale_gradients()
    changed = sum(parameter.grad is not None and not bool((parameter.grad == 1.0).any()) for parameter in parameters)
    total = len(parameters)
    return Observation(symptom, f"{total}/{total}", f"{changed}/{total}", holds=changed == total)


def _answers(model: DistributionalPPO, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Deterministic actions and values of observations, each at the start of an episode."""
    actions, _ = model.predict(
        observations.numpy(), episode_start=torch.ones(len(observations)).numpy(), deterministic=True
    )
    hidden = model.policy.lstm_actor.hidden_size
    state = (torch.zeros(1, len(observations), hidden), torch.zeros(1, len(observations), hidden))
    with torch.no_grad():
        values = model.policy.predict_values(observations, state, torch.ones(len(observations)))
    return torch.as_tensor(actions), values


def _yes(value: bool) -> str:
    return "yes" if value else "no"
