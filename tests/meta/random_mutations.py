"""Tries the selection of ``rlverify gate --changed`` on random mutations of `rlcore`: no other claim may change.

``python -m tests.meta.random_mutations`` makes 200 mutations, one at a time, in copies of the repository. A mutation
replaces one expression or statement in a file (`tests.meta.mutation_operators`). Its kind is drawn first, each with the
same chance; then one mutation of this kind, anywhere in `rlcore`: in a function, a class body, a default value or a
constant of a module. For each mutation, a new process does what the gate does:

1. It imports the project. If that fails, the gate stops with exit code 2, and there is nothing to select.
2. It selects claims, with the engine's own `select`; the base is the commit without the mutation.
3. It measures 12 of the claims with a probe that are not selected. Each of these has the same chance to be drawn.
   Their evidence must be that which is committed, to the byte, which is more than the same verdict. With 200 mutations
   these are about 2,000 pairs of a mutation and a claim.
4. It measures 2 of the claims that are selected, and counts how many change: else the mutations could be harmless.

Every difference in step 3 is printed, and the exit code is 1. To see that the check can fail, remove a function from
the records of all claims with ``--forget rlcore.optim.settings:checked``; then only this function is mutated.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from typing import Any, Final

from rlverify.evidence.lock_file import NAME
from rlverify.project.fingerprint import module_path
from tests.meta.broken_elsewhere import functions
from tests.meta.mutation_operators import Mutation, compiles, mutations
from tests.support.repository_copy import ROOT, commit, copy_repository, environment

CORE: Final = "rlcore"
LONGEST: Final = 900.0
"""Seconds for one mutation, after which its process is stopped."""


@dataclass(frozen=True)
class Sizes:
    """How much is tried.

    :param number: of mutations
    :param unselected: how many claims that are not selected are measured for each
    :param selected: how many that are
    """

    number: int = 200
    unselected: int = 12
    selected: int = 2


@dataclass(frozen=True)
class Trial:
    """What one mutation did.

    :param what: the mutation, in words
    :param stopped: why the project cannot be imported any more, if so
    :param selected: how many of all claims are selected
    :param expected: how many claims that are not selected were to be measured
    :param measured: a line of `tests.meta.mutated_claims` for each claim that was
    """

    what: str
    at_import: bool
    stopped: str = ""
    claims: int = 0
    selected: int = 0
    expected: int = 0
    measured: tuple[dict[str, Any], ...] = ()

    @property
    def counterexamples(self) -> list[str]:
        """What became of claims that were not selected and differ, or whose process died."""
        others = [each for each in self.measured if not each["is_selected"]]
        found = [
            f"{self.what}: {each['id']} is not selected, and its evidence changes ({each['was']} -> {each['verdict']})"
            for each in others
            if not each["same_evidence"]
        ]
        died = f"{self.what}: only {len(others)} of {self.expected} claims that are not selected could be measured"
        return found + [died] * (len(others) < self.expected)


@dataclass(frozen=True)
class Drawn:
    """A mutation of a file.

    :param path: relative to the repository
    """

    path: Path
    mutation: Mutation


def draw(seed: int, number: int, root: Path = ROOT, only: str = "") -> list[Drawn]:
    """Random mutations that are Python; first the kind is drawn, then the mutation.

    :param root: the repository
    :param only: the function, as ``package.module:Class.method``, of which; all of the core if empty
    """
    by_kind: dict[str, list[Drawn]] = defaultdict(list)
    sources = {path: path.read_bytes() for path in sorted((root / CORE).rglob("*.py"))}
    for path, source in sources.items():
        for mutation in mutations(source):
            if not only or _is_in(path, source, mutation, only):
                by_kind[mutation.kind].append(Drawn(path.relative_to(root), mutation))
    sampling, found = random.Random(seed), []
    while len(found) < number:
        drawn = sampling.choice(by_kind[sampling.choice(sorted(by_kind))])
        if compiles(drawn.mutation.apply(sources[root / drawn.path])):
            found.append(drawn)
    return found


def _is_in(path: Path, source: bytes, mutation: Mutation, function: str) -> bool:
    """Whether a mutation is in the body of a function."""
    module, _, name = function.partition(":")
    if path != module_path(module) or mutation.at_import:
        return False
    nodes = [node for found, node in functions(ast.parse(source), "") if found == name]
    return any(node.lineno <= mutation.line <= (node.end_lineno or 0) for node in nodes)


def try_all(sizes: Sizes, *, seed: int = 0, jobs: int = 1, forget: str = "") -> Iterator[Trial]:
    """Try random mutations, in so many copies of the repository at a time.

    :param forget: a function that is removed from all records; if given, only this function is mutated
    """
    drawn = draw(seed, sizes.number, only=forget)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as threads:
        copies: SimpleQueue[Path] = SimpleQueue()
        for job in range(jobs):
            copies.put(_prepared(Path(folder) / str(job), forget))

        def one(number: int) -> Trial:
            copy = copies.get()
            try:
                return _try(copy, drawn[number], f"{seed}/{number}", sizes)
            finally:
                copies.put(copy)

        yield from threads.map(one, range(sizes.number))


def _prepared(folder: Path, forget: str) -> Path:
    """A copy whose modules are compiled once; Python compares their sources with what was compiled."""
    copy = copy_repository(folder)
    if forget:
        forget_function(copy / "reports" / NAME, forget)
        commit(copy)
    compiling = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash"]
    subprocess.run([*compiling, CORE, "rlverify", "verification"], cwd=copy, check=True)
    return copy


def forget_function(path: Path, function: str) -> None:
    """Remove a function from what the claims of a lock file executed."""
    module, _, name = function.partition(":")
    content = json.loads(path.read_text(encoding="utf-8"))
    for group in content["executed"][module]:
        group["functions"] = " ".join(each for each in group["functions"].split() if each != name)
    path.write_text(json.dumps(content), encoding="utf-8")


def _try(copy: Path, drawn: Drawn, seed: str, sizes: Sizes) -> Trial:
    path = copy / drawn.path
    source = path.read_bytes()
    path.write_bytes(drawn.mutation.apply(source))
    try:
        lines = _measured(copy, seed, sizes)
    finally:
        path.write_bytes(source)
    what, at_import = f"{drawn.path} {drawn.mutation.describe(source)}", drawn.mutation.at_import
    if not lines or "stopped" in lines[0]:
        return Trial(what, at_import, lines[0]["stopped"] if lines else "the process that imports it died")
    claims, selected, others = (lines[0][key] for key in ("claims", "selected", "others"))
    return Trial(what, at_import, "", claims, selected, min(sizes.unselected, others), tuple(lines[1:]))


def _measured(copy: Path, seed: str, sizes: Sizes) -> list[dict[str, Any]]:
    """What `tests.meta.mutated_claims` printed until it ended."""
    sample = (seed, str(sizes.unselected), str(sizes.selected))
    command = [sys.executable, "-B", "-m", "tests.meta.mutated_claims", *sample]
    with copy.with_suffix(".out").open("w+", encoding="utf-8") as output:
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command,
                cwd=copy,
                env=environment(copy),
                stdout=output,
                stderr=subprocess.DEVNULL,
                timeout=LONGEST,
                check=False,
            )
        output.seek(0)
        return [json.loads(line) for line in output if line.startswith("{") and line.endswith("}\n")]


def summary(trials: Sequence[Trial]) -> str:
    """What all trials say, as counts."""
    running = [each for each in trials if not each.stopped]
    measured = [each for trial in running for each in trial.measured]
    others = [each for each in measured if not each["is_selected"]]
    chosen = [each for each in measured if each["is_selected"]]
    counts = [each.selected for each in running] or [0]
    lines = [
        f"mutations: {len(trials)}, of which {sum(each.at_import for each in trials)} are outside of functions",
        f"stopped by the import of the project: {len(trials) - len(running)}",
        f"selecting all claims: {sum(each.selected == each.claims for each in running)}",
        f"selected claims: median {median(counts):g}, largest {max(counts)}",
        f"unselected claims measured: {len(others)}, other evidence: {_others(others)}",
        f"selected claims measured: {len(chosen)}, other evidence: {_others(chosen)}, "
        f"other verdict: {sum(each['was'] != each['verdict'] for each in chosen)}",
        f"counterexamples: {sum(len(each.counterexamples) for each in trials)}",
    ]
    return "\n".join(lines)


def _others(measured: Sequence[dict[str, Any]]) -> int:
    return sum(not each["same_evidence"] for each in measured)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--number", type=int, default=Sizes.number, help="mutations")
    parser.add_argument("--unselected", type=int, default=Sizes.unselected, help="claims measured for each")
    parser.add_argument("--selected", type=int, default=Sizes.selected, help="claims measured for each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--forget", default="", metavar="MODULE:FUNCTION", help="remove it from all records")
    given = parser.parse_args(arguments)
    trials = []
    sizes = Sizes(given.number, given.unselected, given.selected)
    for trial in try_all(sizes, seed=given.seed, jobs=given.jobs, forget=given.forget):
        trials.append(trial)
        outcome = trial.stopped or f"{trial.selected} of {trial.claims} selected"
        print(f"{len(trials)}: {trial.what}: {outcome}", *trial.counterexamples, sep="\n  ", flush=True)  # noqa: T201
    print(summary(trials))  # noqa: T201
    return int(any(trial.counterexamples for trial in trials))


if __name__ == "__main__":
    sys.exit(main())
