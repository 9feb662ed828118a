"""Verdicts, grades and statistics: pure functions of the evidence."""
