"""What the modules of a content package register under a name: faults, probes, experiments, plots and pages."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping
from typing import Generic, TypeVar

from rlverify.project.fingerprint import is_within
from rlverify.records.errors import RegistrationError
from rlverify.records.printing import stdout_sent_to_stderr

Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """Entries by name, each with the module that registered it.

    :param kind: what the entries are, for messages
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.entries: dict[str, Entry] = {}
        self._modules: dict[str, str] = {}

    def add(self, name: str, entry: Entry, module: str) -> None:
        """Register an entry.

        :param module: dotted name of the module that registers it
        :raises RegistrationError: if the name is taken
        """
        if name in self.entries:
            raise RegistrationError(
                f"two {self.kind}s are named {name!r}: in {self._modules[name]} and {module}; rename one of them"
            )
        self.entries[name] = entry
        self._modules[name] = module

    def load(self, package: str) -> Mapping[str, Entry]:
        """Import every module of a package and return what they registered, by name.

        Without such a package, there is nothing.
        """
        if importlib.util.find_spec(package) is None:
            return {}
        with stdout_sent_to_stderr():  # what it prints must not mix with what the program prints
            folders = getattr(importlib.import_module(package), "__path__", ())  # none, if it is a single module
            for module in pkgutil.iter_modules(folders, f"{package}."):
                importlib.import_module(module.name)
        return {name: each for name, each in self.entries.items() if is_within(self._modules[name], (package,))}
