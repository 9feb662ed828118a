"""What is the same of all error messages."""

from __future__ import annotations


def is_one_line(errors: str, *words: str) -> bool:
    """Whether the output on stderr is one line of the program that has these words."""
    return errors.startswith("rlverify: ") and errors.count("\n") == 1 and all(word in errors for word in words)
