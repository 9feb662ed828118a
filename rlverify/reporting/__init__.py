"""Reports: pure functions from records to text, one module for each format."""
