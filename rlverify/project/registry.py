"""What the modules of a content package register by decorators: faults, probes, experiments, plots and pages."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

from rlverify.project.fingerprint import is_within
from rlverify.records.errors import FaultError, RegistrationError, UnknownNameError
from rlverify.records.measured import Observation
from rlverify.records.process import stdout_sent_to_stderr

Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """Entries by name, each with the module that registered it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.entries: dict[str, Entry] = {}
        self._modules: dict[str, str] = {}

    def add(self, name: str, entry: Entry, module: str) -> None:
        """Register an entry."""
        if name in self.entries:
            raise RegistrationError(
                f"two {self.kind}s are named {name!r}: in {self._modules[name]} and {module}; rename one of them"
            )
        self.entries[name] = entry
        self._modules[name] = module

    def load(self, package: str) -> Mapping[str, Entry]:
        """Import every module of a package and return what they registered, by name."""
        if importlib.util.find_spec(package) is None:
            return {}
        with stdout_sent_to_stderr():  # what it prints must not mix with what the program prints
            folders = getattr(importlib.import_module(package), "__path__", ())  # none, if it is a single module
            for module in pkgutil.iter_modules(folders, f"{package}."):
                importlib.import_module(module.name)
        return {name: each for name, each in self.entries.items() if is_within(self._modules[name], (package,))}


Function = TypeVar("Function", bound=Callable[..., Any])


def _registering(registry: Registry[Any], name: str, make: Callable[[Any], Any] = lambda function: function) -> Any:
    """Return a decorator that registers what is made of a function, which stays as it is."""

    def register(function: Function) -> Function:
        registry.add(name, make(function), function.__module__)
        return function

    return register


@dataclass(frozen=True)
class Fault:
    """One known bug.

    :param owner: the class or module whose member is replaced: ``package.module:Class`` or ``package.module``
    :param member: the name of the method, property or function in it
    :param pins: fingerprint of the healthy member
    :param defined_in: the module that defines the fault, for the digest of the experiment
    :param claimed: whether a claim of the catalogue is about it; else only tests that must detect it name it
    """

    name: str
    owner: str
    member: str
    replacement: Callable[..., Any]
    pins: str
    area: str
    defined_in: str
    claimed: bool = True

    @property
    def target(self) -> str:
        """What it replaces: ``package.module:Class.member`` or ``package.module:function``."""
        return f"{self.owner}{'.' if ':' in self.owner else ':'}{self.member}"


FAULTS: Registry[Fault] = Registry("fault")


def fault(
    name: str, *, target: str, pins: str, area: str | None = None, claimed: bool = True
) -> Callable[[Function], Function]:
    """Register the decorated function as the fault ``name``.

    :param target: ``package.module:Class.member`` or ``package.module:function``
    :param area: where left out, the name of the module that defines the fault
    :param claimed: whether a claim should be about it; `rlverify audit` warns if there is none
    """
    module, _, path = str(target).partition(":")
    *classes, member = path.split(".")
    if not module or not member or ":" in path:
        raise FaultError(f"{name}: target {target!r} must read package.module:function or package.module:Class.member")

    def register(replacement: Function) -> Function:
        if inspect.isgeneratorfunction(replacement):
            raise FaultError(f"{name}: errors in a generator go unnoticed; return iter([...])")
        owner = ":".join(filter(None, (module, ".".join(classes))))
        home = replacement.__module__
        add_fault(Fault(name, owner, member, replacement, pins, area or home.rpartition(".")[2], home, claimed))
        return replacement

    return register


unclaimed = functools.partial(fault, claimed=False)
"""A fault that no claim is about: only tests that must detect it name it."""


def add_fault(new: Fault) -> Fault:
    """Register a fault that was not made by the decorator."""
    FAULTS.add(new.name, new, new.defined_in)
    return new


def get_fault(name: str) -> Fault:
    """The registered fault of that name; its module must have been imported."""
    if name not in FAULTS.entries:
        raise UnknownNameError(f"no fault named {name!r} is registered; known: {', '.join(sorted(FAULTS.entries))}")
    return FAULTS.entries[name]


