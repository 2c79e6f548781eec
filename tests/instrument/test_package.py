import subprocess
import sys

import toolverdict.instrument


def test_importing_it_imports_nothing_heavy() -> None:
    """An agent that only decorates its tools pays for the OpenTelemetry API and no more."""
    heavy = [
        "pydantic",
        "yaml",
        "opentelemetry.sdk",
        "opentelemetry.exporter",
        "opentelemetry.proto",
        "grpc",
        "google",
        "requests",
        "pyarrow",
        "typer",
        "numpy",
    ]
    code = (
        "import sys, toolverdict.instrument\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_are_sorted_and_there() -> None:
    names = toolverdict.instrument.__all__
    assert names == sorted(names)
    assert all(hasattr(toolverdict.instrument, name) for name in names)
