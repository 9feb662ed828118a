"""Finds out which parts of a state a load loses, by restoring all that differs and leaving some of it out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from rlverify.checks.engine.check_records import CheckFinding
from rlverify.checks.engine.isolation import is_copied_by_fork, time_limit
from rlverify.checks.engine.rule import failing
from rlverify.checks.engine.session import SubjectError, SubjectSession
from rlverify.checks.state.owners import OF_PYTHON, YOURS, Owner, owner_of
from rlverify.checks.state.random_state import global_state, set_global_state
from rlverify.checks.state.tree import Difference, differences, is_below, names_of, walk
from rlverify.records.attempts import attempt

GLOBALS: Final = "global random generators"
UNKNOWN: Final = "unknown"
"""The cause of a failure that restoring all leaves does not cure."""
OUTSIDE: Final = "outside the model"
"""The cause of a failure that is none in the process that trained, with nothing restored."""
SHOWN: Final = 5
"""Paths, or groups of paths, that a reason names."""
GROUPED: Final = 3
"""Paths with one parent that are shown as one."""
MOST_RUNS: Final = 96
"""Runs that leave something out; where they are used up, a group is not divided further."""


@dataclass
class LoadedPair:
    """A model at an interruption, and what a load makes of it."""

    model: Any
    generators: dict[str, Any]
    loaded: Any
    differences: list[Difference]


@dataclass
class Search:
    """Finds the leaves without which training does not go on exactly.

    A run restores a pair in part, and trains. Where it can, the pair is made once, in a process of which each run is a
    fork.

    :param expected: what training gives that was not interrupted
    :param is_limited: whether groups of leaves are not divided further after `MOST_RUNS`
    """

    session: SubjectSession
    folder: Path
    expected: dict[str, str]
    is_limited: bool = True
    runs: int = field(default=0, init=False)
    made: LoadedPair | None = field(default=None, init=False)

    def reason(self) -> CheckFinding:
        """A finding of what has to be restored, yours before what is of libraries, or of what was tried."""
        if self.session.run(self._pair_is_copied_by_fork):
            return self.session.run(self._found_with_one_pair, limit=math.inf)
        return self._found()

    def _pair_is_copied_by_fork(self) -> bool:
        _pair = self._pair()  # lives until the answer, with the processes that it has started
        return is_copied_by_fork()

    def _found_with_one_pair(self) -> CheckFinding:
        with time_limit(self.session.limit):
            self.made = self._pair()
        return self._found()

    def _found(self) -> CheckFinding:
        lost = self.session.run(lambda: [each.path for each in self._pair().differences])
        lost = [path for path in lost if path not in self.session.volatile]
        everything = [*lost, GLOBALS]
        if not self._is_exact_without(()):
            opaque = self.session.run(self._opaque)
            tried = f"copying all {len(lost)} leaves that differ does not make it exact"
            left = (
                "the order of parameters, gradients that add up, a stream of random numbers, or state outside the model"
            )
            hidden = f"what is inside of {listed(opaque)}, {left}" if opaque else left
            return failing("", why=f"{tried}; what is lost is one of: {hidden}", causes=(UNKNOWN,))
        parts = dict.fromkeys(map(part_of, everything))
        needed = [
            path for part in parts for path in self._needed([each for each in everything if part_of(each) == part])
        ]
        if not needed and self._is_exact_without(everything):
            seen = "in the process that trained, the loaded model is exact with nothing restored"
            place = f"what is lost is {OUTSIDE}, such as a global variable or an attribute of a class"
            return failing("", why=f"{seen}: {place}", causes=(OUTSIDE,))
        if not needed:
            differ = f"all {len(everything)} leaves that differ"
            return failing(
                "", why=f"restoring {differ} makes it exact; no single part of them is necessary", causes=everything
            )
        owned = self.session.run(lambda: by_owner(self._pair().model, needed))
        text = in_words(owned)
        causes, owners = tuple(each or "the model" for each, _ in owned), tuple(owner for _, owner in owned)
        unneeded = [path for path in everything if not any(is_below(path, group) for group in needed)]
        if self._is_exact_without(unneeded):
            return failing("", why=f"restoring {text} makes it exact", causes=causes, owners=owners)
        but = f"is necessary but not enough; with all {len(everything)} leaves that differ it is exact"
        return failing("", why=f"restoring {text} {but}", causes=causes, owners=owners)

    def _needed(self, paths: Sequence[str]) -> list[str]:
        """The leaves that have to be restored; several as one name, if only all together were measured."""
        if self._is_exact_without(paths):
            return []
        if len(paths) == 1 or (self.is_limited and self.runs >= MOST_RUNS):
            return [common(paths)]
        middle = len(paths) // 2
        return [*self._needed(paths[:middle]), *self._needed(paths[middle:])] or [common(paths)]

    def _pair(self) -> LoadedPair:
        if self.made is not None:
            return self.made
        session = self.session
        model = session.trained_model()
        generators, loaded = global_state(), session.loaded(self.folder)
        return LoadedPair(model, generators, loaded, differences(model, loaded))

    def _opaque(self) -> list[str]:
        return [f"{path} ({leaf.text})" for path, leaf in walk(self._pair().model).items() if leaf.opaque]

    def _is_exact_without(self, left_out: Sequence[str]) -> bool:
        """Whether training goes on exactly; a state in which it crashes is not exact."""
        self.runs += 1
        try:
            return self.session.run(partial(self._continued, frozenset(left_out))) == self.expected
        except SubjectError:
            return False

    def _continued(self, left_out: frozenset[str]) -> dict[str, str]:
        """What training gives if everything that was lost is restored but some paths."""
        with redirect_stderr(StringIO()):  # workers that crash with a state that is restored in part
            return self._trained(left_out)

    def _trained(self, left_out: frozenset[str]) -> dict[str, str]:
        session, pair = self.session, self._pair()
        for each in pair.differences:
            if each.path not in left_out and each.path not in session.volatile:
                attempt(each.restore)  # loggers and other objects with files cannot be copied
        if GLOBALS not in left_out:
            set_global_state(pair.generators)
        session.learn(pair.loaded, session.steps_after)
        return session.result(pair.loaded)


def by_owner(model: Any, paths: Iterable[str]) -> list[tuple[str, Owner]]:
    """Some paths and whose each is: yours first, and then library by library."""
    return sorted(((path, owner_of(model, path)) for path in paths), key=lambda each: each[1].place)


def in_words(owned: Sequence[tuple[str, Owner]]) -> str:
    """All paths that are yours by name, and those of a library by name or, where they are many, by number."""
    parts = []
    for library, pairs in groupby(owned, key=lambda each: each[1].library):
        names = shortened([path for path, _ in pairs])
        is_named = library in (YOURS, OF_PYTHON.library) or len(names) <= SHOWN
        parts.append(", ".join(names) if is_named else f"{len(names)} places of {library}")
    return "; ".join(parts)


def part_of(path: str) -> str:
    """The part of the state that a leaf belongs to: the first name of its path."""
    return names_of(path)[0]


def common(paths: Sequence[str]) -> str:
    """The path of the nearest object that holds all of some leaves."""
    start = paths[0]
    while not all(is_below(path, start) for path in paths):
        start = parent(start)
    return start


def parent(path: str) -> str:
    """The path of the object that a leaf is a part of; empty for the root."""
    return "".join(names_of(path)[:-1])


def shortened(paths: Iterable[str]) -> list[str]:
    """Exact paths, but those with one parent as one: ``env.{elapsed, goal, state}``."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(parent(path), []).append(path)
    found: list[str] = []
    for start, own in groups.items():
        names = [path[len(start) :] for path in own]
        if not start or len(own) < GROUPED:
            found += [path or "the model" for path in own]
        elif all(name.startswith("[") for name in names):
            found.append(f"{start}[{', '.join(name[1:-1] for name in names)}]")
        else:
            found.append(f"{start}.{{{', '.join(name.removeprefix('.') for name in names)}}}")
    return found


def listed(texts: Sequence[str], most: int = SHOWN) -> str:
    """The first of some texts, and how many there are more."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
