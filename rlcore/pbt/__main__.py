"""``python -m rlcore.pbt``."""

from __future__ import annotations

import sys

from rlcore.pbt.cli import run
from rlcore.starting import let_interrupts_raise

if __name__ == "__main__":
    let_interrupts_raise()
    sys.exit(run())
