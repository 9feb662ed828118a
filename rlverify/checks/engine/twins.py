"""Twins of a model: the library's own class, which may fail as well, and one that trains in less time.

Smaller settings are used only where they cost nothing but time.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from rlverify.checks.adapters import driving
from rlverify.checks.adapters.adapter import Adapter, adapter_name, adapter_named
from rlverify.checks.engine.check_records import CheckFinding, LibraryFailure, LibraryFinding, Status
from rlverify.checks.engine.rule import Rule
from rlverify.checks.engine.session import SEED, Known, SubjectSession
from rlverify.checks.state.leaves import is_plain
from rlverify.checks.state.random_state import seed_globals
from rlverify.checks.state.trained import named_parameters
from rlverify.checks.state.tree import digests, is_below, unequal, walk
from rlverify.records.attempts import Crash, attempt

KNOWN: Final = Path(__file__).parents[1] / "known"
"""One file for each version of a library: what the field report found in it."""


@dataclass(frozen=True)
class Twin:
    """A subject without your classes.

    :param session: makes the library's own class with the arguments of the model, and talks to it in the library's way;
        None if the subject is such a one
    :param algorithm: the name of that class
    :param library: the name and the version of the distribution that it is of
    """

    session: SubjectSession | None
    algorithm: str
    library: tuple[str, str]


def twin_of(session: SubjectSession) -> Twin | None:
    """The twin of a subject; None if its class derives from none of a library that we know."""

    def action() -> tuple[str, str, bool, str]:
        model = session.make()
        name = adapter_name(model)
        own = adapter_named(name)
        twin = own.library_twin(model)
        is_same = twin is model and type(session.adapter) is type(own)
        return name, type(twin).__name__, is_same, type(twin).__module__.partition(".")[0]

    found = attempt(lambda: session.run(action))
    if isinstance(found, Crash):
        return None
    name, algorithm, is_same, package = found
    library, adapter = distribution_of(package), adapter_named(name)

    def factory() -> Any:
        return adapter.library_twin(session.factory())

    own = replace(session, factory=factory, adapter=adapter, known=Known())
    return Twin(None if is_same else own, algorithm, library)


def distribution_of(package: str) -> tuple[str, str]:
    """The name and the version of the distribution that a package is of; ``2.13.0`` for ``2.13.0+cpu``."""
    try:
        found = metadata.distribution(package)
    except metadata.PackageNotFoundError:  # of another name; all that is installed has to be read
        found = metadata.distribution(metadata.packages_distributions()[package][0])
    return found.name.lower().replace("_", "-"), found.version.partition("+")[0]


def library_failure(rule: Rule, finding: CheckFinding, twin: Twin, session: SubjectSession) -> LibraryFailure | None:
    """What the library's own class has of a failure; None if it has nothing of it, or the rule is about your code."""
    shared: Sequence[str]
    if rule.blamed == "caller" or (rule.blamed == "owner" and any(each.is_yours for each in finding.owners)):
        return None
    if twin.session is None or rule.blamed == "owner":
        shared = finding.causes
    else:
        found = attempt(lambda: rule.function(twin.session))  # type: ignore[arg-type]
        if isinstance(found, Crash) or found.status is not Status.FAIL:
            return None
        shared = finding.causes if rule.blamed == "rule" else found.causes
    yours = [cause for cause, owner in zip(finding.causes, finding.owners, strict=False) if owner.is_yours]
    kept = _kept_by_reset(session, yours)
    other = [each for each in finding.causes if each in kept or not any(is_below(each, known) for known in shared)]
    known = findings_of(*twin.library).get(rule.name)
    is_known = known is not None and twin.algorithm in known.algorithms
    return LibraryFailure(" ".join(twin.library), twin.algorithm, known if is_known else None, tuple(other))


