"""Results of a run, made of trajectories in one line each."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from toolverdict.instrument.policy import Policy
from toolverdict.scoring.model import Thresholds, Trajectory
from toolverdict.scoring.tables import calls_table, findings_table, verdicts_table
from toolverdict.scoring.verdicts import judge_trajectory

POLICY = Policy.parse(
    """
version: 1
id: test
rules:
  - {id: never, effect: deny, tools: [delete_user]}
  - {id: rest, effect: allow, tools: ["*"]}
"""
)

WriteOut = Callable[[Sequence[Sequence[Trajectory]]], Path]


@pytest.fixture
def write_out(tmp_path: Path) -> WriteOut:
    """Writes what ``score`` would, each list of trajectories as one unit."""

    def write(units: Sequence[Sequence[Trajectory]]) -> Path:
        out = tmp_path / f"out-{len(list(tmp_path.iterdir()))}"
        for number, trajectories in enumerate(units):
            judged = [judge_trajectory(t, POLICY, None, Thresholds()) for t in trajectories]
            for kind, table in (
                ("calls", calls_table(judged)),
                ("findings", findings_table(judged)),
                ("verdicts", verdicts_table(judged)),
            ):
                (out / kind).mkdir(parents=True, exist_ok=True)
                pq.write_table(table, out / kind / f"unit-{number}.parquet")
        return out

    return write
