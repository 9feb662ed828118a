"""The kill matrix: every fault is planted, and the tests that should notice are run."""
