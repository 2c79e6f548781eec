"""Receives OTLP traces and logs and stores them as Parquet; nothing acknowledged is lost.

Readers need :class:`Lake`, :data:`SPANS`, :data:`LOGS` and the helpers of
:mod:`toolverdict.collector.schema`. Names are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolverdict.collector.errors import CollectorError, ConfigError, LakeError
    from toolverdict.collector.lake import Lake
    from toolverdict.collector.schema import LOGS, SPANS, attributes_of
    from toolverdict.collector.settings import CollectorSettings

__all__ = [
    "LOGS",
    "SPANS",
    "CollectorError",
    "CollectorSettings",
    "ConfigError",
    "Lake",
    "LakeError",
    "attributes_of",
]

_MODULES = {
    "LOGS": "schema",
    "SPANS": "schema",
    "CollectorError": "errors",
    "CollectorSettings": "settings",
    "ConfigError": "errors",
    "Lake": "lake",
    "LakeError": "errors",
    "attributes_of": "schema",
}


def __getattr__(name: str) -> object:
    """Load a public name from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
