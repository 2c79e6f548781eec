"""The scorer: a pure function of the lake, the policy and the cases.

The road, in the order of the data: :mod:`spans` (rows to spans) → :mod:`dialects` (what a span says)
→ :mod:`reading` (a trace) → :mod:`joining` (its calls) → :mod:`conversations` (traces that go on with
each other) → :mod:`trajectories` → :mod:`checks` and :mod:`cases` (findings) → :mod:`attribution` →
:mod:`verdicts` → :mod:`rates` → :mod:`results`. :mod:`run` walks it.

Names are imported when they are asked for: pytest loads :mod:`pytest_plugin` in every run of whoever
has the package installed, with or without what scoring needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolverdict.scoring.errors import EmptyLakeError, InputError, ScoringError
    from toolverdict.scoring.rates import Rate, wilson
    from toolverdict.scoring.run import Inputs, score

__all__ = ["EmptyLakeError", "InputError", "Inputs", "Rate", "ScoringError", "score", "wilson"]

_HOMES = {
    "EmptyLakeError": "errors",
    "InputError": "errors",
    "Inputs": "run",
    "Rate": "rates",
    "ScoringError": "errors",
    "score": "run",
    "wilson": "rates",
}


def __getattr__(name: str) -> Any:
    """The public name, from the module that has it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
