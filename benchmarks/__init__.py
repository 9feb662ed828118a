"""What cannot repeat byte for byte: learning and speed, measured on demand into ``reports/measured/``."""
