"""The pages of the field report."""
