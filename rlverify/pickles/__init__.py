"""Reads pickles without loading them: their instructions, and what they would import and call."""
