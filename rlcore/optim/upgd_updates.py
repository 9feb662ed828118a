"""What one step of a UPGD optimizer works on: single parameters, or all of a group as one flat vector.

A small tensor costs an elementwise operation about a microsecond before its first element is touched. In one vector
a group pays that once an operation instead of once a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from rlcore.optim.upgd_state import Averages, state_dtype

Group: TypeAlias = dict[str, Any]
State: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Update:
    """One parameter that has a gradient in this step.

    :param gradient: as found until it is checked; then in the dtype of the state and bounded
    :param position: index of the group, index in the group
    :param state: its averages and their counters, complete once it is prepared
    """

    parameter: Tensor
    gradient: Tensor
    group: Group
    position: tuple[int, int]
    state: State

    @property
    def label(self) -> str:
        """The parameter's name, or where it stands."""
        group_index, index = self.position
        if names := self.group.get("param_names"):
            return str(names[index])
        return f"parameter {index} of group {group_index}, shape {tuple(self.parameter.shape)}"

    @property
    def members(self) -> Sequence[Update]:
        """The single parameters that it consists of."""
        return (self,)

    def advance(self, counter: str) -> None:
        """Count one step."""
        self.state[counter] += 1

    def write(self, values: Tensor) -> None:
        """Give the parameter its new values, in its own dtype."""
        self.parameter.copy_(values)

    def workspace(self, name: str) -> Tensor:  # noqa: ARG002
        """Memory for a temporary result in the shape of the parameter; what it holds is left from before."""
        return torch.empty_like(self.gradient)


@dataclass(slots=True)
class Bundle(Update):
    """All parameters of a group that have a gradient, one after the other in one vector.

    :param parts: its members; each one's averages are views of the vectors in ``state``
    """

    parts: Sequence[Update]
    vectors: Vectors

    @classmethod
    def of(cls, parts: Sequence[Update], vectors: Vectors) -> Bundle:
        """The vector of their gradients; what else a step needs is added by :meth:`fill`."""
        gradient = vectors.gathered("gradient", [part.gradient for part in parts])
        return cls(gradient, gradient, parts[0].group, parts[0].position, {}, parts, vectors)

    def fill(self, averages: Averages) -> None:
        """Take the parameters, averages and counters as they are now.

        :param averages: of which the state of every part holds each, and each counter
        """
        first = self.parts[0].state
        self.parameter = self.vectors.gathered("parameter", [part.parameter for part in self.parts])
        self.state = self.vectors.averages([part.state for part in self.parts], averages)
        self.state.update((counter, first[counter]) for counter in averages)

    @property
    def members(self) -> Sequence[Update]:
        return self.parts

    def advance(self, counter: str) -> None:
        self.state[counter] += 1
        for part in self.parts:
            part.state[counter] = self.state[counter]

    def write(self, values: Tensor) -> None:
        self.vectors.scattered("parameter", values, [part.parameter for part in self.parts])

    def workspace(self, name: str) -> Tensor:
        return self.vectors.room(name)


def can_be_bundled(parts: Sequence[Update], averages: Averages) -> bool:
    """Whether the parameters of a group make one vector: several, of one device, dtype and number of steps.

    Adaptive noise follows every tensor by itself, so it is left to single updates.
    """
    first, *others = parts
    if not others or (first.group["adaptive_noise"] and first.group["sigma"] > 0):
        return False
    kind = (first.parameter.device, state_dtype(first.parameter))
    counts = [first.state.get(counter) for counter in averages]
    return all(
        (part.parameter.device, part.parameter.dtype) == kind
        and [part.state.get(counter) for counter in averages] == counts
        for part in parts
    )


class Vectors:
    """Vectors over the elements of certain parameters, kept from step to step: their averages, and room for results.

    The state of every parameter holds views of the averages, so that whatever reads or writes it in place meets the
    same numbers. What replaces an entry of it, as loading does, is noticed, and the vectors are made anew. Room is
    kept because fresh memory, which the system maps page by page, can cost more than what is computed in it.

    :param like: one tensor for each parameter
    """

    def __init__(self, like: Sequence[Tensor]) -> None:
        self._shapes = [tensor.shape for tensor in like]
        self._sizes = [tensor.numel() for tensor in like]
        self._options = {"dtype": like[0].dtype, "device": like[0].device}
        self._rooms: dict[str, Tensor] = {}
        self._views: dict[str, list[Tensor]] = {}
        self._known: list[tuple[State, str, Tensor]] = []

    def fit(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these could be the parameters' tensors."""
        like = tensors[0]
        return self._options == {"dtype": like.dtype, "device": like.device} and self._shapes == [
            tensor.shape for tensor in tensors
        ]

    def room(self, name: str) -> Tensor:
        """Memory for a result; what it holds is left from before."""
        if name not in self._rooms:
            self._add(name, torch.empty(sum(self._sizes), **self._options))  # type: ignore[call-overload]
        return self._rooms[name]

    def gathered(self, name: str, tensors: Sequence[Tensor]) -> Tensor:
        """The elements of all tensors, row-major, in the room of that name."""
        room = self.room(name)
        torch._foreach_copy_(self._views[name], [tensor.detach() for tensor in tensors])
        return room

    def scattered(self, name: str, vector: Tensor, tensors: list[Tensor]) -> None:
        """The elements of a vector to the tensors, by way of the room of that name."""
        self.room(name).copy_(vector)
        torch._foreach_copy_(tensors, self._views[name])

    def averages(self, states: Sequence[State], averages: Averages) -> State:
        """The averages as vectors, of which the entries of ``states`` are views from now on."""
        names = [name for names in averages.values() for name in names]
        entries = [(state, name) for name in names for state in states]
        if len(entries) != len(self._known) or any(
            state is not known or state[name] is not view
            for (state, name), (known, _, view) in zip(entries, self._known, strict=True)
        ):
            for name in names:
                self._add(name, torch.cat([state[name].reshape(-1) for state in states]))
            self._known = [
                (state, name, view) for name in names for state, view in zip(states, self._views[name], strict=True)
            ]
            for state, name, view in self._known:
                state[name] = view
        return {name: self._rooms[name] for name in names}

    def _add(self, name: str, vector: Tensor) -> None:
        self._rooms[name], self._views[name] = vector, self._stretches(vector)

    def _stretches(self, vector: Tensor) -> list[Tensor]:
        """What belongs to each parameter, in its shape."""
        return [part.view(shape) for part, shape in zip(torch.split(vector, self._sizes), self._shapes, strict=True)]
