"""Healthy code whose figures are known."""

from __future__ import annotations


def middle(low: float, high: float) -> float:
    """The number between two numbers."""
    return (low + high) / 2
