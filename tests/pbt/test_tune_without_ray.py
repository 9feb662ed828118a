"""Without Ray: the core is imported as ever, and the module that needs Ray says what to install."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest


def test_the_core_does_not_import_ray() -> None:
    code = "import sys, rlcore, rlcore.pbt, rlcore.run, rlcore.resume; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.tune", None)
    monkeypatch.delitem(sys.modules, "rlcore.tune", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'rlverify\[ray\]'"):
        importlib.import_module("rlcore.tune")
