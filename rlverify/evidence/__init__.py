"""Evidence: summarised from runs, written as canonical JSON, read, checked and compared."""
