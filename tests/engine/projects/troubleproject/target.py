"""Code that is broken even without a fault, for the harness to be tried on."""

from __future__ import annotations


def double(value: int) -> int:
    return 3 * value


def half(value: int) -> int:
    return value // 2


def unused(value: int) -> int:
    return value
