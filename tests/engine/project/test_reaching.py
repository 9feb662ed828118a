"""A fault that production code does not run is UNREACHED, and the reason names a target that it does run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlverify.project.content import Project
from rlverify.project.fingerprint import source_digest
from tests.engine.in_process import rlverify_here
from tests.engine.project_folders import write_settings

LOSSES = """
def quantile_loss(value):
    return value

def total():
    return quantile_loss(1)

def pinball(value):
    return value

def huber(value):
    return value

def smooth(value):
    return value

def unused(value):
    return value
"""
IMPORTS_SMOOTH = "from mypackage.losses import smooth\n\ndef train():\n    return smooth(1)\n"
PACKAGE = {
    "__init__.py": "from mypackage.losses import huber, quantile_loss\n\n__all__ = ['huber', 'quantile_loss']\n",
    "losses.py": LOSSES,
    "trainer.py": "from mypackage.losses import quantile_loss\n\ndef train():\n    return quantile_loss(1)\n",
    "other.py": "from mypackage import losses\n\ndef train():\n    return losses.quantile_loss(1)\n",
    "nested/__init__.py": "from mypackage.losses import pinball as pin\n\ndef train():\n    return pin(1)\n",
    "model.py": "class Base:\n    def loss(self, value):\n        return value\n\n\nclass Middle(Base):\n    pass\n\n\n"
    "class Child(Middle):\n    def loss(self, value):\n        return value\n\n\n"
    "class Outer:\n    class Inner:\n        def count(self, value):\n            return value\n",
    **{f"smooth_{number}.py": IMPORTS_SMOOTH for number in range(1, 5)},
}
CLAIMS = {
    "BY-NAME": ("mypackage.losses:quantile_loss", "trainer.train()"),
    "PROBE-ONLY": ("mypackage.losses:quantile_loss", "losses.quantile_loss(1)"),
    "BY-OTHER-NAME": ("mypackage.losses:pinball", "losses.pinball(1)"),
    "OWN": ("mypackage.trainer:quantile_loss", "losses.total()"),
    "OVERRIDDEN": ("mypackage.model:Base.loss", "model.Child().loss(1)"),
    "UNKNOWN": ("mypackage.losses:unused", "losses.total()"),
    "IMPORTER": ("mypackage.trainer:quantile_loss", "trainer.train()"),
    "THROUGH-MODULE": ("mypackage.losses:quantile_loss", "other.train()"),
    "PASSED-ON": ("mypackage.losses:huber", "losses.huber(1)"),
    "METHOD": ("mypackage.model:Base.loss", "model.Middle().loss(1)"),
    "IN-A-CLASS": ("mypackage.model:Outer.Inner.count", "model.Outer.Inner().count(1)"),
    "FOUR-PLACES": ("mypackage.losses:smooth", "losses.smooth(1)"),
}
"""The target of each fault, and what its probe calls."""
REACHED = {"IMPORTER", "THROUGH-MODULE", "PASSED-ON", "METHOD", "IN-A-CLASS"}
REASONS = {
    "BY-NAME": "production code does not execute the planted fault: `mypackage/trainer.py` imports `quantile_loss` by "
    "name; target `mypackage.trainer:quantile_loss`",
    "PROBE-ONLY": "production code does not execute the planted fault: `mypackage/trainer.py` imports `quantile_loss` "
    "by name; target `mypackage.trainer:quantile_loss`",
    "BY-OTHER-NAME": "production code does not execute the planted fault: `mypackage/nested/__init__.py` imports `pin` "
    "by name; target `mypackage.nested:pin`",
    "OWN": "production code does not execute the planted fault: `mypackage/losses.py` uses its own `quantile_loss`; "
    "target `mypackage.losses:quantile_loss`",
    "FOUR-PLACES": "production code does not execute the planted fault: "
    + "; ".join(
        f"`mypackage/smooth_{number}.py` imports `smooth` by name; target `mypackage.smooth_{number}:smooth`"
        for number in (1, 2, 3)
    ),
    "OVERRIDDEN": "the planted fault was never executed, so the probe proves nothing",
    "UNKNOWN": "the planted fault was never executed, so the probe proves nothing",
}


def _fault(name: str, target: str) -> str:
    module, _, member = target.partition(":")
    file = PACKAGE["losses.py" if member in LOSSES else f"{module.rpartition('.')[2]}.py"]
    pin = source_digest(file, member)
    signature = "self, value" if "." in member else "value"
    function = name.lower().replace("-", "_")
    decorator = f'@fault("{name.lower()}", target="{target}", pins="{pin}")'
    return f"{decorator}\ndef {function}({signature}):\n    return -value\n\n"


def _probe(name: str, call: str) -> str:
    seen = f'[Observation("{call}", "1", str(found), found == 1)]'
    function = name.lower().replace("-", "_")
    return f'@probe("{name.lower()}")\ndef {function}(seed):\n    found = {call}\n    return {seen}\n\n'


def _claim(name: str) -> str:
    return (
        f'[[claim]]\nid = "{name}"\ntitle = "a title"\nstatement = "a statement"\nprobe = "{name.lower()}"\n'
        f'fault = "{name.lower()}"\nexpected = "CONFIRMED"\n\n'
    )


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What an audit of all the claims prints, as JSON."""
    folder = tmp_path_factory.mktemp("reaching")
    files = {f"mypackage/{name}": text for name, text in PACKAGE.items()}
    files["claims/catalogue/claims.toml"] = "".join(_claim(name) for name in CLAIMS)
    files["claims/faults/all.py"] = "from rlverify import fault\n\n" + "".join(
        _fault(name, target) for name, (target, _) in CLAIMS.items()
    )
    imports = "from mypackage import losses, model, nested, other, smooth_1, smooth_2, smooth_3, smooth_4, trainer\n"
    imports += "from rlverify import Observation, probe\n"
    imports += "from mypackage.losses import huber\n\nHUBER = huber  # a probe that holds it is no production code\n\n"
    files["claims/probes/all.py"] = imports + "".join(_probe(name, call) for name, (_, call) in CLAIMS.items())
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    write_settings(folder, "claims", under_test=["mypackage"], pythonpath=["."])
    done = rlverify_here("audit", "--update", "--json", cwd=folder)
    assert done.stdout, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return {**content, "folder": folder}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_fault_counts_as_reached_if_production_code_runs_it_or_would(claim: str, audited: dict[str, Any]) -> None:
    (found,) = (each["verdict"] for each in audited["claims"] if each["claim"]["id"] == claim)
    assert found == ("CONFIRMED" if claim in REACHED else "UNREACHED")


def test_the_reason_names_a_target_that_production_code_runs(audited: dict[str, Any]) -> None:
    found = {each["subject"]: each["sentence"] for each in audited["problems"]}
    assert found == {claim: f"UNREACHED, faulty: {reason}" for claim, reason in REASONS.items()}


def test_evidence_files_hold_no_hint(audited: dict[str, Any]) -> None:
    folder: Path = audited["folder"] / "reports" / "evidence"
    assert json.loads((folder / "BY-NAME.json").read_text())["verdict"] == "UNREACHED"
    assert "hint" not in (folder / "BY-NAME.json").read_text()


def test_what_measures_is_no_production_code(toyproject: Project) -> None:
    """The content package of the toy project is the package under test as well."""
    assert toyproject.is_under_test("toyproject.target")
    assert toyproject.is_under_test("toyproject")
    for module in ("toyproject.probes.arithmetic", "toyproject.faults", "toyprojects", "rlverify.running.runner"):
        assert not toyproject.is_under_test(module)
