"""The records that a scan reports, one for each place that trusts its input, and their rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

ScanSeverity: TypeAlias = Literal["error", "warning"]
"""``error`` executes whatever the file holds, ``warning`` may: it depends on the version, a value or the author."""


@dataclass(frozen=True)
class ScanRule:
    """One thing that a scan looks for, and in ``remedy`` what to do about it, in the imperative."""

    identifier: str
    title: str
    explanation: str
    remedy: str


@dataclass(frozen=True)
class ScanFinding:
    """One place that trusts its input.

    :param path: the file, as it was named or found
    :param rule: the identifier of a rule in `RULES`
    :param line: of Python source, from 1; None in other files
    :param field: the part of a checkpoint, such as ``data:policy_class``; empty for the file as a whole
    """

    path: str
    rule: str
    severity: ScanSeverity
    message: str
    remedy: str
    line: int | None = None
    field: str = ""

    @property
    def place(self) -> str:
        """The path with the line or the field."""
        return ":".join((self.path, *([] if self.line is None else [str(self.line)]), *filter(None, [self.field])))


_SAFE_FORMATS: Final = "load weights with torch.load(weights_only=True) or safetensors, and other values from JSON"

_ALL_RULES: Final = (
    ScanRule(
        "torch-load",
        "torch.load may execute code from the file",
        "torch.load unpickles the file. Only weights_only=True keeps it from executing code that the file names, and "
        "that is the default only from torch 2.6 on.",
        "pass weights_only=True",
    ),
    ScanRule(
        "pickle-load",
        "unpickling executes code from its input",
        "A pickle names functions that whoever loads it imports and calls. So does what cloudpickle, dill, shelve and "
        "pandas.read_pickle read.",
        _SAFE_FORMATS,
    ),
    ScanRule(
        "joblib-load",
        "joblib.load executes code from the file",
        "joblib.load unpickles the file, which names functions that are imported and called.",
        "store arrays with numpy.savez and read them with numpy.load(allow_pickle=False), or use skops for estimators",
    ),
    ScanRule(
        "numpy-load",
        "numpy.load(allow_pickle=True) executes code from the file",
        "Object arrays are pickles, which name functions that are imported and called.",
        "leave out allow_pickle, and store numbers and texts rather than objects",
    ),
    ScanRule(
        "vecnormalize-load",
        "VecNormalize.load executes code from the file",
        "VecNormalize.load unpickles the file, which names functions that are imported and called.",
        "store the statistics (obs_rms, ret_rms) with numpy.savez, and set them on a new VecNormalize",
    ),
    ScanRule(
        "model-load",
        "loading a model of Stable-Baselines3 executes code from the file",
        "load() unpickles fields of the model file, and load_replay_buffer() the whole file. Both import and call "
        "functions that the file names.",
        "build the model and call rlverify.scan.load_parameters_safely(file, model)",
    ),
    ScanRule(
        "pickle-dangerous-import",
        "the file calls functions that run programs or code",
        "Whoever unpickles this file imports modules that can run programs, execute code or change files.",
        "do not load the file; ask its author for one with weights alone",
    ),
    ScanRule(
        "pickle-import",
        "the file imports classes or functions when it is unpickled",
        "Unpickling imports these modules, which executes their code, and calls what is named. What torch.load admits "
        "with weights_only=True is not reported.",
        "load the file only if you trust its author; torch.load(weights_only=True) refuses it",
    ),
    ScanRule(
        "unreadable-file",
        "the file cannot be read to its end",
        "What could not be read was not scanned. Other readers may be more tolerant and execute it.",
        "do not load the file before you know why it cannot be read",
    ),
    ScanRule(
        "scan-limit",
        "the file exceeds a limit of the scan",
        "What lies beyond the limit was not scanned.",
        "load the file only if you trust its author",
    ),
)

RULES: Final[Mapping[str, ScanRule]] = {rule.identifier: rule for rule in _ALL_RULES}
