"""Saved state: the registry of its parts, the templates that check it, and where a run is."""
