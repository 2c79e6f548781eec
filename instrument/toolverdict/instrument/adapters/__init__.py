"""Adapters: one line makes the tools of an agent framework witnessed and decided about.

Each module is for one framework and imports that one and no other; importing this package imports
none. What they share is in ``calls``, a call that a model asked for as an attempt, and ``options``,
what is known about the tools of a framework.
"""
