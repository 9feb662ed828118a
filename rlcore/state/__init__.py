"""Saved state: the registry of its parts, the schema that reads it, and the states of random generators."""
