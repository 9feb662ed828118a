"""Without Ray: the core is imported as ever, and the module that needs Ray says what to install."""

from __future__ import annotations

import subprocess
import sys


def test_the_core_does_not_import_ray_and_the_error_says_what_to_install() -> None:
    code = "import sys, rlcore, rlcore.pbt, rlcore.run, rlcore.resume; print('ray' in sys.modules)\n"
    code += "sys.modules.update({'ray': None, 'ray.tune': None}); import rlcore.tune"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n"
    assert "ImportError: rlcore.tune needs Ray Tune" in done.stderr
    assert "pip install 'rlverify[ray]'" in done.stderr
