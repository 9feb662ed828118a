"""Measurements of real training runs; each script writes one file of reports/measured/."""
