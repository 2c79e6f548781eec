"""Hypothesis on shared machines: no deadlines; ``HYPOTHESIS_PROFILE=slow`` tries thousands.

``quick`` tries few and always the same: for tests of tests, which run thousands of times.
"""

import os

from hypothesis import HealthCheck, settings

_QUIET = [HealthCheck.too_slow]
settings.register_profile("default", deadline=None, suppress_health_check=_QUIET)
settings.register_profile("slow", deadline=None, max_examples=5_000, suppress_health_check=_QUIET)
settings.register_profile(
    "quick",
    deadline=None,
    max_examples=15,
    derandomize=True,
    database=None,
    suppress_health_check=_QUIET,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
