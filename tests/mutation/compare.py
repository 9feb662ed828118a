"""Holds what survived mutation against the list of survivors that are explained: ``python -m tests.mutation.compare``.

Reads the results that ``mutmut run`` has left in the working folder. Exit codes: 0 all explained; 1 a survivor that
nobody explains, or an explanation of what does not survive; 2 there are no results, or the list cannot be used.

A mutant that changes nothing but the words of a sentence needs no explanation: tests ask of a message for the value and
what to do, and promise nobody its every letter. A sentence is a string with a space in it, which no key or name has.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

LIST = Path(__file__).with_name("survivors.toml")
KILLED = ("killed", "timeout", "segfault", "caught by type check")
NOT_RUN = "not checked"
STRING = re.compile(r"""(["'])((?:\\.|(?!\1).)*)\1""")

Show = Callable[[str], str]


@dataclass(frozen=True)
class Explained:
    """A mutant that may survive.

    :param becomes: the line that the mutant has in place of another
    """

    id: str
    becomes: str
    why: str


def read_results(text: str) -> dict[str, str]:
    """Outcome of every mutant, from what ``mutmut results --all true`` prints."""
    pairs = (line.strip().partition(": ") for line in text.splitlines())
    return {name: outcome for name, _, outcome in pairs if outcome}


def read_list(path: Path) -> tuple[Explained, ...]:
    """The survivors that are explained.

    :raises ValueError: if an entry lacks a field, has an unknown or empty one, or stands twice
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", [])
    for entry in entries:
        if set(entry) != {"id", "becomes", "why"} or not all(entry.values()):
            raise ValueError(f"{path.name}: {entry.get('id', entry)} needs an id, what it becomes and why, and no more")
    names = [entry["id"] for entry in entries]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{path.name}: {twice[0]} stands twice")
    return tuple(Explained(**entry) for entry in entries)


def problems(results: Mapping[str, str], explained: Iterable[Explained], show: Show, asked: str = "*") -> list[str]:
    """What is unexplained, and what is explained and should not be.

    :param show: gives the difference that a mutant makes
    :param asked: patterns of the mutants that were to be run, separated by spaces
    """
    known = {each.id: each for each in explained if _is_asked(each.id, asked)}
    run = {name: outcome for name, outcome in results.items() if _is_asked(name, asked)}
    found = [f"{name}: was not run" for name, outcome in run.items() if outcome == NOT_RUN]
    for name in sorted(name for name, outcome in run.items() if outcome not in (*KILLED, NOT_RUN)):
        difference = show(name)
        if name not in known and not is_wording(difference):
            found.append(f"{name}: {run[name]}, and nobody says why\n{difference}")
        elif name in known and known[name].becomes not in _changed(difference, "+"):
            found.append(f"{name}: is another mutant than the one that is explained\n{difference}")
    gone = [name for name in known if run.get(name) in (None, *KILLED)]
    return found + [f"{name}: is explained, and {run.get(name, 'does not exist')}; remove it" for name in gone]


def _is_asked(name: str, asked: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in asked.split())


def is_wording(difference: str) -> bool:
    """Whether a mutant differs from the code in the words of sentences alone."""
    without = [[STRING.sub(_without_sentence, line) for line in _changed(difference, sign)] for sign in "-+"]
    return without[0] == without[1] != []


def _without_sentence(string: re.Match[str]) -> str:
    """Nothing where it is a sentence without values; as it is otherwise."""
    return "" if " " in string[2] and "{" not in string[2] else string[0]


def _changed(difference: str, sign: str) -> list[str]:
    lines = difference.splitlines()
    return [line[1:].strip() for line in lines if line.startswith(sign) and not line.startswith(3 * sign)]


def _mutmut(*arguments: str) -> str:
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def names_of_mutants() -> set[str]:
    """Every mutant that ``mutmut run`` has made."""
    return set(read_results(_mutmut("results", "--all", "true")))


def main(asked: str = "*") -> int:
    """Compare, print every problem and the counts."""
    try:
        explained = read_list(LIST)
    except (ValueError, OSError) as error:
        print(error)
        return 2
    results = {
        name: word for name, word in read_results(_mutmut("results", "--all", "true")).items() if _is_asked(name, asked)
    }
    if not results:
        print(f"no mutant is named {asked}, so nothing was compared; run `make mutants`")
        return 2
    found = problems(results, explained, lambda name: _mutmut("show", name), asked)
    killed = sum(outcome in KILLED for outcome in results.values())
    survived = len(results) - killed
    print(*found, f"{killed} of {len(results)} mutants killed, {survived} not; {len(found)} problems", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
