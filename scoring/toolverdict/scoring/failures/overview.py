"""What all calls of a run tell together: what repeats cost, and what came after unusable results.

Sums over a few columns of the calls, filtered as they are read; only rows that have something to
tell are ever in memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.scoring.failures.outcome import Outcome
from toolverdict.scoring.model import Captured

_NANOSECONDS: Final = 1e9


@dataclass(frozen=True, slots=True)
class RepeatCost:
    """What the repeats of one kind cost. Of ``calls``, ``timed`` tell seconds and ``counted`` tokens.

    ``weight`` is for how many calls they stand, None where that is not known of one of them;
    seconds and tokens are those of the calls themselves.
    """

    calls: int
    weight: float | None
    seconds: float
    timed: int
    tokens: int
    counted: int


@dataclass(frozen=True, slots=True)
class Reaction:
    """How often agents did something after a result of one kind that was of no use."""

    outcome: str
    reaction: str
    calls: int
    weight: float | None


@dataclass(frozen=True, slots=True)
class Overview:
    """Of all ``calls``; ``unseen`` had neither arguments nor hash: nothing shows what they repeat."""

    calls: int
    unseen: int
    repeats: Mapping[str, RepeatCost]
    reactions: tuple[Reaction, ...]


def overview(outcome: Outcome) -> Overview:
    """The overview of a run; empty where its results are older than the columns it needs.

    Raises:
        InputError: the results cannot be read.
    """
    told = not {"repeat", "repeat_tokens", "reaction"} - set(outcome.columns("calls"))
    nothing_seen = pc.field("args_hash").is_null() & (
        pc.field("arguments_state") != Captured.CAPTURED.value
    )
    return Overview(
        calls=outcome.count("calls"),
        unseen=outcome.count("calls", nothing_seen),
        repeats=_repeats(outcome) if told else {},
        reactions=_reactions(outcome) if told else (),
    )


def _repeats(outcome: Outcome) -> dict[str, RepeatCost]:
    start, end = "start_time_unix_nano", "end_time_unix_nano"
    columns = ("repeat", "repeat_tokens", "weight", start, end)
    table = outcome.read("calls", columns, ~pc.field("repeat").is_null())
    lasted = pc.max_element_wise(
        pc.subtract(table[end], table[start]), pa.scalar(0, pa.int64()), skip_nulls=False
    )
    table = table.append_column("lasted", lasted)
    rows = _grouped(table, ("repeat",), ("lasted", "repeat_tokens"))
    return {
        row["repeat"]: RepeatCost(
            calls=row["calls"],
            weight=row["weight"],
            seconds=(row["lasted_sum"] or 0) / _NANOSECONDS,
            timed=row["lasted_count"],
            tokens=row["repeat_tokens_sum"] or 0,
            counted=row["repeat_tokens_count"],
        )
        for row in rows
    }


def _reactions(outcome: Outcome) -> tuple[Reaction, ...]:
    table = outcome.read(
        "calls", ("outcome", "reaction", "weight"), ~pc.field("reaction").is_null()
    )
    return tuple(
        Reaction(row["outcome"], row["reaction"], row["calls"], row["weight"])
        for row in _grouped(table, ("outcome", "reaction"), ())
    )


def _grouped(
    table: pa.Table, keys: tuple[str, ...], summed: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Counts and sums by keys, in the order of keys; ``weight`` None where one is not known."""
    for name in keys:
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table[name].cast(pa.string()))
    wanted: list[Any] = [([], "count_all")]
    wanted += [(name, how) for name in (*summed, "weight") for how in ("sum", "count")]
    grouped = table.group_by(list(keys)).aggregate(wanted)
    rows = grouped.sort_by([(name, "ascending") for name in keys]).to_pylist()
    for row in rows:
        row["calls"] = row.pop("count_all")
        known = row.pop("weight_count") == row["calls"]
        row["weight"] = row.pop("weight_sum") if known else None
    return rows
