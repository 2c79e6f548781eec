"""Importing a text as a file, and judging calls by what came of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolverdict.scoring.cases.files import Place
from toolverdict.scoring.cases.formats import read_case
from toolverdict.scoring.importers import Imported, import_cases
from toolverdict.scoring.importers.strictness import Strictness
from toolverdict.scoring.model import Thresholds, ToolCall
from toolverdict.scoring.testing import trajectory_of
from toolverdict.scoring.verdicts import judge_trajectory

Import = Callable[..., Imported]
Passes = Callable[..., bool | None]


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """``imported(source, content, name)``: the cases of a file with this content."""

    def run(
        source: str, content: Any, name: str = "cases.json", strictness: Strictness | None = None
    ) -> Imported:
        file = tmp_path / name
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        made = import_cases(file, source, strictness)
        losses = tuple(loss.replace(str(file), name) for loss in made.losses)
        return Imported(made.cases, losses)

    return run


@pytest.fixture
def passes() -> Passes:
    """``passes(case, *calls)``: whether a run of these calls passes an imported case."""

    def judge(case: dict[str, Any], *calls: ToolCall) -> bool | None:
        made = read_case(Place("imported"), case).case
        run = trajectory_of(*calls, case_id=made.id)
        return judge_trajectory(run, None, made, Thresholds()).verdict.passed

    return judge
