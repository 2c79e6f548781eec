"""Rates: what is counted over calls and trajectories, in every group, with its interval.

:mod:`definitions` says what a rate counts and :mod:`dimensions` by what it is grouped; of the tables
of calls and verdicts :mod:`over_calls` and :mod:`over_trajectories` make sums over :mod:`clusters`,
which :mod:`aggregate` adds up, and :mod:`report` turns into rates. :mod:`shares` writes what one
trajectory adds to each rate. Nothing here loops over calls.
"""

from toolverdict.scoring.rates.rate import Rate, wilson

__all__ = ["Rate", "wilson"]
