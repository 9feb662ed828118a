"""``python -m rlverify``: the console script."""

from rlverify.cli.entry import main

main()
