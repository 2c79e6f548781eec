"""The fast path: whole traces read and scored as columns.

Most production traffic is of one plain form, our own attempts or GenAI's tool spans without
messages, and most of its trajectories are *quiet*: nothing can be found in them. :mod:`read` finds
the plain traces of a table and :mod:`calls` makes their rows; :mod:`quiet` tells the trajectories
that need no looking at, :mod:`materialise` makes the others what the judge knows, and :mod:`score`
puts both together. Whatever is not plain is left to the reading span by span. The rows are the same
by either way.
"""
