"""Checks that need no case: each is a pure function from a trajectory to findings."""
