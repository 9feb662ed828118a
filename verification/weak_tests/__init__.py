"""Tests as weak as those of the audited system are told to have been, written anew: what they are blind to is planted.

They are no tests of this project. `tests/content/test_weak_tests.py` runs each of them with the fault that it is there
for, as ``history.toml`` has it. They may be no weaker than what is told of the originals.
"""
