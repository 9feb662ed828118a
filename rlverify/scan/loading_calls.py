"""The functions that execute what their input says, and the names by which a module calls them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from rlverify.scan.findings import ScanSeverity

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


MAX_MEANINGS: Final = 8
"""How many dotted names one name may stand for, as in a file that imports it in several branches."""
_IMPORTERS: Final = frozenset({"__import__", "importlib.import_module"})


class Aliases:
    """The meanings of names in one module, whichever function they are in."""

    def __init__(self, nodes: Collection[ast.AST]) -> None:
        self._meanings: defaultdict[str, set[str]] = defaultdict(set)
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                for name, meaning in _imported(node):
                    self._add(name, meaning)
        for node in sorted(nodes, key=lambda node: getattr(node, "lineno", 0)):
            self._add_definition(node)

    def meanings_of(self, expression: ast.expr) -> tuple[str, ...]:
        """Return the dotted names that an expression may stand for, sorted; without one, its own spelling."""
        attributes: list[str] = []
        while isinstance(expression, ast.Attribute):
            attributes.append(expression.attr)
            expression = expression.value
        suffix = "".join(f".{name}" for name in reversed(attributes))
        return tuple(sorted(f"{name}{suffix}" for name in self._of_root(expression)))

    def _of_root(self, root: ast.expr) -> Collection[str]:
        if isinstance(root, ast.Name):
            return self._meanings.get(root.id, ()) or (root.id,)
        if isinstance(root, ast.NamedExpr):
            return self.meanings_of(root.value)
        return self._of_call(root) if isinstance(root, ast.Call) else ("",)

    def _of_call(self, call: ast.Call) -> Collection[str]:
        """``getattr(module, "name")``, ``import_module("name")`` and instances of classes of Stable-Baselines3."""
        called = self.meanings_of(call.func)
        texts = [
            each.value if isinstance(each, ast.Constant) and isinstance(each.value, str) else "" for each in call.args
        ]
        if called == ("getattr",) and len(texts) > 1 and texts[1]:
            return [f"{name}.{texts[1]}" for name in self.meanings_of(call.args[0])]
        if _IMPORTERS.intersection(called) and texts and texts[0]:
            return texts[:1]
        classes = (each.removesuffix(".load") for each in called)
        return [each for each in classes if is_model_class(each)] or ("",)

    def _add(self, name: str, meaning: str) -> None:
        if meaning and len(self._meanings[name]) < MAX_MEANINGS:
            self._meanings[name].add(meaning)

    def _add_definition(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (each.id for each in targets if isinstance(each, ast.Name)):
                self._add_all(name, node.value)
        elif isinstance(node, ast.ClassDef) and not _replaces_loading(node):
            for base in node.bases:
                self._add_all(node.name, base)

    def _add_all(self, name: str, value: ast.expr) -> None:
        for meaning in self.meanings_of(value):
            if meaning in LOADING_FUNCTIONS or is_model_class(meaning) or meaning in _MODULES:
                self._add(name, meaning)


_MODULES: Final = frozenset(name.rpartition(".")[0] for name in LOADING_FUNCTIONS)


def _replaces_loading(node: ast.ClassDef) -> bool:
    """Say whether a class has its own way of loading, or of choosing what an unpickler may import."""
    return any(isinstance(each, ast.FunctionDef) and each.name in ("load", "find_class") for each in node.body)


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
