"""Which settings are still in force after saving and loading."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from stable_baselines3.common.utils import LinearSchedule

from rlcore import CheckpointError, DistributionalPPO, PPOSettings
from rlverify import Observation, probe
from verification.probes.make import Make, equal

MULTIPLIER = 3.0
WHILE = (1.0, 0.5, 0.0)
"""Remaining progress at which schedules are compared."""


@probe("settings-survive-save-and-load")
def settings_survive_save_and_load(make: Make, seed: int) -> Sequence[Observation]:
    """Save a model with schedules and a separate rate for the critics. Check the settings of the loaded model."""
    model = make.model(
        seed,
        learning_rate=LinearSchedule(1e-3, 1e-4, 1.0),
        clip_range=LinearSchedule(0.3, 0.1, 1.0),
        critic_lr_multiplier=MULTIPLIER,
    )
    model.learn(96)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        loaded = _saved_and_loaded(model, make.envs(seed))
    lost = _changed_without_a_word(model, loaded, [str(each.message) for each in told])
    if isinstance(loaded, DistributionalPPO):
        loaded.learn(96, reset_num_timesteps=False)
    return [
        _seen("clip range after load()", loaded, lambda it: [it.clip_range(x) for x in WHILE], model),
        _seen("learning rate after load()", loaded, lambda it: [it.lr_schedule(x) for x in WHILE], model),
        _seen("critics' learning rate / actor's, after load() and training", loaded, _critics_over_actor, model),
        _seen("settings unchanged by load()", loaded, lambda it: _same_settings(model, it), model),
        equal("settings that load() changes without a warning", "none", lost),
        _pickles(model),
        _function_is_asked_for(make, seed),
        _two_phases(make, seed),
    ]


def _saved_and_loaded(model: DistributionalPPO, env: Any, **custom_objects: Any) -> DistributionalPPO | CheckpointError:
    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    try:
        return type(model).load(file, env=env, device="cpu", custom_objects=custom_objects)
    except CheckpointError as error:
        return error


def _seen(
    symptom: str,
    loaded: DistributionalPPO | CheckpointError,
    look: Callable[[DistributionalPPO], object],
    model: DistributionalPPO,
) -> Observation:
    before = str(look(model))
    after = "cannot be loaded" if isinstance(loaded, CheckpointError) else str(look(loaded))
    return Observation(symptom, before, after, holds=before == after)


def _critics_over_actor(model: DistributionalPPO) -> str:
    rates = {group["name"]: group["lr"] for group in model.policy.optimizer.param_groups}
    return f"{rates['critic'] / rates['actor']:.3g}"


def _same_settings(model: DistributionalPPO, other: DistributionalPPO) -> str:
    names = list(PPOSettings.model_fields)
    return f"{sum(_value(model, name) == _value(other, name) for name in names)}/{len(names)}"


def _changed_without_a_word(
    model: DistributionalPPO, loaded: DistributionalPPO | CheckpointError, told: Sequence[str]
) -> str:
    """Return the settings that load() changed and no warning names; "none" if load() raised."""
    if isinstance(loaded, CheckpointError):
        return "none"
    changed = [name for name in PPOSettings.model_fields if _value(model, name) != _value(loaded, name)]
    return ", ".join(name for name in changed if not any(name in words for words in told)) or "none"


def _value(model: DistributionalPPO, name: str) -> object:
    value = getattr(model, name)
    return [value(x) for x in WHILE] if callable(value) and not isinstance(value, type) else value


def _pickles(model: DistributionalPPO) -> Observation:
    try:
        pickle.dumps(model)
        after = "succeeds"
    except (pickle.PicklingError, AttributeError, TypeError):
        after = "fails"
    return equal("pickling the model", "succeeds", after)


def _function_is_asked_for(make: Make, seed: int) -> Observation:
    """Load a model saved with a lambda, which no file holds. The error must name the setting to pass again."""
    model = make.model(seed, clip_range=lambda remaining: 0.3 * remaining)
    loaded = _saved_and_loaded(model, None)
    if isinstance(loaded, CheckpointError):
        named = [word for word in ("'clip_range'", "custom_objects") if word in str(loaded)]
        found = f"refused, error names {' and '.join(named) or 'nothing'}"
    else:
        found = f"loaded, clip range {loaded.clip_range(1.0):.3g}, was {model.clip_range(1.0):.3g}"
    wanted = "refused, error names 'clip_range' and custom_objects"
    return equal("load() without the clip-range function", wanted, found)


def _two_phases(make: Make, seed: int) -> Observation:
    """Construct a model in two phases, as load() does. It must equal one built in a single phase."""
    whole = make.model(seed)
    halves = make.model(seed, _init_setup_model=False)
    untouched = not hasattr(halves, "policy")
    halves._setup_model()
    pairs = list(zip(whole.policy.parameters(), halves.policy.parameters(), strict=True))
    equal = sum(torch.equal(one, other) for one, other in pairs)
    expected = f"{len(pairs)}/{len(pairs)}"
    symptom = "parameters equal after one-phase and two-phase construction"
    return Observation(symptom, expected, f"{equal}/{len(pairs)}", holds=untouched and equal == len(pairs))
