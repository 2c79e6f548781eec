"""Sums that are exact, so that parts add up to the whole.

Weights are multiples of 2^-20, and every product of two is rounded to one; a score such as 2/3 is
rounded to a multiple of 2^-32. A sum of such numbers is exact while it stays below 2^33 (2^21 for
scores), so that neither the order of rows nor the way in which they were split changes a bit of it;
beyond, the last bit may differ.
"""

from typing import Final

import numpy as np

from toolverdict.scoring.rates.columns import Codes, Numbers

OF_PRODUCTS: Final = 20
OF_SCORES: Final = 32
"""Bits of a fraction. What single trajectories scored is finer, and of it there is less."""


def on_grid(values: Numbers, bits: int = OF_PRODUCTS) -> Numbers:
    """The nearest multiples of 2^-``bits``."""
    steps = values * float(1 << bits)
    np.rint(steps, out=steps)
    steps /= float(1 << bits)
    return steps


def summed(codes: Codes, size: int, values: Numbers | None = None) -> Numbers:
    """The sum of the values of each code below ``size``; how many there are without values."""
    return np.bincount(codes, values, minlength=size).astype(np.float64, copy=False)