def _kept_by_reset(session: SubjectSession, causes: Sequence[str]) -> list[str]:
    """Those parts of your environment that are no state of an episode, such as a running mean in a wrapper.

    A library may leave an episode to the next reset. What a reset of a trained and of a new environment with one seed
    leaves different has to be saved. Random generators of your own are left to the library.
    """

    def action() -> list[str]:
        states = []
        for model in (session.trained_model(), session.make()):
            env = session.adapter.environment(model)
            driving.reset(env, seed=SEED)
            place = next((name for name, each in vars(model).items() if each is env), "")
            leaves = walk(SimpleNamespace(**{place: env}))
            states.append(
                {path: each.digest for path, each in leaves.items() if not each.text.startswith("generator ")}
            )
        differ = unequal(*states) if place else []
        return [cause for cause in causes if any(is_below(path, cause) for path in differ)]

    found = attempt(lambda: session.run(action)) if causes and session.supports("environment") else []
    return [] if isinstance(found, Crash) else found


def findings_of(library: str, version: str) -> dict[str, LibraryFinding]:
    """What the field report found in a version of a library, by check; empty for versions that it has not measured."""
    file = KNOWN / f"{library}-{version}.json"
    if not file.is_file():
        return {}
    return {each["check"]: LibraryFinding(**each) for each in json.loads(file.read_text(encoding="utf-8"))}


def what_is_smaller(adapter: Adapter, model: Any) -> tuple[bool, str]:
    """Whether a model can be made with smaller settings, and in a line which ones, or why not; empty for none."""
    settings = attempt(lambda: adapter.smaller(model))
    if isinstance(settings, Crash) or not settings:
        return False, ""
    made = attempt(lambda: _made(adapter, model, settings))
    lost = str(made.error) if isinstance(made, Crash) else _lost(adapter, model, made, settings)
    if not lost:
        return True, f"shrunk: {_listed(model, settings)}"
    reason = f"{type(model).__name__} cannot be made again with its own arguments ({lost})"
    return False, f"not shrunk: {reason}; make the factory faster: {_listed(model, settings)}"


def _lost(adapter: Adapter, model: Any, made: Any, settings: Mapping[str, Any]) -> str:
    """What else differs between a model and the smaller one, or has no effect; empty for nothing."""
    left = adapter.smaller(made)
    if left:
        return f"{next(iter(left))} has no effect"
    before, after = _visible(adapter, model), _visible(adapter, made)
    of_sizes = {*settings, *(["n_envs"] if "env" in settings else [])}
    differ = [name for name in unequal(before, after) if name not in of_sizes]
    return f"{differ[0]} differs" if differ else ""


def _visible(adapter: Adapter, model: Any) -> dict[str, str]:
    """The plain attributes of a model, the types of the others, and its parameters."""
    own = {name: value.item() if isinstance(value, np.generic) else value for name, value in vars(model).items()}
    found = {name: repr(value) if is_plain(value) else type(value).__name__ for name, value in own.items()}
    parameters = named_parameters(list(adapter.modules(model)))
    return {**found, **{f"parameter {name}": repr(digests(each)) for name, each in parameters.items()}}


def smaller_model(adapter: Adapter, factory: Callable[[], Any]) -> Any:
    """What a factory makes, with smaller settings."""
    model = factory()
    return _made(adapter, model, adapter.smaller(model))


def _made(adapter: Adapter, model: Any, settings: Mapping[str, Any]) -> Any:
    seed_globals(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the factory's own were shown
        return adapter.with_settings(model, **settings)


def _listed(model: Any, settings: Mapping[str, Any]) -> str:
    """``n_steps 2048 -> 64, environments 8 -> 2``."""
    pairs: list[tuple[str, Any, Any]] = [(name, getattr(model, name, "?"), value) for name, value in settings.items()]
    return ", ".join(
        f"environments {old.num_envs} -> {new.num_envs}" if hasattr(new, "num_envs") else f"{name} {old} -> {new}"
        for name, old, new in pairs
    )
