"""What can go wrong in the engine beside what goes wrong in a lake or in ``OUT``."""

from toolverdict.scoring.errors import ScoringError


class EngineError(ScoringError):
    """A cluster or a worker could not do its part; the message is one line for a person."""


class WorkerVersionError(EngineError):
    """A worker has other code than the command that started the run."""
