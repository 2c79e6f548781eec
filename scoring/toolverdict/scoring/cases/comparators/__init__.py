"""Comparators: one kind of argument each, by the way it has to be compared."""
