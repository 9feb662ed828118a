"""What one run of a probe or of an experiment observed; frozen records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

Variant: TypeAlias = Literal["healthy", "faulty", "documented_fix"]


VARIANTS: tuple[Variant, ...] = get_args(Variant)


@dataclass(frozen=True)
class Observation:
    """One symptom, measured once.

    :param symptom: what was looked at; the same words in every variant and seed
    :param before: the printed value that is expected: that before the event under test
    :param after: the printed value that is observed: that after it
    :param holds: whether the value is as it should be
    :param repeats: False where the texts differ between machines (raw floats); evidence then keeps only ``holds``
    :param roughly: ``after`` as a bound or in words, where these repeat and its digits do not; evidence keeps them
    """

    symptom: str
    before: str
    after: str
    holds: bool
    repeats: bool = True
    roughly: str | None = None

    def __post_init__(self) -> None:
        texts = (self.symptom, self.before, self.after)
        if not all(isinstance(text, str) for text in texts) or type(self.holds) is not bool:
            raise TypeError(
                f"an observation takes three texts and a bool, not {texts} and {self.holds!r}; "
                "write str(...) and bool(...)"
            )


@dataclass(frozen=True)
class Run:
    """One probe, run once under one variant and one seed.

    :param executions: how often the planted fault ran; 0 where production code runs other code, None where nothing was
        planted
    :param error: one line, where the probe crashed or its process died
    :param stale: the fault's target has changed, so that nothing was run
    :param traceback: the whole of ``error``, for the raw evidence only
    :param seconds: how long it took on the machine that ran it
    :param hint: why production code does not run the planted fault, and what to target instead
    """

    variant: Variant
    seed: int
    observations: tuple[Observation, ...] = ()
    executions: int | None = None
    error: str | None = None
    stale: bool = False
    traceback: str | None = None
    seconds: float = field(default=0.0, compare=False)
    hint: str | None = None


@dataclass(frozen=True)
class PairedRun:
    """One experiment, run once under one seed.

    :param quantities: name and value of each, in the unit of the claim that names it, finite
    :param seconds: how long it took on the machine that ran it
    :param error: one line, where the experiment crashed or its process died
    :param traceback: the whole of ``error``, for the raw evidence only
    """

    experiment: str
    seed: int
    quantities: tuple[tuple[str, float], ...] = ()
    seconds: float = 0.0
    error: str | None = None
    traceback: str | None = None

    def value_of(self, quantity: str) -> float | None:
        """The value of one quantity, or None if the run crashed or does not give it."""
        return dict(self.quantities).get(quantity) if self.error is None else None

    def why_without(self, quantity: str) -> str:
        """Why there is no value of a quantity."""
        given = ", ".join(repr(name) for name, _ in self.quantities)
        return self.error or f"gives no quantity {quantity!r}, but {given}"
