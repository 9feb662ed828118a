"""``python -m rlcore.pbt``."""

from __future__ import annotations

import sys

from rlcore.pbt.cli import run

if __name__ == "__main__":
    sys.exit(run())
