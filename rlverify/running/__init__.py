"""Runs probes and experiments in worker processes, each under a time limit."""
