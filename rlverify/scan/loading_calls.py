"""The functions that execute what their input says, and what decides whether a call of one is reported."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from rlverify.scan.findings import ScanSeverity

Judgement: TypeAlias = "tuple[ScanSeverity, str] | None"
"""Severity and message; None for a call that is safe."""


@dataclass(frozen=True)
class LoadingFunction:
    """A function that loads.

    :param rule: that a call of it breaks
    :param judge: from the call and the function's name
    """

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


_PICKLING_MODULES: Final = ("pickle", "_pickle", "cPickle", "pickle5", "cloudpickle", "dill", "dill._dill")

LOADING_FUNCTIONS: Final[Mapping[str, LoadingFunction]] = {
    **{
        f"{module}.{name}": LoadingFunction("pickle-load", _always)
        for module in (*_PICKLING_MODULES, "cloudpickle.cloudpickle")
        for name in ("load", "loads", "Unpickler")
    },
    **{
        name: LoadingFunction("pickle-load", _always)
        for name in (
            "dill.load_session",
            "dill.load_module",
            "shelve.open",
            "pandas.read_pickle",
            "pandas.io.pickle.read_pickle",
            "stable_baselines3.common.save_util.load_from_pkl",
        )
    },
    **{
        name: LoadingFunction("joblib-load", _always)
        for name in ("joblib.load", "joblib.numpy_pickle.load", "sklearn.externals.joblib.load")
    },
    **{name: LoadingFunction("torch-load", _torch_load) for name in ("torch.load", "torch.serialization.load")},
    **{name: LoadingFunction("numpy-load", _numpy_load) for name in ("numpy.load", "numpy.lib.npyio.load")},
    "stable_baselines3.common.save_util.load_from_zip_file": LoadingFunction("model-load", _model),
}

WRITING_FUNCTIONS: Final = frozenset(f"{module}.dumps" for module in (*_PICKLING_MODULES, "cloudpickle.cloudpickle"))
"""What they return comes from this process, so that loading it needs no trust."""

MODEL_PACKAGES: Final = ("stable_baselines3", "sb3_contrib")
_REPLAY_BUFFER: Final = "load_replay_buffer"


def loading_function(name: str) -> LoadingFunction | None:
    """The function of this dotted name, or the class method ``load`` of a class of Stable-Baselines3."""
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
    """Whether a dotted name is that of a class of Stable-Baselines3 or sb3-contrib, by the way it is written."""
    package, _, rest = name.partition(".")
    return package in MODEL_PACKAGES and rest.rpartition(".")[2][:1].isupper()
