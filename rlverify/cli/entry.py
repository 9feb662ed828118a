"""The console script: Ctrl-C and SIGTERM are answered with one line from the first import to the last.

Importing and running compiled libraries can swallow a KeyboardInterrupt or die of it. So either signal ends the process
at once, except while workers run (`rlverify.running.runner`, which stops them first) and while files are replaced
(`rlverify.evidence.files`, which holds the signal back until all of them are).
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from rlverify.records.problems import INTERRUPTED

LINE = b"rlverify: interrupted before the end; run it again\n"


def _stop(_signal: int, _frame: FrameType | None) -> None:
    os.write(2, LINE)
    os._exit(INTERRUPTED)


def main() -> None:
    """The console script ``rlverify``."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    from rlverify.cli import app

    sys.exit(app.run())


if __name__ == "__main__":
    main()
