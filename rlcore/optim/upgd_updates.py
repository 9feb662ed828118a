"""What one step of a UPGD optimizer works on: single parameters, several as one flat vector, or stretches of one.

A small tensor costs an elementwise operation about a microsecond before its first element is touched. In one vector
many pay that once an operation instead of once a tensor. A large tensor leaves the cache between one operation and
the next; a stretch of it stays there from the first to the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from rlcore.functional import utility as functional
from rlcore.optim.upgd_state import Averages, state_dtype

Group: TypeAlias = dict[str, Any]
State: TypeAlias = dict[str, Any]
Position: TypeAlias = tuple[int, int]

# Elements of a stretch. With a quarter of it the calls cost more than the cache saves, on the machine that measured.
STRETCH: Final = 2**17


def label_of(group: Group, position: Position) -> str:
    """The name of a parameter, or where it stands."""
    group_index, index = position
    if names := group.get("param_names"):
        return str(names[index])
    return f"parameter {index} of group {group_index}, shape {tuple(group['params'][index].shape)}"


@dataclass(slots=True)
class Update:
    """One parameter that has a gradient in this step.

    :param gradient: as found until it is checked; then in the dtype of the state and bounded
    :param position: index of the group, index in the group
    :param state: its averages and their counters, complete once it is prepared
    :param admitted: whether the step may change anything, 0-dimensional, where only the device knows; None if it may
    """

    parameter: Tensor
    gradient: Tensor
    group: Group
    position: Position
    state: State
    admitted: Tensor | None = field(default=None, kw_only=True)

    @property
    def label(self) -> str:
        """The parameter's name, or where it stands."""
        return label_of(self.group, self.position)

    @property
    def members(self) -> Sequence[Update]:
        """The single parameters that it consists of."""
        return (self,)

    def advance(self, counter: str) -> None:
        """Count one step."""
        self.state[counter] += 1

    def fill(self, averages: Averages) -> None:  # noqa: ARG002
        """Take what the step needs beside the gradient, as it is now.

        :param averages: of which the state of every member holds each, and each counter
        """
        self.gradient = functional.bounded(self.gradient.to(state_dtype(self.parameter)))

    def average(self, name: str, value: Tensor, beta: float) -> None:
        """Move an exponential moving average one step, in place; both are bounded, so their difference is finite."""
        average = self.state[name]
        if self.admitted is None:
            average.lerp_(value, 1 - beta)
        else:
            torch.where(self.admitted, average.lerp(value, 1 - beta), average, out=average)

    def working(self, dtype: torch.dtype) -> Tensor:
        """The parameter's values, which may be changed: its own memory, or a copy where that is needed."""
        return self.parameter.to(dtype, copy=self.admitted is not None)

    def write(self, values: Tensor) -> None:
        """Give the parameter its new values, in its own dtype."""
        self.parameter.copy_(self._if_admitted(values))

    def _if_admitted(self, values: Tensor) -> Tensor:
        return values if self.admitted is None else torch.where(self.admitted, values, self.parameter)

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
        first = self.parts[0].state
        if self.admitted is not None:
            functional.bounded_(self.gradient)
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
        self.vectors.scattered("parameter", self._if_admitted(values), [part.parameter for part in self.parts])

    def workspace(self, name: str) -> Tensor:
        return self.vectors.room(name)


@dataclass(slots=True)
class Stretch(Update):
    """Some consecutive elements of a large parameter; parameter, gradient and averages are views of its own.

    :param whole: the parameter that they are of
    :param start: the first of them
    :param rooms: memory for the results of every stretch in turn
    """

    whole: Update
    start: int
    rooms: Rooms

    @classmethod
    def all_of(cls, whole: Update, rooms: Rooms) -> list[Stretch]:
        """The stretches of a parameter; what else a step needs is added by :meth:`fill`."""
        pairs = zip(*(torch.split(_flat(each), STRETCH) for each in (whole.parameter, whole.gradient)), strict=True)
        return [
            cls(parameter, gradient, whole.group, whole.position, {}, whole, index * STRETCH, rooms)
            for index, (parameter, gradient) in enumerate(pairs)
        ]

    def fill(self, averages: Averages) -> None:
        for counter, names in averages.items():
            self.state[counter] = self.whole.state[counter]
            for name in names:
                self.state[name] = _flat(self.whole.state[name])[self.start : self.start + STRETCH]

    @property
    def members(self) -> Sequence[Update]:
        return (self.whole,)

    def advance(self, counter: str) -> None:
        self.state[counter] += 1
        self.whole.state[counter] = self.state[counter]

    def workspace(self, name: str) -> Tensor:
        return self.rooms.of(name, self.gradient)


