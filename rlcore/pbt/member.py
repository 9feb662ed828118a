"""One member of a population, as the scheduler knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from rlcore.errors import StateError
from rlcore.pbt.hyperparams import Hyperparams, HyperparamValue
from rlcore.types import StateDict

Natural = Annotated[int, Field(ge=0)]


@dataclass(config=ConfigDict(strict=True, extra="forbid"))
class PopulationMember:
    """What is known of one member; it holds plain Python only.

    :param member_id: its number in the population, from 0
    :param hyperparams: values by name, which train it now
    :param performance: its last score; None before the first, NaN if it diverged
    :param step: at which the score was reported
    :param checkpoint_path: file of its last saved parameters, or None
    :param history: one ``{"step", "performance", "hyperparams"}`` a report, oldest first
    :param checkpoint_hyperparams: those under which what is in the file was trained; None for ``hyperparams``
    :param saved_steps: steps of which it still has a file, in the order of writing
    :param copied_from: the member that it copied when it was last asked to exploit, or None if it copied nothing
    """

    member_id: Natural
    hyperparams: Hyperparams
    performance: float | None = None
    step: Natural = 0
    checkpoint_path: str | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    checkpoint_hyperparams: Hyperparams | None = None
    saved_steps: list[Natural] = field(default_factory=list)
    copied_from: Natural | None = None

    def record_step(self, step: int, performance: float, hyperparams: Mapping[str, HyperparamValue]) -> None:
        """Take a score as the present one and add it to the history.

        :param hyperparams: under which the score was reached
        """
        self.step = step
        self.performance = performance
        self.history.append({"step": step, "performance": performance, "hyperparams": dict(hyperparams)})

    def state_dict(self) -> StateDict:
        """The member as plain Python that shares nothing with it."""
        return asdict(self)  # type: ignore[return-value]  # dict is invariant in its keys


def member_from_state(state: object) -> PopulationMember:
    """The member that :meth:`PopulationMember.state_dict` described.

    :raises StateError: if a field is missing, unknown or of the wrong type
    """
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise StateError(f"a member's state is a {type(state).__name__}, not a dict of fields; the state is damaged")
    try:
        return PopulationMember(**state)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise StateError(f"a member's {first['loc'][0]!r} cannot be restored: {first['msg'].lower()}") from error
