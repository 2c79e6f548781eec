"""The scorer: a pure function of the lake, the policy and the cases.

The road, in the order of the data: :mod:`spans` (rows to spans) → :mod:`dialects` (spans to tool
calls) → :mod:`trajectories` → :mod:`checks` and :mod:`cases` (findings) → :mod:`attribution` →
:mod:`verdicts` → :mod:`rates` → :mod:`results`. :mod:`run` walks it.
"""

from toolverdict.scoring.errors import EmptyLakeError, InputError, ScoringError
from toolverdict.scoring.rates import Rate, wilson
from toolverdict.scoring.run import Inputs, score

__all__ = ["EmptyLakeError", "InputError", "Inputs", "Rate", "ScoringError", "score", "wilson"]
