"""The scorecard as a fixture: it is a script of its own, and this folder is no package."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def scorecard() -> Any:
    """The module ``scorecard.py`` beside this file."""
    path = Path(__file__).parent / "scorecard.py"
    spec = importlib.util.spec_from_file_location("scorecard", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
