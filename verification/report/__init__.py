"""Reports: pure functions from records to text; nothing here reads, writes or measures."""
