"""The probes of this project, which look for the symptoms that the claims name."""
