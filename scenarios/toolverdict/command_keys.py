"""The keys of the commands: from the environment, never from an argument that others can list."""

import os

from toolverdict.instrument.errors import ConfigurationError
from toolverdict.instrument.hashing import HashKey


def key_of(variable: str) -> HashKey:
    """The key in an environment variable.

    Raises:
        ConfigurationError: It is not set, or holds no usable key.
    """
    text = os.environ.get(variable)
    if not text:
        raise ConfigurationError(f"{variable} is not set; it must hold the key of the agent's side")
    return HashKey.of(text, source=variable)
