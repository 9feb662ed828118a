"""What a planted fault says about who runs it, and what the hint names where production code runs something else."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlverify.project.fingerprint import member_digest
from rlverify.project.planting import plant, unreached_hint
from rlverify.project.registry import Fault
from tests.engine.in_process import fresh_projects

MODELS = """
class Base:
    def loss(self, value):
        return value

class Middle(Base):
    pass

class Child(Middle):
    def loss(self, value):
        return -value

class Outer:
    class Inner:
        def count(self):
            return 1

class Settable:
    @property
    def size(self):
        "How large it is."
        return self.kept

    @size.setter
    def size(self, value):
        self.kept = value

    @size.deleter
    def size(self):
        self.kept = 0
"""
IMPORTS_SMOOTH = "from hinted.losses import smooth\n\ndef train():\n    return smooth(1)\n"
FILES = {
    "hinted/__init__.py": "from hinted.losses import huber\n\nVERSION = str(1)\n",
    "hinted/losses.py": "".join(
        f"def {name}(value):\n    return value\n\n" for name in ("huber", "pinball", "quantile", "smooth", "unused")
    )
    + "def total():\n    return quantile(1)\n",
    "hinted/models.py": MODELS,
    "hinted/nested/__init__.py": "from hinted.losses import pinball as pin\n\ndef train():\n    return pin(1)\n",
    "hinted/nested/deep.py": IMPORTS_SMOOTH,
    "hinted/other.py": "from hinted import losses\n\ndef train():\n    return losses.quantile(1)\n",
    "hinted/smooth_1.py": IMPORTS_SMOOTH,
    "hinted/smooth_2.py": IMPORTS_SMOOTH,
    "hinted/smooth_3.py": IMPORTS_SMOOTH,
    "hinted/trainer.py": "from hinted.losses import quantile\n\ndef train():\n    return quantile(1)\n",
    "outside.py": "from hinted.losses import huber\nfrom hinted.models import Middle\n\nHUBER = huber\n\n"
    "class Foreign(Middle):\n    def loss(self, value):\n        return value\n",
}
BY_NAME = "`hinted/trainer.py` imports `quantile` by name; target `hinted.trainer:quantile`"
HINTS: dict[str, tuple[str, str, int, str | None]] = {
    "imported by name": ("hinted.losses:quantile", "hinted.trainer:train()", 0, BY_NAME),
    "run by the probe alone": ("hinted.losses:quantile", "hinted.losses:quantile(1)", 1, BY_NAME),
    "run by production code": ("hinted.losses:quantile", "hinted.other:train()", 1, None),
    "imported by another name": (
        "hinted.losses:pinball", "hinted.nested:train()", 0,
        "`hinted/nested/__init__.py` imports `pin` by name; target `hinted.nested:pin`"),
    "used where it is defined": (
        "hinted.trainer:quantile", "hinted.losses:total()", 0,
        "`hinted/losses.py` uses its own `quantile`; target `hinted.losses:quantile`"),
    "passed on, and used by code that is not under test": ("hinted.losses:huber", "hinted.losses:huber(1)", 1, None),
    "imported in four places": (
        "hinted.losses:smooth", "hinted.losses:total()", 0,
        "`hinted/nested/deep.py` imports `smooth` by name; target `hinted.nested.deep:smooth`; "
        "`hinted/smooth_1.py` imports `smooth` by name; target `hinted.smooth_1:smooth`; "
        "`hinted/smooth_2.py` imports `smooth` by name; target `hinted.smooth_2:smooth`"),
    "overridden": (
        "hinted.models:Base.loss", "hinted.models:Child().loss(1)", 0, None),
    "overridden, but run by the probe": ("hinted.models:Base.loss", "hinted.models:Base().loss(1)", 1, None),
    "run by nobody": ("hinted.losses:unused", "hinted.losses:total()", 0, None),
    "a member of a class in a class": ("hinted.models:Outer.Inner.count", "hinted.models:Outer.Inner().count()", 1,
                                       None),
}  # fmt: skip
"""The target, what is called while the fault is planted, how often that runs it, and the hint."""


@pytest.fixture(scope="module", autouse=True)
def _modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The package under test and a module outside of it, all imported; and a module that has no source."""
    folder = tmp_path_factory.mktemp("hints")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    with fresh_projects():
        sys.path.insert(0, str(folder))
        for name in FILES:
            importlib.import_module(".".join(Path(name).with_suffix("").parts).removesuffix(".__init__"))
        made = ModuleType("hinted.made")
        vars(made)["huber"] = sys.modules["hinted.losses"].huber
        sys.modules["hinted.made"] = made
        yield


def _is_production(module: str) -> bool:
    return module.partition(".")[0] == "hinted"


def _value(place: str) -> Any:
    """What an expression gives in a module, both written as ``module:expression``."""
    module, _, expression = place.partition(":")
    return eval(expression, vars(sys.modules[module]))  # noqa: S307 - of this file's own texts


def _fault(target: str, replacement: Callable[..., Any], original: Callable[..., Any]) -> Fault:
    module, _, path = target.partition(":")
    classes, _, member = path.rpartition(".")
    owner = f"{module}:{classes}" if classes else module
    return Fault("made-here", owner, member, replacement, member_digest(original), "toy", __name__)


def _unchanged(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


@pytest.mark.parametrize("case", HINTS)
def test_a_hint_names_what_production_code_runs_instead(case: str) -> None:
    target, call, executions, hint = HINTS[case]
    with plant(_fault(target, _unchanged, _value(target)), _is_production) as planted:
        module, _, expression = call.partition(":")
        eval(expression, {**vars(sys.modules[module]), "__name__": "probe"})  # noqa: S307 - of this file's own texts
        assert planted.executions == executions
        assert unreached_hint(planted, _is_production) == hint


@pytest.mark.parametrize(("caller", "by_production"), [("hinted.other:train", True), ("hinted.losses:quantile", False)])
def test_a_fault_knows_whether_production_code_called_it(caller: str, by_production: bool) -> None:
    """Through code of a module without a name, too, as of a template."""
    target = "hinted.losses:quantile"
    with plant(_fault(target, _unchanged, _value(target)), _is_production) as planted:
        call = _value(caller)
        assert planted.by_production is False
        exec("call(*arguments)", {"call": call, "arguments": () if by_production else (1,)})  # noqa: S102
        assert planted.by_production is by_production


def test_a_property_keeps_its_other_functions_and_its_description() -> None:
    settable = _value("hinted.models:Settable")
    member = inspect.getattr_static(settable, "size")
    with plant(_fault("hinted.models:Settable.size", lambda self: -self.kept, member.fget)):
        found = settable()
        found.size = 3
        assert (found.size, found.kept) == (-3, 3)
        del found.size
        assert found.kept == 0
        assert settable.size.__doc__ == "How large it is."
