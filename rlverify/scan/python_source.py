"""Finds the calls in Python source that execute what their input says; the source is parsed and never imported."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Final, NamedTuple, TypeAlias

from rlverify.pickles import NotScannedError
from rlverify.scan.findings import RULES, ScanFinding, ScanSeverity

Judgement: TypeAlias = "tuple[ScanSeverity, str] | None"
"""Severity and message; None for a call that is safe."""


class LoadingFunction(NamedTuple):
    """A function that loads: the rule that a call of it breaks, and the judgement of a call and the function's name."""

    rule: str
    judge: Callable[[ast.Call, str], Judgement]


def _always(_: ast.Call, name: str) -> Judgement:
    return "error", f"{name} executes what its input says"


def _model(_: ast.Call, name: str) -> Judgement:
    return "error", f"{name} unpickles fields of the model file, which can execute code"


def _torch_load(call: ast.Call, name: str) -> Judgement:
    given = _keyword(call, "weights_only")
    if given is None:
        return "warning", f"{name} without weights_only=True executes what the file says, unless torch is 2.6 or newer"
    if not isinstance(given, ast.Constant):
        return "warning", f"{name} executes what the file says if weights_only={ast.unparse(given):.80} is false"
    if given.value:
        return None
    return "error", f"{name} with weights_only={given.value!r:.80} executes what the file says"


def _numpy_load(call: ast.Call, name: str) -> Judgement:
    given = _keyword(call, "allow_pickle") or (call.args[2] if len(call.args) > 2 else None)
    if given is None or (isinstance(given, ast.Constant) and not given.value):
        return None
    if isinstance(given, ast.Constant):
        return "error", f"{name} with allow_pickle={given.value!r:.80} executes what the file says"
    return "warning", f"{name} executes what the file says if allow_pickle={ast.unparse(given):.80} is true"


def _yaml_load(call: ast.Call, name: str) -> Judgement:
    given = _keyword(call, "Loader") or (call.args[1] if len(call.args) > 1 else None)
    if given is None:
        return "warning", f"{name} without Loader executes what the file says, unless PyYAML is 5.4 or newer"
    loader = ast.unparse(given)
    if loader.rpartition(".")[2] in ("Loader", "CLoader", "UnsafeLoader"):
        return "error", f"{name} with {loader:.80} executes what the file says"
    return None


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == name), None)


_CLOUDPICKLE: Final = "cloudpickle.cloudpickle"
_PICKLING_MODULES: Final = (
    "pickle",
    "_pickle",
    "cPickle",
    "pickle5",
    "cloudpickle",
    _CLOUDPICKLE,
    "dill",
    "dill._dill",
)

_PICKLE_LOADERS: Final = (
    *(f"{module}.{name}" for module in _PICKLING_MODULES for name in ("load", "loads", "Unpickler")),
    "dill.load_session",
    "dill.load_module",
    "shelve.open",
    "pandas.read_pickle",
    "pandas.io.pickle.read_pickle",
    "stable_baselines3.common.save_util.load_from_pkl",
)
_JOBLIB_LOADERS: Final = ("joblib.load", "joblib.numpy_pickle.load", "sklearn.externals.joblib.load")

LOADING_FUNCTIONS: Final[Mapping[str, LoadingFunction]] = {
    **dict.fromkeys(_PICKLE_LOADERS, LoadingFunction("pickle-load", _always)),
    **dict.fromkeys(_JOBLIB_LOADERS, LoadingFunction("joblib-load", _always)),
    **dict.fromkeys(("torch.load", "torch.serialization.load"), LoadingFunction("torch-load", _torch_load)),
    **dict.fromkeys(("numpy.load", "numpy.lib.npyio.load"), LoadingFunction("numpy-load", _numpy_load)),
    **dict.fromkeys(("yaml.unsafe_load", "yaml.unsafe_load_all"), LoadingFunction("yaml-load", _always)),
    **dict.fromkeys(("yaml.load", "yaml.load_all"), LoadingFunction("yaml-load", _yaml_load)),
    "stable_baselines3.common.save_util.load_from_zip_file": LoadingFunction("model-load", _model),
}

WRITING_FUNCTIONS: Final = frozenset(f"{module}.dumps" for module in _PICKLING_MODULES)
"""What they return comes from this process, so that loading it needs no trust."""

MODEL_PACKAGES: Final = ("stable_baselines3", "sb3_contrib")
_REPLAY_BUFFER: Final = "load_replay_buffer"


def loading_function(name: str) -> LoadingFunction | None:
    """Return the function of this dotted name, or the class method ``load`` of a class of Stable-Baselines3."""
    known = LOADING_FUNCTIONS.get(name)
    if known is not None:
        return known
    owner, _, method = name.rpartition(".")
    if method == _REPLAY_BUFFER:
        return LoadingFunction("model-load", _always)
    if method == "load" and is_model_class(owner):
        is_normalizer = owner.endswith(".VecNormalize")
        return LoadingFunction("vecnormalize-load", _always) if is_normalizer else LoadingFunction("model-load", _model)
    return None


