"""Environments whose state can be saved and restored exactly."""
