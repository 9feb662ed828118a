"""Audit and gate: measure, compare with what is committed, and select what a change affects."""
