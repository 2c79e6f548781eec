"""The engine: a lake of any size scored unit by unit, on one core, on many, or on a cluster.

A *unit* is a window of time in some buckets of the lake. :func:`~.work.run_unit` is pure: it reads
the parts of its unit and writes files that are named by the digest of all that they depend on. So
the same unit is never scored twice, a retry is harmless, and a run that was cut off goes on where it
was; executors need no more than to map that function over units.

What does not lie in one unit waits, as rows, for two small stages behind it:

1. *windows*: each trace that lies in one unit alone, which is nearly all of them;
2. *late*: traces with rows in more than one window, put together from what the windows set aside;
3. *across*: traces that may be one conversation with a trace of another unit.

``plan`` says what the units are, ``index`` which traces lie in several, ``source`` reads, ``work``
scores, ``files`` writes, ``stages`` is the road through all of it; ``pool``, ``ray`` and ``spark``
are executors.
"""
