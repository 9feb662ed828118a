"""A project: its settings, its catalogue, and the faults, probes, experiments, plots and pages that it registers."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from rlverify.project.catalogue import load
from rlverify.project.citations import Documents
from rlverify.project.fingerprint import is_within, module_path, place_of
from rlverify.project.registry import (
    EXPERIMENTS,
    FACTS,
    FAULTS,
    FIGURE_PLOTS,
    PAGES,
    PROBES,
    Experiment,
    Facts,
    Fault,
    FigurePlot,
    Page,
    Probe,
    Registry,
)
from rlverify.project.settings import FILE, ReportPaths, Settings, find_root, load_settings
from rlverify.records.attempts import places_of
from rlverify.records.claims import Claim
from rlverify.records.errors import (
    BrokenCodeError,
    CatalogueError,
    HarnessError,
    RegistrationError,
    SettingsError,
    UnknownNameError,
    suggestion,
)
from rlverify.records.process import stdout_sent_to_stderr

Entry = TypeVar("Entry")

SHOWING: Final = ("plots", "pages")
"""The subpackages of a content package that show what was measured."""
MEASURING: Final = ("probes", "faults", "experiments")
"""The subpackages of a content package that measure; imports among them are part of the digest of an experiment."""


def open_project(start: Path) -> Project:
    """The project that a folder belongs to: the nearest from there upwards that has settings."""
    if not start.is_dir():
        raise SettingsError(start, "", "there is no such folder; name one with --project")
    return Project(load_settings(find_root(start.absolute())))


@dataclass(frozen=True)
class Project:
    """A verification project; small enough to be sent to a worker process.

    As soon as a project is opened, its packages can be imported: the folders of its ``pythonpath`` are moved to the
    front of ``sys.path``, as ``python`` does with the folder of a script.
    """

    settings: Settings

    def __post_init__(self) -> None:
        folders = [str(folder) for folder in self.settings.pythonpath]
        sys.path[:] = [*folders, *(each for each in sys.path if each not in folders)]

    def __reduce__(self) -> tuple[type[Project], tuple[Settings]]:
        return Project, (self.settings,)

    @property
    def root(self) -> Path:
        """The project's folder, to which ids of tests are relative."""
        return self.settings.root

    @property
    def package(self) -> str:
        """Dotted name of the content package."""
        return self.settings.content

    @cached_property
    def folder(self) -> Path:
        """The content package's folder."""
        try:
            spec = importlib.util.find_spec(self.package)
        except ModuleNotFoundError:
            spec = None
        if spec is None or not spec.submodule_search_locations:
            raise self._missing("content", self.package)
        folder = Path(next(iter(spec.submodule_search_locations)))
        if not any(folder.resolve().is_relative_to(place) for place in self.settings.pythonpath):
            reason = (
                f"the package {self.package!r} that is found is {folder}, outside the pythonpath; choose another name"
            )
            raise SettingsError(self.root / FILE, "content", reason)
        return folder

    @property
    def paths(self) -> ReportPaths:
        """Where the committed evidence and reports are."""
        return ReportPaths(self.settings.reports, self.root)

    @property
    def templates(self) -> Path:
        """Folder of the project's own page templates."""
        return self.folder / "pages" / "templates"

    @property
    def documents_folder(self) -> Path:
        """Folder of the documents that claims cite."""
        return self.settings.documents or self.folder / "documents"

    @cached_property
    def documents(self) -> Documents:
        """The documents that claims cite."""
        return Documents.read(self.documents_folder)

    @property
    def catalogue_folder(self) -> Path:
        """Folder of the TOML files with the claims."""
        return self.settings.catalogue or self.folder / "catalogue"

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        """Every claim, in the order of the catalogue files; needs no import of what is under test."""
        return load(self.catalogue_folder, self.documents)

    def catalogue_file(self, claim: Claim) -> Path:
        """The TOML file of a claim."""
        return self.catalogue_folder / f"{claim.document}.toml"

    def _load(self, registry: Registry[Entry]) -> Mapping[str, Entry]:
        """What the modules of one subpackage of the content register."""
        with self._importing():
            return registry.load(f"{self._checked_package}.{registry.kind}s")

    @contextmanager
    def _importing(self) -> Iterator[None]:
        """Tells broken code under test from broken code that measures, while either is imported."""
        try:
            yield
        except (Exception, SystemExit) as error:
            places = places_of(error)
            own = tuple(self.code_places.values())
            file, line = next((each for each in places if any(map(each[0].is_relative_to, own))), places[0])
            shown = f"{(file.relative_to(self.root) if file.is_relative_to(self.root) else file).as_posix()}:{line}"
            names_what_is_gone = isinstance(error, ImportError) and self.is_under_test(error.name or "")
            if self._is_code_under_test(file) or names_what_is_gone:
                raise BrokenCodeError(shown, error) from error
            if isinstance(error, SystemExit):
                raise HarnessError(f"{shown}: an import ends the process with exit code {error.code}") from error
            raise

    def _is_code_under_test(self, file: Path) -> bool:
        measuring = [self.folder / kind for kind in (*MEASURING, *SHOWING)]
        under_test = [self.code_places[package] for package in self.settings.under_test]
        return any(map(file.is_relative_to, under_test)) and not any(map(file.is_relative_to, measuring))

    @cached_property
    def faults(self) -> Mapping[str, Fault]:
        """Every fault by name; imports what is under test."""
        return self._load(FAULTS)

    @cached_property
    def probes(self) -> Mapping[str, Probe]:
        """Every probe by name; imports what is under test, and the faults, which a probe may plant by name."""
        _ = self.faults
        return self._load(PROBES)

    @cached_property
    def experiments(self) -> Mapping[str, Experiment]:
        """Every experiment by name; imports what is under test, and the faults, which an experiment may plant."""
        _ = self.faults
        return self._load(EXPERIMENTS)

    @cached_property
    def figure_plots(self) -> Mapping[str, FigurePlot]:
        """What draws each plot of figures, by name."""
        figures = {claim.id for claim in self.claims if claim.figure is not None}
        found = self._load(FIGURE_PLOTS)
        for name, each in found.items():
            if unknown := [claim for claim in each.claims if claim not in figures]:
                raise RegistrationError(f"plot {name!r} names {unknown[0]}, which is no figure of the catalogue")
        return found

    @cached_property
    def pages(self) -> tuple[Page, ...]:
        """The registered report pages, in the order of the documents that they are about."""
        return tuple(sorted(self._load(PAGES).values(), key=lambda page: page.documents))

    @cached_property
    def facts(self) -> Mapping[str, Facts]:
        """What the project adds for its templates, by name."""
        return self._load(FACTS)

    @property
    def _checked_package(self) -> str:
        _ = self.folder  # which raises a clear error if there is no such package
        return self.package

    def claim(self, claim_id: str) -> Claim:
        """The claim of that id, in any case; an unknown one raises UnknownNameError with a suggestion."""
        known = {claim.id: claim for claim in self.claims}
        in_its_case = {name.casefold(): name for name in known}
        return _look_up("claim", in_its_case.get(claim_id.casefold(), claim_id), known)

    def fault(self, name: str) -> Fault:
        """The fault of that name; an unknown one raises UnknownNameError with a suggestion."""
        return _look_up("fault", name, self.faults)

    def probe(self, name: str) -> Probe:
        """The probe of that name; an unknown one raises UnknownNameError with a suggestion."""
        return _look_up("probe", name, self.probes)

    def experiment(self, name: str) -> Experiment:
        """The experiment of that name; an unknown one raises UnknownNameError with a suggestion."""
        return _look_up("experiment", name, self.experiments)

    def make(self) -> tuple[Any, ...]:
        """The arguments that probes and experiments are given before the seed: a fresh ``Make``, or none."""
        module = f"{self._checked_package}.probes.make"
        if importlib.util.find_spec(f"{self.package}.probes") is None or importlib.util.find_spec(module) is None:
            return ()
        with stdout_sent_to_stderr():
            with self._importing():
                loaded = importlib.import_module(module)
            return (loaded.Make(),)

    @cached_property
    def code_places(self) -> Mapping[str, Path]:
        """The folder, or file, of each package under test and of the content package, by dotted name."""
        places = {package: place_of(package) for package in self.settings.under_test}
        for package, place in places.items():
            if place is None:
                raise self._missing("under_test", package)
        return {**{package: place for package, place in places.items() if place is not None}, self.package: self.folder}

    @property
    def measuring(self) -> tuple[str, ...]:
        """Dotted names of the subpackages that measure."""
        return tuple(f"{self.package}.{kind}" for kind in MEASURING)

    def is_under_test(self, module: str) -> bool:
        """Whether a module, given by its dotted name, belongs to a package under test and is none that measures."""
        return is_within(module, self.settings.under_test) and not is_within(module, self.measuring)

    def check(self) -> tuple[str, ...]:
        """Compare the catalogue with the content package, in both directions.

        :returns: warnings, one sentence for each kind of entry that no claim uses
        :raises CatalogueError: if a claim names a probe, experiment, fault or module that does not exist
        :raises SettingsError: if a package under test cannot be found
        """
        _ = self.folder, self.code_places
        for claim in self.claims:
            self._check_claim(claim)
        _ = self.figure_plots, self.pages  # so that what cannot be imported is known before anything is measured
        claimed = {name for name, fault in self.faults.items() if fault.claimed}
        warnings = (
            _unused("fault", claimed, {name for claim in self.claims for name in (claim.fault, claim.documented_fix)}),
            _unused("probe", self.probes, {claim.probe for claim in self.claims}),
            _unused("experiment", self.experiments, {claim.experiment for claim in self.claims}),
        )
        return tuple(filter(None, warnings))

    def _missing(self, key: str, package: str) -> SettingsError:
        places = ", ".join(map(str, self.settings.pythonpath)) or "no folder"
        reason = f"no package {package!r} can be found (pythonpath: {places}); create it, or correct the name"
        return SettingsError(self.root / FILE, key, reason)

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
                    f"{claim.document}.toml", claim.id, field, f"there is no {name!r}{suggestion(name, known)}"
                )
        for name in claim.modules:
            try:
                module_path(name)
            except LookupError as error:
                raise CatalogueError(f"{claim.document}.toml", claim.id, "modules", str(error)) from error


def _unused(what: str, known: Iterable[str], used: set[str | None]) -> str:
    unused = sorted(set(known) - used)
    return f"no claim uses the {what} {', '.join(unused)}; write a claim, or remove it" if unused else ""


def _look_up(what: str, name: str, known: Mapping[str, Entry]) -> Entry:
    if name not in known:
        raise UnknownNameError(f"no {what} named {name!r}{suggestion(name, known)}")
    return known[name]
