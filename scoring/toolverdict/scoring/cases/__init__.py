"""Labelled tasks: what should have been called, what must not be, and how a trajectory compares."""
