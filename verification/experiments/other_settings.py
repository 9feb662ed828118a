"""Probes under settings that their verdict depends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rlverify import experiment, get_fault, plant
from verification.faults import noise_and_scaling, values  # noqa: F401
from verification.probes.gradient_noise import kept_by_layers
from verification.probes.make import Make
from verification.probes.monitoring import logged_noise
from verification.probes.noise_and_scaling import noise_and_step
from verification.probes.values import explained_variance
from verification.probes.warm_up import steps_if_steps_are_meant

NOISE: Final[Mapping[str, Mapping[str, float]]] = {
    "clipped at 0.5": {"clip": 0.5},
    "alpha 0.025": {"alpha": 0.025},
    "warm-up of 100": {"warm_up": 100},
}


@experiment("noise-under-other-settings")
def noise_under_other_settings(make: Make, seed: int) -> Mapping[str, float]:
    """The noise-to-signal ratio of AdaptiveUPGD with noise of a fixed size, and with document 000's third option."""
    with plant(get_fault("int-04-noise-of-fixed-size")):
        found = {name: noise_and_step(make, seed, **own)[0] for name, own in NOISE.items()}  # type: ignore[arg-type]
    with plant(get_fault("int-04-option-3-weaker-scaling")):
        found["option 3, alpha 0.05"] = noise_and_step(make, seed, alpha=0.05)[0]
    return {f"noise-to-signal times, {name}": value for name, value in found.items()}


@experiment("critics-under-other-settings")
def critics_under_other_settings(make: Make, seed: int) -> Mapping[str, float]:
    """What critics explain after twice the steps with the bug, and at a lower rate without it."""
    with plant(get_fault("fnd-35-critic-begun-by-its-hidden-size")):
        longer = explained_variance(make, seed, steps=100)
    slower = explained_variance(make, seed, learning_rate=5e-4)
    return {"explained with the bug, 100 steps": longer, "explained without it, learning rate 5e-4": slower}


@experiment("logged-noise-with-a-memory")
def logged_noise_with_a_memory(make: Make, seed: int) -> Mapping[str, float]:
    """The logged noise-to-signal ratio over sigma at the default noise_beta."""
    return {"logged ratio over sigma": logged_noise(make, seed, noise_beta=0.999)}


@experiment("warm-up-read-as-steps")
def warm_up_read_as_steps(make: Make, seed: int) -> Mapping[str, float]:
    """The documents' inequality, with update_batch_size as the optimizer steps of an update."""
    return {"steps before the first exploit": float(steps_if_steps_are_meant(make, seed))}


@experiment("noise-that-the-mean-keeps")
def noise_that_the_mean_keeps(make: Make, seed: int) -> Mapping[str, float]:
    """The layers of PPO-01-3 and PPO-01-4, by the measure of PPO-01-5."""
    return {f"share of the noise, {name}": share for name, share in kept_by_layers(make, seed).items()}
