"""Tables of calls and verdicts made up column by column, for tests and benchmarks of rates."""

from typing import Any

import numpy as np
import pyarrow as pa

from toolverdict.scoring.rates.aggregate import Aggregates
from toolverdict.scoring.tables import CALLS, VERDICTS, calls_table, verdicts_table
from toolverdict.scoring.verdicts import Judged

_START_US = 1_750_000_000_000_000
_HOUR_US = 3_600_000_000
_TOOLS = [f"tool_{number:02d}" for number in range(40)]
_OUTCOMES = ["ok", "empty", "error", "timeout", "invalid_arguments", "denied"]
_OFTEN = [0.93, 0.02, 0.02, 0.01, 0.015, 0.005]
_LABELS = ['["read"]', '["write"]', '["payment","write"]', "[]"]


def aggregates_of(*judged: Judged) -> Aggregates:
    """The aggregates of judged trajectories, each with an id of its own."""
    return Aggregates.of(calls_table(judged), verdicts_table(judged))


def live_traffic(trajectories: int, seed: int = 1, calls_each: float = 2.83) -> tuple[Any, Any]:
    """Calls and verdicts of a day without cases: three agents, forty tools, some failures.

    Args:
        trajectories: how many; those with a failure have more of them than chance would give.
        seed: of what is random.
        calls_each: calls of a trajectory, on average; at least one.
    """
    random = np.random.default_rng(seed)
    many = 1 + random.poisson(calls_each - 1, trajectories)
    whose = np.repeat(np.arange(trajectories), many)
    count = len(whose)
    started = _START_US + random.integers(0, 24 * _HOUR_US, trajectories)
    start = started[whose] + (np.arange(count) - (np.cumsum(many) - many)[whose]) * 2_000_000
    lasted = random.lognormal(19, 1.2, count).astype(np.int64)
    tool = random.integers(0, len(_TOOLS), count)
    lucky = random.beta(0.5, 4.5, trajectories)[whose] < random.random(count)
    outcome = np.where(lucky, 0, random.choice(len(_OUTCOMES), count, p=_OFTEN))
    forbidden = random.random(count) < 0.001
    failed = outcome > 1
    ids = pa.array([f"{number:032x}" for number in range(trajectories)])
    agents, models, versions = (random.integers(0, size, trajectories) for size in (3, 2, 4))
    calls = {
        "trajectory_id": ids.take(whose),
        "agent": _words(["shop", "desk", "ops"], agents[whose]),
        "model": _words(["large", "small"], models[whose]),
        "service_version": _words(["1.0", "1.1", "1.2", "2.0"], versions[whose]),
        "index": (np.arange(count) - (np.cumsum(many) - many)[whose]).astype(np.int32),
        "tool": _words(_TOOLS, tool),
        "outcome": _words(_OUTCOMES, outcome),
        "error_type": _words(
            ["TimeoutError", "ValueError", "503"], random.integers(0, 3, count), failed
        ),
        "executed": outcome != 5,
        "start_time": pa.array(start, pa.timestamp("us", "UTC")),
        "start_time_unix_nano": start * 1000,
        "end_time_unix_nano": start * 1000 + lasted,
        "policy_decision": _words(["allow", "deny"], (outcome == 5).astype(int)),
        "approval_status": _words(
            ["approved", "rejected"], random.integers(0, 2, count), random.random(count) < 0.01
        ),
        "schema_version": _words(["1", "2"], (tool + start // _HOUR_US) % 2),
        "labels": pa.array(_LABELS).take(tool % len(_LABELS)),
        "weight": np.ones(count),
        "forbidden": _words(["executed", "blocked"], random.integers(0, 2, count), forbidden),
        "compliant": ~forbidden,
        "needs_approval": np.zeros(count, np.bool_),
        "approval_missing": np.zeros(count, np.bool_),
        "repeat": _words(
            ["retry_waste", "duplicate"], random.integers(0, 2, count), random.random(count) < 0.02
        ),
        "handling": _words(["well", "undecided"], random.integers(0, 2, count), failed),
    }
    broken = np.bincount(whose[forbidden], minlength=trajectories) > 0
    verdicts = {
        "trajectory_id": ids,
        "agent": _words(["shop", "desk", "ops"], agents),
        "model": _words(["large", "small"], models),
        "service_version": _words(["1.0", "1.1", "1.2", "2.0"], versions),
        "passed": ~broken,
        "safety": np.where(broken, 0.0, 1.0),
        "start_time": pa.array(started, pa.timestamp("us", "UTC")),
        "weight": np.ones(trajectories),
    }
    return _table(CALLS, calls, count), _table(VERDICTS, verdicts, trajectories)


def _words(words: list[str], codes: Any, there: Any = None) -> "pa.Array[Any]":
    mask = None if there is None else ~there
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32), mask=mask), pa.array(words)
    )


def _table(schema: pa.Schema, columns: dict[str, Any], rows: int) -> pa.Table:
    return pa.table(
        [
            columns[field.name] if field.name in columns else pa.nulls(rows, field.type)
            for field in schema
        ],
        schema=schema,
    )
