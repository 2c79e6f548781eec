"""What can go wrong in scoring, grouped by what the caller does next.

ScoringError                 the command line prints its one line and exits with ``exit_code``
├─ InputError                the user mends a path, a policy or a case file      exit 2
└─ EmptyLakeError            the lake holds no span yet: nothing was evaluated   exit 2

Findings and verdicts are values, never exceptions.
"""

from typing import ClassVar


class ScoringError(Exception):
    """Base of everything this package raises on purpose; the message is one line for a person."""

    exit_code: ClassVar[int] = 2


class InputError(ScoringError):
    """A file or folder the user named cannot be used: says what, where and what was expected."""


class EmptyLakeError(ScoringError):
    """The lake holds no span: every rate is ``None (n=0)``, and nothing was evaluated."""
