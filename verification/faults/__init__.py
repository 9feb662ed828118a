"""The faults of this project: known bugs of `rlcore`, one module for each part of it."""
