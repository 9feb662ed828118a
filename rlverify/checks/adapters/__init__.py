"""How checks talk to algorithms and environments."""
