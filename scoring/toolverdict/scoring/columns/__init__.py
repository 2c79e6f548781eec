"""The fast path: whole traces read and scored as columns.

Most production traffic is of one plain form, our own attempts or GenAI's tool spans without
messages, and most of its trajectories are judged alike. :mod:`read` finds the plain traces of a
table and :mod:`calls` makes the rows of their calls; :mod:`alike` tells which trajectories need not
be looked at one by one and :mod:`stamping` makes their rows, :mod:`materialise` makes the others what
the judge knows, and :mod:`score` puts all together. Whatever is not plain is left to the reading span by span. The rows are the same
by either way.
"""