Probe: TypeAlias = Callable[..., Sequence[Observation]]

PROBES: Registry[Probe] = Registry("probe")


def probe(name: str) -> Callable[[Function], Function]:
    """Register the decorated function as the probe ``name``."""
    return _registering(PROBES, name)  # type: ignore[no-any-return]


Experiment: TypeAlias = Callable[..., Mapping[str, float]]

EXPERIMENTS: Registry[Experiment] = Registry("experiment")


def experiment(name: str) -> Callable[[Function], Function]:
    """Register the decorated function as the experiment ``name``."""
    return _registering(EXPERIMENTS, name)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Line:
    """One line of a plot.

    :param values: one for each position; None where there is none, which interrupts the line
    """

    label: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Plot:
    """What a plot shows.

    :param positions: ascending; the same for all lines
    :param note: what was measured, and how, in a sentence or two; shown next to the plot
    """

    title: str
    x_label: str
    y_label: str
    positions: tuple[float, ...]
    lines: tuple[Line, ...]
    note: str


PLOTS_FOLDER: Final = "plots"
"""Folder of the pictures, in that of the reports."""
PlotDrawing: TypeAlias = Callable[..., Plot]


@dataclass(frozen=True)
class FigurePlot:
    """A plot of the values of figures."""

    claims: tuple[str, ...]
    draw: PlotDrawing


FIGURE_PLOTS: Registry[FigurePlot] = Registry("plot")


def figure_plot(name: str, *claims: str) -> Callable[[Function], Function]:
    """Register the decorated function as what draws the plot ``name`` from the values of figures.

    :param claims: ids of the figures; the function is called with the values of each
    :raises RegistrationError: if another plot of figures has this name
    """
    return _registering(FIGURE_PLOTS, name, lambda draw: FigurePlot(claims, draw))  # type: ignore[no-any-return]


# The argument is a rlverify.reporting.report_data.ReportData, which this package is below.
PageRenderer: TypeAlias = Callable[[Any], str]


@dataclass(frozen=True)
class Page:
    """A page of the report.

    :param name: its file name within the folder of reports
    :param about: what is on it, as the end of a line
    :param documents: keys of the documents, or stems of the catalogue files, whose claims have their sections on it
    :param render: from a ``ReportData`` to the whole page as GitHub-flavoured Markdown
    """

    name: str
    title: str
    about: str
    documents: tuple[str, ...]
    render: PageRenderer


RESERVED: Final = ("index.md", "all-claims.md", "claims.md", "kill-matrix.md")
"""Pages of the engine; a project changes them with a template of the same name."""

PAGES: Registry[Page] = Registry("page")


def page(name: str, *, title: str, about: str, documents: Iterable[str] = ()) -> Callable[[Function], Function]:
    """Register the decorated function as what renders the page ``name``.

    The function is called with a `rlverify.reporting.report_data.ReportData` and returns the page as Markdown.
    `rlverify.reporting.markdown.render` renders a template of the folder ``pages/templates`` in the content package.

    :param documents: keys of the documents, or stems of the catalogue files, whose claims have their sections on it
    :raises RegistrationError: if another page has this name, or a page of the engine
    """
    if name in RESERVED or "/" in name or not name.endswith(".md"):
        raise RegistrationError(
            f"a page cannot be named {name!r}; choose a file name that ends with .md, other than {', '.join(RESERVED)}"
        )
    about_documents = tuple(documents)
    return _registering(PAGES, name, lambda render: Page(name, title, about, about_documents, render))  # type: ignore[no-any-return]


Facts: TypeAlias = Callable[[Any, Path], Any]
"""From a `Project` and its folder of reports to what templates of the project read."""

FACTS: Registry[Facts] = Registry("page")


def facts(name: str) -> Callable[[Function], Function]:
    """Register the decorated function of a module in ``pages``: what it returns is ``data.facts[name]`` in templates.

    The facts ``remarks`` are a line of Markdown for the section of a claim, by its id.
    """
    return _registering(FACTS, name)  # type: ignore[no-any-return]
