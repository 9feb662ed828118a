"""What becomes of gradient statistics, and of what they are for, where models are saved, loaded and handed on."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from rlcore import CheckpointError, DistributionalPPO, ResumeWarning, StateError
from rlcore.state.registry import Scope, StatePart
from rlcore.types import StateDict
from rlverify import Observation, probe
from verification.probes.make import Make
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
    """Save a model whose warm-up is over, load it, and count the steps in which the scaler then does nothing."""
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
    return [Observation("steps after load() that are not scaled", "0", str(idle), holds=idle == 0)]


@probe("statistics-add-up-over-restarts")
def statistics_add_up_over_restarts(make: Make, seed: int) -> Sequence[Observation]:
    """Train for an update, save, load, and so on; compare with a run that was never interrupted."""
    whole = _trained(make, seed, updates=CYCLES)
    model, cycles = _cycled(make, seed)
    steps = scaler_of(model).step_count
    expected = CYCLES * OF_AN_UPDATE
    same = scaler_of(model).get_normalized_variance() == scaler_of(whole).get_normalized_variance()
    return [
        Observation("cycles without an error", str(CYCLES), str(cycles), holds=cycles == CYCLES),
        Observation(f"step_count after {CYCLES} restarts", str(expected), str(steps), holds=steps == expected),
        Observation("normalized variance as without a restart", "yes", _yes(same), holds=same),
    ]


@probe("saving-and-loading-again-and-again-completes")
def saving_and_loading_again_and_again_completes(make: Make, seed: int) -> Sequence[Observation]:
    """Train for an update, save, load, and so on; count the cycles that end."""
    _, cycles = _cycled(make, seed)
    return [Observation("cycles without an error", str(CYCLES), str(cycles), holds=cycles == CYCLES)]


@probe("the-scaler-of-a-population-gets-beyond-its-warm-up")
def the_scaler_of_a_population_gets_beyond_its_warm_up(make: Make, seed: int) -> Sequence[Observation]:
    """Save and load a member after every update, as a population does, under a warm-up of more than one update."""
    model, acted = _trained(make, seed, updates=0), 0
    for _ in range(CYCLES):
        model.learn(ROLLOUT, reset_num_timesteps=False)
        acted += not scaler_of(model).is_warming_up
        model = saved_and_loaded(make, model, seed)
    expected = CYCLES - 1
    return [
        Observation("updates at whose end the scaler acts", str(expected), str(acted), holds=acted == expected),
    ]


@probe("evaluation-needs-the-statistics")
def evaluation_needs_the_statistics(make: Make, seed: int) -> Sequence[Observation]:
    """Ask a trained model for actions and values, take its gradient statistics away, and ask again."""
    model = _trained(make, seed, updates=2)
    observations = torch.randn(64, 4, generator=torch.Generator().manual_seed(seed))
    before = _answers(model, observations)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)
        scaler_of(model).reset_statistics()
    changed = [int((one != other).sum()) for one, other in zip(before, _answers(model, observations), strict=True)]
    return [
        Observation(f"{what} that change with the statistics", "some", str(count), holds=count > 0)
        for what, count in zip(("actions", "values"), changed, strict=True)
    ]


@probe("a-pickle-and-a-file-hold-the-statistics")
def a_pickle_and_a_file_hold_the_statistics(make: Make, seed: int) -> Sequence[Observation]:
    """Count steps after a pickle, after get_parameters() and after save()."""
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
    """Hand over parameters with statistics as they are, and with statistics that cannot be."""
    source, target = _trained(make, seed, updates=1), _trained(make, seed + 1, updates=2)
    parameters = source.get_parameters()
    damaged = {**parameters, "vgs_state": {**scaler_of(source).state_dict(), "step_count": -1}}
    before = target.policy.state_dict()["action_net.weight"].clone()
    outcome = "taken"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)
        try:
            target.set_parameters(damaged)
        except StateError:
            outcome = "refused"
        kept = bool(torch.equal(before, target.policy.state_dict()["action_net.weight"]))
        loaded = saved_and_loaded(make, source, seed)
    return [
        _steps("step_count after load()", loaded),
        Observation("parameters with damaged statistics", "refused", outcome, holds=outcome == "refused"),
        Observation("weights after damaged statistics", "as before", "as before" if kept else "the source's", kept),
    ]


@probe("no-statistics-outlive-their-weights")
def no_statistics_outlive_their_weights(make: Make, seed: int) -> Sequence[Observation]:
    """Hand over parameters with and without statistics; what does the scaler hold?"""
    source, target, other = (_trained(make, seed + i, updates=updates) for i, updates in enumerate((1, 2, 2)))
    parameters = source.get_parameters()
    target.set_parameters(parameters, exact_match=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)
        other.set_parameters({key: state for key, state in parameters.items() if key != "vgs_state"})
    steps = scaler_of(other).step_count
    return [
        _steps("step_count after parameters with statistics", target),
        Observation("step_count after parameters without", "0", str(steps), holds=steps == 0),
    ]


@probe("statistics-wait-for-whoever-goes-on")
def statistics_wait_for_whoever_goes_on(make: Make, seed: int) -> Sequence[Observation]:
    """Load and unpickle without an environment, give one afterwards, and train on."""
    model = _trained(make, seed, updates=1)
    loaded = saved_and_loaded(make, model, seed, with_env=False)
    pickled: DistributionalPPO = pickle.loads(pickle.dumps(model))  # noqa: S301  # our own object
    observations = []
    for path, arrived in (("load()", loaded), ("unpickling", pickled)):
        observations.append(_steps(f"step_count after {path}, without an environment", arrived))
        arrived.set_env(make.envs(seed))
        arrived.learn(ROLLOUT, reset_num_timesteps=False)
        observations.append(_steps(f"step_count after {path} and an update", arrived, 2 * OF_AN_UPDATE))
    return observations


@probe("a-relinked-scaler-remembers")
def a_relinked_scaler_remembers(make: Make, seed: int) -> Sequence[Observation]:
    """Load a model: is its scaler linked to what trains, and does it remember what it measured?"""
    loaded = saved_and_loaded(make, _trained(make, seed, updates=1), seed)
    linked = {id(parameter) for parameter in scaler_of(loaded).parameters}
    shared, total = sum(id(each) in linked for each in loaded.policy.parameters()), len(linked)
    norm = scaler_of(loaded).grad_norm_ema
    return [
        Observation("parameters shared by scaler and policy", f"{total}/{total}", f"{shared}/{total}", shared == total),
        _steps("step_count", loaded),
        Observation("grad_norm_ema", "a number", "None" if norm is None else "a number", holds=norm is not None),
    ]


@probe("the-scaler-is-linked-after-every-event")
def the_scaler_is_linked_after_every_event(make: Make, seed: int) -> Sequence[Observation]:
    """Count the gradients of the policy that the scaler multiplies, after each event that could part them."""
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
    """Train under a penalty that grows with every update, save, load and hand over: which coefficient is in force?"""
    model = _trained(make, seed, updates=2, kl_penalty_target=1e-9)
    other = _trained(make, seed + 1, updates=0, kl_penalty_target=1e-9)
    before, fresh = model.kl_penalty.coefficient, other.kl_penalty.coefficient
    other.set_parameters(model.get_parameters())
    after = {"load()": saved_and_loaded(make, model, seed), "set_parameters()": other}
    return [
        Observation(
            f"coefficient after {path}",
            f"{before / fresh:g} times the first",
            f"{each.kl_penalty.coefficient / fresh:g} times the first",
            holds=each.kl_penalty.coefficient == before != fresh,
        )
        for path, each in after.items()
    ]


class WithOneMorePart(DistributionalPPO):
    """A model with a count of its own, which nothing but the registry of training state knows."""

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
    """Add a part to the registry, and look for it after a file, a pickle and a hand-over of parameters."""
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
    parts = [
        Observation(f"the added part after {path}", "41", str(each.added), holds=each.added == 41)
        for path, each in arrived.items()
    ]
    return [*parts, _steps("step_count after set_parameters()", other)]


def _trained(make: Make, seed: int, *, updates: int, **settings: Any) -> DistributionalPPO:
    model = make.model(seed, n_steps=16, batch_size=24, vgs_warmup_steps=WARM_UP, vgs_alpha=1.0, **settings)
    if updates:
        model.learn(updates * ROLLOUT)
    return model


def _cycled(make: Make, seed: int) -> tuple[DistributionalPPO, int]:
    """A model that was saved and loaded after every update, and how often that went well."""
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
    return Observation(symptom, str(expected), str(steps), holds=steps == expected)


def _scaled(symptom: str, model: DistributionalPPO) -> Observation:
    parameters = list(model.policy.parameters())
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    scaler_of(model).scale_gradients()
    changed = sum(parameter.grad is not None and not bool((parameter.grad == 1.0).any()) for parameter in parameters)
    total = len(parameters)
    return Observation(symptom, f"{total}/{total}", f"{changed}/{total}", holds=changed == total)


def _answers(model: DistributionalPPO, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Actions, taken without chance, and values of observations that each start an episode."""
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
