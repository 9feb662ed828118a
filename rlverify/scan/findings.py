"""What a scan reports, one record for each place that trusts its input: its rules, and what pickles would import."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, Final, Literal, TypeAlias

from rlverify.pickles import COMPUTED, PickleContent, PickleImport, content_of, problem_of

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
        "yaml-load",
        "yaml.load with an unsafe loader executes code from its input",
        "Loader and UnsafeLoader make any Python object that a tag of the text names, such as !!python/object/apply.",
        "call yaml.safe_load",
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


Danger: TypeAlias = Literal["safe", "unknown", "dangerous"]


_SAFE: Final = re.compile(
    r"""
    collections\.(OrderedDict|Counter) | builtins\.(bytearray|complex|set) | _codecs\.encode
    | torch\.(nn\.parameter\.Parameter | serialization\._get_layout | _tensor\._rebuild_from_type_v2)
    | torch\.(storage\.(Typed|Untyped)Storage | (cuda\.)?[A-Z]\w+(Storage|Tensor) | Size | Tensor | device)
    | torch\.(bool | (b?float|q?u?int|complex|bits)\d\w* | per_(channel|tensor)_\w+ | _utils\._rebuild_\w+)
    | numpy\.(core|_core)\.(multiarray\.(_reconstruct|scalar) | numeric\._frombuffer)
    | numpy\.(ndarray | dtype | bool_? | (u?int|float|complex)\d+)
    """,
    re.VERBOSE,
)
"""What ``torch.load(weights_only=True)`` admits, and what arrays and numbers of NumPy are made with."""

_HARMLESS_MODULES: Final = re.compile(
    r"""
    builtins | collections | copyreg | datetime | decimal | enum | fractions | io | ipaddress | itertools | logging
    | math | pathlib | random | re | string | time | typing | uuid | zoneinfo
    """,
    re.VERBOSE,
)
"""Modules of the standard library that run nothing by themselves; any other is dangerous."""
_DANGEROUS: Final = re.compile(
    r"""
    builtins\.(eval | exec | compile | open | __import__ | (get|set|del)attr | globals | locals | vars | input
        | breakpoint | execfile | file | apply | help)
    | io\.(open\w* | FileIO) | logging\.config\..* | yaml\.(unsafe_|full_)?load(_all)?
    | pandas\.(io\.pickle\.)?read_pickle
    | (joblib | joblib\.numpy_pickle | torch | torch\.serialization | numpy)\.load | torch\.storage\._load_from_bytes
    | torch\.(hub | package | utils\.cpp_extension | utils\._config_module | _inductor | _dynamo)\..*
    | numpy\.(testing | distutils | f2py | lib\.npyio)\..*
    | (pickle5 | cloudpickle | dill | _dill | requests | httpx | aiohttp | urllib3 | cffi | pip | setuptools)\..*
    | (commands | popen2 | imp | distutils | lib2to3 | telnetlib | nntplib | asyncore | smtpd)\..*
    """,
    re.VERBOSE,
)


def danger_of(imported: PickleImport) -> Danger:
    """Say whether unpickling may import this without a remark, with one, or never.

    A name with dots reaches through modules and classes: ``torch.serialization`` has ``os.system``.
    """
    if _SAFE.fullmatch(str(imported)):
        return "safe"
    own, *inside = imported.name.split(".")
    reached = [imported.module.partition(".")[0], *([own, *inside[:-1]] if inside else [])]
    of_library = [each for each in reached if each in sys.stdlib_module_names]
    if (
        COMPUTED in (imported.module, imported.name)
        or _DANGEROUS.fullmatch(str(imported))
        or not all(map(_HARMLESS_MODULES.fullmatch, of_library))
        or (inside and of_library)
    ):
        return "dangerous"
    return "unknown"


_REPORTED: Final[tuple[tuple[Danger, str, ScanSeverity], ...]] = (
    ("dangerous", "pickle-dangerous-import", "error"),
    ("unknown", "pickle-import", "warning"),
)
MAX_NAMED: Final = 8
"""How many imports a message names."""
_NAME: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class Place:
    """Where findings are reported: a file, and the part of it if not the whole.

    :param remedy: what to do about imports, if not what the rule says
    """

    path: str
    field: str = ""
    remedy: str = ""

    def inside(self, name: str, separator: str = "/") -> Place:
        """Return a part of this place; names from files are shortened and made printable."""
        printable = name[:200].encode("ascii", "backslashreplace").decode().translate(_PRINTABLE)
        return replace(self, field=f"{self.field}{separator if self.field else ''}{printable}")

    def finding(self, rule: str, severity: ScanSeverity, message: str) -> ScanFinding:
        """Return a finding here."""
        remedy = self.remedy if rule == "pickle-import" and self.remedy else RULES[rule].remedy
        return ScanFinding(self.path, rule, severity, message, remedy, field=self.field)

    def problem(self, error: BaseException) -> ScanFinding:
        """Return the finding that something was not scanned."""
        problem = problem_of(error)
        return self.finding(problem.rule, "warning", problem.reason)


_PRINTABLE: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127)}


def findings_of_pickles(content: BinaryIO, place: Place, *, is_expected: bool = True) -> Iterator[ScanFinding]:
    """Yield what unpickling a stream would import: its first pickle, and what those that follow import in addition.

    :param is_expected: whether the stream must begin with a pickle; what follows the first may be anything
    """
    reported: set[PickleImport] = set()
    problem = None
    while problem is None:
        found = content_of(content)
        imports = found.imports if is_expected else tuple(_credible(found))
        yield from findings_of_imports([each for each in imports if each not in reported], place)
        problem = found.problem
        if problem is not None and (is_expected or problem.rule == "scan-limit"):
            yield place.problem(problem)
        reported.update(imports)
        is_expected = False


def _credible(found: PickleContent) -> Iterator[PickleImport]:
    """Yield the imports of what may be no pickle: names that Python has, and of one without an end, what it calls."""
    for each in found.imports:
        if (found.problem is None or each.is_called) and all(map(_NAME.fullmatch, (each.module, each.name))):
            yield each


def findings_of_imports(imports: Sequence[PickleImport], place: Place) -> Iterator[ScanFinding]:
    """Yield a finding for the dangerous imports, and one for the others that are not known to be safe."""
    for danger, rule, severity in _REPORTED:
        found = [each for each in dict.fromkeys(imports) if danger_of(each) == danger]
        parts = []
        for verb, is_called in (("call", True), ("import", False)):
            if names := [ascii(str(each))[1:-1][:120] for each in found if each.is_called is is_called]:
                more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
                parts.append(f"{verb} {', '.join(dict.fromkeys(names[:MAX_NAMED]))}{more}")
        if parts:
            yield place.finding(rule, severity, f"unpickling would {' and '.join(parts)}")
