"""What a run of the checks found, for people and for programs: one format a module."""
