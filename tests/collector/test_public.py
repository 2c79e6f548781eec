"""What the package exports."""

import subprocess
import sys

import pytest

import toolverdict.collector as package


def test_all_is_sorted_and_complete() -> None:
    exported = list(package.__all__)
    assert exported == sorted(exported, key=lambda name: (not name.isupper(), name))
    for name in exported:
        assert getattr(package, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        package.__getattr__("nothing")


def test_importing_the_package_is_cheap() -> None:
    """Neither Arrow nor gRPC nor a web server is loaded before it is needed."""
    code = (
        "import sys, toolverdict.collector, toolverdict.collector.cli;"
        "print([m for m in ('pyarrow', 'grpc', 'h11') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.stdout.strip(), result.stderr) == ("[]", "")
