"""Labels, and texts that are nearly one: a label that is only nearly dangerous protects nobody."""

import difflib
from typing import Final

from toolverdict.instrument.decisions import DANGEROUS_LABELS
from toolverdict.instrument.likeness import skeleton
from toolverdict.instrument.provenance import UNTRUSTED

_KNOWN: Final = DANGEROUS_LABELS | {UNTRUSTED}
_LEAST_LIKE: Final = 0.8


def checked(label: str) -> str:
    """The label, if it is not one that means something but for its spelling.

    Raises:
        ValueError: It is; the message says which.
    """
    if label in _KNOWN:
        return label
    plain = "_".join(skeleton(label).replace("-", " ").replace("_", " ").split())
    near = difflib.get_close_matches(plain, _KNOWN, n=1, cutoff=_LEAST_LIKE)
    if near:
        raise ValueError(f"unknown label {label!r}; did you mean {near[0]!r}?")
    return label
