"""UPGD and AdaptiveUPGD as slow float64 NumPy, written from the formulas of Elsayed and Mahmood (ICLR 2024).

Every average is the explicit weighted sum over the whole history, normalised by the sum of its weights; nothing is
kept from step to step but the history itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def weighted_average(history: Sequence[Array], decay: float) -> Array:
    """Exponentially weighted average of a history, newest last; the weights sum to 1."""
    ages = np.arange(len(history) - 1, -1, -1)
    weights = decay**ages
    return np.asarray(np.tensordot(weights / weights.sum(), np.stack(history), axes=1))


def protection(utilities: Sequence[Array]) -> list[Array]:
    """The share by which every weight is protected, from the utilities of all weights together."""
    everything = np.concatenate([utility.ravel() for utility in utilities])
    divisor = everything.max()
    if divisor <= 0:
        divisor = np.abs(everything).max()
    if divisor == 0:
        return [np.full(utility.shape, 0.5) for utility in utilities]
    with np.errstate(over="ignore", under="ignore"):
        return [0.5 * (1.0 + np.tanh(0.5 * (utility / divisor))) for utility in utilities]


class ReferenceUPGD:
    """Parameters are a list of arrays; each step takes the gradients and, if there is noise, standard normal draws."""

    def __init__(
        self,
        parameters: Sequence[Array],
        *,
        adaptive_direction: bool,
        lr: float,
        weight_decay: float = 1e-3,
        beta_utility: float = 0.999,
        sigma: float = 1e-3,
        adaptive_noise: bool = False,
        noise_beta: float = 0.999,
        min_noise_std: float = 1e-6,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.parameters = [np.array(parameter, dtype=np.float64) for parameter in parameters]
        self.adaptive_direction = adaptive_direction
        self.lr, self.weight_decay, self.beta_utility = lr, weight_decay, beta_utility
        self.sigma, self.adaptive_noise, self.noise_beta = sigma, adaptive_noise, noise_beta
        self.min_noise_std, self.betas, self.eps = min_noise_std, betas, eps
        self.utilities: list[list[Array]] = [[] for _ in parameters]
        self.gradients: list[list[Array]] = [[] for _ in parameters]
        self.sizes: list[list[Array]] = [[] for _ in parameters]

    def step(self, gradients: Sequence[Array], draws: Sequence[Array] | None = None) -> None:
        for position, (parameter, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
            self.utilities[position].append(-gradient * parameter)
            self.gradients[position].append(np.array(gradient, dtype=np.float64))
        protected = protection([weighted_average(history, self.beta_utility) for history in self.utilities])
        for position, parameter in enumerate(self.parameters):
            direction = self._direction(position)
            noise = 0.0 if draws is None else draws[position] * self._noise_std(position, direction)
            change = (direction + noise) * (1 - protected[position])
            self.parameters[position] = parameter - self.lr * self.weight_decay * parameter - self.lr * change

    def _direction(self, position: int) -> Array:
        history = self.gradients[position]
        if not self.adaptive_direction:
            return history[-1]
        mean = weighted_average(history, self.betas[0])
        square = weighted_average([gradient**2 for gradient in history], self.betas[1])
        return np.asarray(mean / (np.sqrt(square) + self.eps))

    def _noise_std(self, position: int, direction: Array) -> float:
        if not self.adaptive_noise:
            return self.sigma
        self.sizes[position].append(np.sqrt(np.mean(direction**2)))
        return max(self.sigma * float(weighted_average(self.sizes[position], self.noise_beta)), self.min_noise_std)
