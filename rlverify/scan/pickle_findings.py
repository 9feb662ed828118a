"""Judges what the pickles of one stream would import: safe, unknown or dangerous."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, Final, Literal, TypeAlias

from rlverify.pickles.bounded_reading import NotScannedError
from rlverify.pickles.pickle_imports import COMPUTED, PickleImport, content_of, starts_like_a_pickle
from rlverify.scan.findings import RULES, ScanFinding, ScanSeverity

Danger: TypeAlias = Literal["safe", "unknown", "dangerous"]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_REAL_TYPES: Final = _words("BFloat16 Bool Byte Char Double Float Half Int Long Short")
_COMPLEX_TYPES: Final = ("ComplexDouble", "ComplexFloat")
_TORCH_NAMES: Final = _words(
    """
    QInt32Storage QInt8Storage QUInt2x4Storage QUInt4x2Storage QUInt8Storage Size Tensor device bfloat16
    bits16 bits1x8 bits2x4 bits4x2 bits8 bool complex128 complex32 complex64 float16 float32 float64
    float4_e2m1fn_x2 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu int1 int2 int3
    int4 int5 int6 int7 int8 int16 int32 int64 uint1 uint2 uint3 uint4 uint5 uint6 uint7 uint8 uint16 uint32
    uint64 per_channel_affine per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine
    per_tensor_symmetric qint32 qint8 quint2x4 quint4x2 quint8
    """
)
_TORCH_FUNCTIONS: Final = _words(
    """
    _rebuild_device_tensor_from_cpu_tensor _rebuild_device_tensor_from_numpy _rebuild_meta_tensor_no_storage
    _rebuild_nested_tensor _rebuild_parameter _rebuild_parameter_with_state _rebuild_qtensor
    _rebuild_sparse_tensor _rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_wrapper_subclass
    """
)
_NUMPY_TYPES: Final = _words(
    """
    bool bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128
    """
)

ADMITTED_BY_TORCH: Final = frozenset(
    {
        *(("collections", name) for name in ("OrderedDict", "Counter")),
        *(("builtins", name) for name in ("bytearray", "complex", "set")),
        ("_codecs", "encode"),
        ("torch.nn.parameter", "Parameter"),
        ("torch.serialization", "_get_layout"),
        ("torch._tensor", "_rebuild_from_type_v2"),
        *(("torch.storage", name) for name in ("TypedStorage", "UntypedStorage")),
        *(("torch", name) for name in _TORCH_NAMES),
        *((module, f"{kind}Storage") for module in ("torch", "torch.cuda") for kind in (*_REAL_TYPES, *_COMPLEX_TYPES)),
        *((module, f"{kind}Tensor") for module in ("torch", "torch.cuda") for kind in _REAL_TYPES),
        *(("torch._utils", name) for name in _TORCH_FUNCTIONS),
    }
)
"""What ``torch.load(weights_only=True)`` admits."""

NUMPY_DATA: Final = frozenset(
    {
        *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
        *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
        *(("numpy", name) for name in ("ndarray", "dtype", *_NUMPY_TYPES)),
    }
)
"""What arrays and numbers of NumPy are made with."""

_SAFE: Final = ADMITTED_BY_TORCH | NUMPY_DATA

_DANGEROUS_MODULES: Final = frozenset(
    _words("""
    os posix nt subprocess _posixsubprocess sys pty shutil tempfile fileinput socket _socket socketserver ssl
    http urllib ftplib smtplib imaplib poplib telnetlib nntplib xmlrpc webbrowser requests httpx aiohttp
    urllib3 importlib imp runpy pkgutil pydoc zipimport code codeop pdb bdb cProfile profile timeit trace
    doctest unittest marshal ctypes _ctypes cffi mmap signal multiprocessing concurrent threading _thread
    asyncio sched atexit linecache logging.config commands popen2 ensurepip venv site pip setuptools distutils
    idlelib lib2to3 test.support sqlite3 dbm shelve torch.hub torch.package torch.utils.cpp_extension
    torch.utils._config_module torch._inductor torch._dynamo numpy.testing numpy.distutils numpy.f2py
    numpy.lib.npyio
    """)
)
_DANGEROUS_NAMES: Final = frozenset(
    (module, name)
    for modules, names in {
        "builtins": """
            eval exec compile open __import__ getattr setattr delattr globals locals vars input breakpoint execfile
            file apply help
        """,
        "operator _operator": "attrgetter methodcaller itemgetter",
        "functools": "partial partialmethod reduce",
        "types": "CodeType FunctionType LambdaType MethodType ModuleType",
        "pickle _pickle pickle5 cloudpickle": "load loads Unpickler",
        "cloudpickle.cloudpickle": """
            load loads _make_function _builtin_type _make_skel_func _fill_function subimport
        """,
        "dill dill._dill _dill": """
            load loads load_session _create_function _create_code _load_type _import_module _eval_repr
        """,
        "joblib joblib.numpy_pickle torch torch.serialization numpy": "load",
        "torch.storage": "_load_from_bytes",
        "io _io": "open open_code FileIO",
        "codecs": "open",
        "pandas pandas.io.pickle": "read_pickle",
        "yaml": "load unsafe_load full_load",
    }.items()
    for module in _words(modules)
    for name in _words(names)
)


def danger_of(imported: PickleImport) -> Danger:
    """Say whether unpickling may import this without a remark, with one, or never."""
    key = (imported.module, imported.name)
    if key in _SAFE:
        return "safe"
    if COMPUTED in key or key in _DANGEROUS_NAMES or _is_in_dangerous_module(imported):
        return "dangerous"
    return "unknown"


def _is_in_dangerous_module(imported: PickleImport) -> bool:
    """By the module or one that contains it, or by a part of a name with dots, which reaches through modules."""
    parts = imported.module.split(".")
    if any(".".join(parts[:length]) in _DANGEROUS_MODULES for length in range(1, len(parts) + 1)):
        return True
    reached = imported.name.split(".")
    if len(reached) == 1:
        return False
    return parts[0] == "pathlib" or any(
        each in _DANGEROUS_MODULES or ("builtins", each) in _DANGEROUS_NAMES for each in reached
    )


_REPORTED: Final[tuple[tuple[Danger, str, ScanSeverity], ...]] = (
    ("dangerous", "pickle-dangerous-import", "error"),
    ("unknown", "pickle-import", "warning"),
)
MAX_NAMED: Final = 8
"""How many imports a message names."""
MAX_PICKLES: Final = 1000
PICKLES_OF_OLD_TORCH: Final = 5
"""Number, protocol, system, object, keys of the tensor data, which follows."""
_MODULE_AND_NAME: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


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

    def problem(self, problem: NotScannedError) -> ScanFinding:
        """Return the finding that something was not scanned."""
        return self.finding(problem.rule, "warning", problem.reason)


_PRINTABLE: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127)}


def findings_of_pickles(content: BinaryIO, place: Place) -> Iterator[ScanFinding]:
    """Yield what unpickling a stream would import: its first pickle, and those that follow."""
    found = [content_of(content)]
    while found[-1].problem is None and len(found) < MAX_PICKLES:
        start = content.tell()
        head = content.read(3)
        content.seek(start)
        is_old_torch = found[0].is_number and len(found) < PICKLES_OF_OLD_TORCH
        if not head or not (is_old_torch or starts_like_a_pickle(head)):
            break  # the rest is something else, such as the data of tensors
        found.append(content_of(content))
    yield from findings_of_imports([each for content in found for each in content.imports], place)
    if found[0].problem is not None:
        yield place.problem(found[0].problem)


def findings_of_unknown_file(content: BinaryIO, place: Place) -> Iterator[ScanFinding]:
    """Yield what unpickling a file would import whose name and start say nothing, as an old pickle may have any."""
    found = content_of(content)
    names = (name for each in found.imports for name in (each.module, each.name))
    if found.problem is None and all(map(_MODULE_AND_NAME.fullmatch, names)):
        yield from findings_of_imports(found.imports, place)


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
