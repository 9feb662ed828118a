"""A laboratory: one package with a catalogue of claims, and the faults and probes that they name.

``verification`` itself is one; the harness's own tests bring tiny ones with known answers.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from verification.claims import Catalogue, load
from verification.errors import CatalogueError, UnknownNameError
from verification.experiments import Experiment
from verification.experiments import load_all as load_experiments
from verification.faults import Fault
from verification.faults import load_all as load_faults
from verification.fingerprint import digest, digest_with_imports, module_digests, module_path
from verification.model import Claim
from verification.plots import Measurement
from verification.plots import load_all as load_plots
from verification.probes import Probe
from verification.probes import load_all as load_probes

Entry = TypeVar("Entry")

MEASURING = ("probes", "faults", "experiments")
"""The subpackages of a laboratory that measure; imports among them are followed for the digest of an experiment."""

UNDER_TEST = ("rlcore",)
"""The packages in which imports are followed for the digest of a module, beside the laboratory's own."""


@dataclass(frozen=True)
class Laboratory:
    """Where the claims, faults and probes come from; small enough to be sent to a worker process.

    :param package: dotted name of the package that has ``faults``, ``probes``, ``experiments`` if any, and, unless
        told otherwise, ``catalogue``
    :param catalogue: folder of TOML files, where it is not the package's own
    """

    package: str = "verification"
    catalogue: Path | None = None

    def __reduce__(self) -> tuple[type[Laboratory], tuple[str, Path | None]]:
        return Laboratory, (self.package, self.catalogue)

    @property
    def folder(self) -> Path:
        """The package's folder."""
        spec = importlib.util.find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            raise UnknownNameError(f"no package named {self.package!r} can be imported")
        return Path(next(iter(spec.submodule_search_locations)))

    @cached_property
    def entries(self) -> Catalogue:
        """All that the catalogue says; needs no import of what is under test."""
        return load(self.catalogue or self.folder / "catalogue")

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Every claim, in the order of the documents."""
        return self.entries.claims

    @cached_property
    def faults(self) -> Mapping[str, Fault]:
        """Every fault by name; imports what is under test."""
        return load_faults(f"{self.package}.faults")

    @cached_property
    def probes(self) -> Mapping[str, Probe]:
        """Every probe by name; imports what is under test."""
        return load_probes(f"{self.package}.probes")

    @cached_property
    def experiments(self) -> Mapping[str, Experiment]:
        """Every experiment by name; imports what is under test."""
        return load_experiments(f"{self.package}.experiments")

    @cached_property
    def plots(self) -> Mapping[str, Measurement]:
        """What measures each plot, by name; imports what is under test."""
        return load_plots(f"{self.package}.plots")

    def claim(self, claim_id: str) -> Claim:
        """The claim of that id; an unknown one raises UnknownNameError with a suggestion."""
        return _look_up("claim", claim_id, {claim.id: claim for claim in self.claims})

    def fault(self, name: str) -> Fault:
        """The fault of that name; an unknown one raises UnknownNameError with a suggestion."""
        return _look_up("fault", name, self.faults)

    def probe(self, name: str) -> Probe:
        """The probe of that name; an unknown one raises UnknownNameError with a suggestion."""
        return _look_up("probe", name, self.probes)

    def experiment(self, name: str) -> Experiment:
        """The experiment of that name; an unknown one raises UnknownNameError with a suggestion."""
        return _look_up("experiment", name, self.experiments)

    def make(self) -> Any:
        """A fresh set of the component factories that probes and experiments are given."""
        return importlib.import_module(f"{self.package}.probes.make").Make()

    def digests(self, claim: Claim) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Digest of what measures the claim, with its settings, and (name, digest) of the modules it is about.

        What measures it are its probe and faults, or its experiment. The digest of a module is that of all that it
        imports from the code under test as well.
        """
        code = module_digests(self.sources(claim), within=self._measuring)
        settings = [claim.id, claim.probe, str(claim.fault), str(claim.documented_fix), str(claim.seeds)]
        settings += claim.shows
        if claim.figure is not None:
            settings += [claim.experiment, claim.figure.quantity, str(claim.figure.claimed)]
        modules = self.module_digests(claim.modules)
        return digest([*settings, *(part for pair in code for part in pair)]), modules

    def run_digest(self, experiment: str) -> str:
        """Digest of all that the runs of an experiment follow from: its code, and every module that its claims name."""
        claims = [claim for claim in self.claims if claim.experiment == experiment]
        code = module_digests([self.experiment(experiment).__module__], within=self._measuring)
        modules = self.module_digests(name for claim in claims for name in claim.modules)
        return digest([experiment, *(part for pair in (*code, *modules) for part in pair)])

    def module_digests(self, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """(name, digest) of modules under test, each with all that it imports from the code under test; sorted."""
        return tuple((name, self._digest_with_imports(name)) for name in sorted(set(names)))

    @cached_property
    def _digest_with_imports(self) -> Callable[[str], str]:
        """Of a module under test, read once: all claims are then held against the same code."""
        return cache(partial(digest_with_imports, within=(*UNDER_TEST, self.package)))

    def plot_digest(self, name: str) -> str:
        """Digest of what measures a plot, and of all that it imports of the code under test."""
        within = (*UNDER_TEST, f"{self.package}.plots", *self._measuring)
        return digest_with_imports(self.plots[name].__module__, within)

    @property
    def _measuring(self) -> tuple[str, ...]:
        return tuple(f"{self.package}.{kind}" for kind in MEASURING)

    def sources(self, claim: Claim) -> list[str]:
        """Dotted names of the modules that define what measures a claim: its probe and faults, or its experiment."""
        if claim.figure is not None:
            return [self.experiment(claim.experiment).__module__]
        names = [name for name in (claim.fault, claim.documented_fix) if name is not None]
        return [self.probe(claim.probe).__module__, *(self.fault(name).defined_in for name in names)]

    def check(self) -> None:
        """Compare catalogue and code in both directions.

        :raises CatalogueError: if a claim names a probe, experiment, fault or module that does not exist, or leaves
            out the module in which its fault is planted, or if a probe, an experiment, or a fault that is to be
            claimed, exists that no claim names
        """
        for claim in self.claims:
            self._check_claim(claim)
        claimed = {name for name, fault in self.faults.items() if fault.claimed}
        _check_all_used("fault", claimed, {n for c in self.claims for n in (c.fault, c.documented_fix)})
        _check_all_used("probe", self.probes, {claim.probe for claim in self.claims})
        _check_all_used("experiment", self.experiments, {claim.experiment for claim in self.claims})

    def _check_claim(self, claim: Claim) -> None:
        named: list[tuple[str, str | None, Mapping[str, Any]]] = [
            ("probe", claim.probe or None, self.probes),
            ("experiment", claim.experiment or None, self.experiments),
            ("fault", claim.fault, self.faults),
            ("documented_fix", claim.documented_fix, self.faults),
        ]
        for field, name, known in named:
            if name is not None and name not in known:
                raise CatalogueError(
                    f"{claim.document}.toml", claim.id, field, f"there is no {name!r}{_nearest(name, known)}"
                )
        for name in claim.modules:
            try:
                module_path(name)
            except LookupError as error:
                raise CatalogueError(f"{claim.document}.toml", claim.id, "modules", str(error)) from error
        for name in filter(None, (claim.fault, claim.documented_fix)):
            target = self.faults[name].owner.partition(":")[0]
            if target not in claim.modules:
                raise CatalogueError(
                    f"{claim.document}.toml", claim.id, "modules", f"{target} is missing, where {name} is planted"
                )


def _check_all_used(what: str, known: Iterable[str], used: set[str | None]) -> None:
    unused = sorted(set(known) - used)
    if unused:
        raise CatalogueError("", "", what, f"no claim names {', '.join(unused)}; write the claim or remove the {what}")


def _look_up(what: str, name: str, known: Mapping[str, Entry]) -> Entry:
    if name not in known:
        raise UnknownNameError(f"no {what} named {name!r}{_nearest(name, known)}")
    return known[name]


def _nearest(name: str, known: Iterable[str]) -> str:
    spelt = {each.casefold(): each for each in known}
    close = get_close_matches(name.casefold(), spelt, n=1)
    return f"; did you mean {spelt[close[0]]!r}?" if close else ""
