"""Plants every fault and records which tests detect it."""
