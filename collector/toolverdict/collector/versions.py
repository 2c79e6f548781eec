"""What runs here: the versions that matter for a report of a fault, and which decoder is in use."""

import platform
from importlib.metadata import version

from toolverdict.collector.decoders import decoder_in_use
from toolverdict.collector.schema import SCHEMA_VERSION
from toolverdict.collector.segment import FORMAT_VERSION


def versions() -> dict[str, str]:
    """Names and versions, as ``collect --version`` and the info metric tell them."""
    return {
        "version": version("toolverdict"),
        "decoder": decoder_in_use(),
        "python": platform.python_version(),
        "pyarrow": version("pyarrow"),
        "grpcio": version("grpcio"),
        "h11": version("h11"),
        "log_format": str(FORMAT_VERSION),
        "lake_schema": str(SCHEMA_VERSION),
    }