def is_model_class(name: str) -> bool:
    """Say whether a dotted name is that of a class of Stable-Baselines3 or sb3-contrib, by the way it is written."""
    package, _, rest = name.partition(".")
    return package in MODEL_PACKAGES and rest.rpartition(".")[2][:1].isupper()


_MODULES: Final = frozenset(name.rpartition(".")[0] for name in LOADING_FUNCTIONS)


class Aliases:
    """The meanings of names in one module, whichever function they are in: of what is imported and assigned."""

    def __init__(self, nodes: Sequence[ast.AST]) -> None:
        self._meanings: defaultdict[str, set[str]] = defaultdict(set)
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                for name, meaning in _imported(node):
                    self._meanings[name].add(meaning)
        for node in nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                meanings = self.meanings_of(node.value)
                known = {
                    each for each in meanings if each in LOADING_FUNCTIONS.keys() | _MODULES or is_model_class(each)
                }
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        self._meanings[target.id] |= known

    def meanings_of(self, expression: ast.expr) -> list[str]:
        """Return the dotted names that an expression may stand for, sorted; without one, its own spelling."""
        suffix = ""
        while isinstance(expression, ast.Attribute):
            suffix, expression = f".{expression.attr}{suffix}", expression.value
        roots = {""}
        if isinstance(expression, ast.Name):
            roots = self._meanings.get(expression.id) or {expression.id}
        elif isinstance(expression, ast.Call):  # makes or loads a model, whose methods have their names from its class
            made = {each.removesuffix(".load") for each in self.meanings_of(expression.func)}
            roots = set(filter(is_model_class, made)) or roots
        return sorted(root + suffix for root in roots)


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Yield each name that an import binds, and what it stands for."""
    if isinstance(node, ast.Import):
        for each in node.names:
            top = each.name.partition(".")[0]
            yield (each.asname, each.name) if each.asname else (top, top)
    elif node.module is not None and not node.level:
        for each in node.names:
            if each.name == "*":
                functions = (function.rpartition(".") for function in LOADING_FUNCTIONS)
                yield from ((name, f"{owner}.{name}") for owner, _, name in functions if owner == node.module)
            else:
                yield each.asname or each.name, f"{node.module}.{each.name}"


_MISSING_REASON: Final = "the comment `# rlverify: trusted` needs a reason to count: `# rlverify: trusted REASON`; or "


def findings_of_source(content: bytes, path: str) -> Iterator[ScanFinding]:
    """Yield the calls that trust their input, in the order of their lines."""
    source = _decoded(content)
    nodes = list(ast.walk(_parsed(source)))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    aliases, reasons = Aliases(nodes), trust_comments(source)
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        yield from _findings_of_call(call, aliases, reasons, path)


def _decoded(content: bytes) -> str:
    try:
        encoding, _ = tokenize.detect_encoding(BytesIO(content).readline)
        return content.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise NotScannedError("unreadable-file", f"is not text: {str(error)[:120]}") from error


def _parsed(source: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the source, which is another's
            return ast.parse(source)
    except SyntaxError as error:
        raise NotScannedError("unreadable-file", f"is not Python 3: {error.msg}, line {error.lineno}") from error
    except MemoryError as error:
        raise NotScannedError(
            "scan-limit", "is too large or nested too deeply to be parsed; it was not scanned"
        ) from error
    except (ValueError, RecursionError) as error:
        raise NotScannedError("unreadable-file", f"cannot be parsed: {str(error)[:120]}") from error


def _findings_of_call(call: ast.Call, aliases: Aliases, reasons: Mapping[int, str], path: str) -> Iterator[ScanFinding]:
    for name in aliases.meanings_of(call.func):
        function = loading_function(name)
        judgement = None if function is None else function.judge(call, name.lstrip("."))
        if function is None or judgement is None or _loads_what_was_just_written(call, aliases):
            continue
        comments = [reasons[line] for line in {call.lineno, call.end_lineno or call.lineno} if line in reasons]
        if not any(comments):
            advice = _MISSING_REASON * bool(comments) + RULES[function.rule].remedy
            yield ScanFinding(path, function.rule, *judgement, advice, line=call.lineno)
        return


def _loads_what_was_just_written(call: ast.Call, aliases: Aliases) -> bool:
    """Say whether the argument is the result of ``dumps``, as in a deep copy."""
    if not call.args or not isinstance(call.args[0], ast.Call):
        return False
    return not WRITING_FUNCTIONS.isdisjoint(aliases.meanings_of(call.args[0].func))


_COMMENT: Final = re.compile(r"#\s*rlverify:\s*trusted\b\s*:?\s*(?P<reason>[^#]*)")


def trust_comments(source: str) -> Mapping[int, str]:
    """Return the reason that each comment gives, by its line; empty for one without a reason."""
    reasons: dict[int, str] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            found = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
            if found:
                reasons[token.start[0]] = found["reason"].strip()
    except (tokenize.TokenError, SyntaxError):  # the parser reports the file
        return {}
    return reasons