class Rooms:
    """Memory for vectors, kept from step to step: fresh memory can cost more than what is computed in it."""

    def __init__(self) -> None:
        self._rooms: dict[tuple[str, torch.device, torch.dtype], Tensor] = {}

    def of(self, name: str, like: Tensor, size: int | None = None) -> Tensor:
        """A vector of that name, of the dtype and on the device of ``like``; what it holds is left from before.

        :param size: number of elements; that of ``like`` where it is not given
        """
        key = name, like.device, like.dtype
        length = like.numel() if size is None else size
        if key not in self._rooms or self._rooms[key].numel() < length:
            self._rooms[key] = torch.empty(length, dtype=like.dtype, device=like.device)
        return self._rooms[key][:length]


def _flat(tensor: Tensor) -> Tensor:
    return tensor.detach().view(-1)


def can_be_stretched(part: Update) -> bool:
    """Whether a parameter is large, and all that belongs to it is of one dtype and lies element by element alike.

    Adaptive noise follows a tensor as a whole.
    """
    if part.parameter.numel() <= STRETCH or (part.group["adaptive_noise"] and part.group["sigma"] > 0):
        return False
    averages = [value for value in part.state.values() if isinstance(value, Tensor)]
    return all(
        tensor.is_contiguous() and tensor.dtype == state_dtype(part.parameter)
        for tensor in (part.parameter, part.gradient, *averages)
    )


def can_be_bundled(parts: Sequence[Update], averages: Averages) -> bool:
    """Whether the parameters of a group make one vector: several, of one device, dtype and number of steps.

    What one lacks and another has starts fresh by itself, and adaptive noise follows every tensor by itself; both are
    left to single updates.
    """
    first, *others = parts
    if not others or (first.group["adaptive_noise"] and first.group["sigma"] > 0):
        return False
    kind = (first.parameter.device, state_dtype(first.parameter))
    counts = [first.state.get(counter) for counter in averages]
    return all(
        (part.parameter.device, part.parameter.dtype) == kind
        and part.state.keys() == first.state.keys()
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


class Workspace:
    """What an optimizer keeps from step to step beside its state; a copy of the optimizer begins with an empty one."""

    def __init__(self) -> None:
        self.rooms = Rooms()
        self._vectors: dict[Position, Vectors] = {}

    def blocks(self, updates: Sequence[Update], averages: Averages, admitted: Tensor | None = None) -> list[Update]:
        """Large parameters in stretches, neighbours in a group as one vector, where they allow it; the order stays.

        :param admitted: that of every block; where it is given there are no stretches, which serve the cache of a CPU
        """
        blocks: list[Update] = []
        kinds = [(update.position[0], admitted is None and can_be_stretched(update)) for update in updates]
        for (_, large), run in groupby(zip(kinds, updates, strict=True), key=lambda pair: pair[0]):
            parts = [update for _, update in run]
            if large:
                blocks += [stretch for part in parts for stretch in Stretch.all_of(part, self.rooms)]
            elif can_be_bundled(parts, averages):
                blocks.append(Bundle.of(parts, self._vectors_of(parts)))
            else:
                blocks += parts
        for block in blocks:
            block.admitted = admitted
        return blocks

    def noise(self, updates: Sequence[Update]) -> list[Tensor | None]:
        """Standard normal noise for each update, None where its group has sigma 0."""
        kinds: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for position, update in enumerate(updates):
            if update.group["sigma"] > 0:
                kinds.setdefault((update.gradient.device, update.gradient.dtype), []).append(position)
        noise: list[Tensor | None] = [None] * len(updates)
        for positions in kinds.values():
            sizes = [updates[position].gradient.numel() for position in positions]
            room = self.rooms.of("noise", updates[positions[0]].gradient, sum(sizes))
            for position, draw in zip(positions, torch.split(room.normal_(), sizes), strict=True):
                noise[position] = draw.view(updates[position].gradient.shape)
        return noise

    def _vectors_of(self, parts: Sequence[Update]) -> Vectors:
        gradients, first = [part.gradient for part in parts], parts[0].position
        if first not in self._vectors or not self._vectors[first].fit(gradients):
            self._vectors[first] = Vectors(gradients)
        return self._vectors[first]
