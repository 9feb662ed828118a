"""Frozen records, errors and exit codes: what every other package speaks about. Imports nothing of rlverify."""
