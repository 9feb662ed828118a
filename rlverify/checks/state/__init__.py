"""The state of any Python object, leaf by leaf, and what is saved of it."""
