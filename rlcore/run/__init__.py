"""Training what a file describes, and acting with what was trained."""
