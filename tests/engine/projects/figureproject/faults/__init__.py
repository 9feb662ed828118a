"""No faults: figures have none."""
