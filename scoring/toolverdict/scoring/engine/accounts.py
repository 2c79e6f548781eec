"""The account of a unit: its counts in one small file, the last that a unit writes.

A line of JSON, then the aggregates as streams of Arrow, one behind the other. An account that cannot
be read is none: the unit is done again.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import orjson
import pyarrow as pa

from toolverdict.scoring.counts import Counts
from toolverdict.scoring.engine.files import ACCOUNTS, UnitFiles, write_whole
from toolverdict.scoring.engine.units import Done, SetAside, Unit
from toolverdict.scoring.policy_coverage import SeenTool
from toolverdict.scoring.rates import aggregate
from toolverdict.scoring.rates.aggregate import Aggregates

_FORM: Final = 1
_NUMBERS: Final = (
    "spans",
    "traces",
    "traces_without_calls",
    "trajectories",
    "calls",
    "undecided_dangerous_calls",
)
_COLLECTIONS: Final = ("played", "confused", "unknown_cases", "seen")
_TABLES: Final = ("units", "marks", "durations")


def added(parts: Sequence[Counts]) -> Counts:
    """The counts of all parts; rates are added up once, at the end."""
    whole = Counts()
    if parts:
        whole.aggregates = aggregate.total([part.aggregates for part in parts])
    for part in parts:
        for name in _NUMBERS:
            setattr(whole, name, getattr(whole, name) + getattr(part, name))
        if any(getattr(part, name) for name in _COLLECTIONS):
            beside = {name: getattr(part, name) for name in _COLLECTIONS}
            whole.add(Counts(**beside))
    return whole


def write_account(files: UnitFiles, done: Done) -> None:
    """Write what a unit did; its other files are there."""
    counts = done.counts
    tables = pa.BufferOutputStream()
    for name in _TABLES:
        table: pa.Table = getattr(counts.aggregates, name)
        with pa.ipc.new_stream(tables, table.schema) as stream:
            stream.write_table(table)
    content = tables.getvalue().to_pybytes()
    head = {
        "form": _FORM,
        "files": files.sizes(done.file),
        "tables": hashlib.sha256(content).hexdigest(),
        "unit": done.unit,
        "digest": done.digest,
        "late": asdict(done.late),
        "across": asdict(done.across),
        "open_traces": done.open_traces,
        **{name: getattr(counts, name) for name in _NUMBERS},
        "played": dict(counts.played),
        "confused": [[*pair, often] for pair, often in counts.confused.items()],
        "unknown_cases": sorted(counts.unknown_cases),
        "seen": sorted([one.tool, sorted(one.labels), one.agent or ""] for one in counts.seen),
        "bucket_s": counts.aggregates.bucket_s,
    }

    whole = orjson.dumps(head) + b"\n" + content
    write_whole(files.path(ACCOUNTS, done.file), lambda sink: sink.write(whole))


def read_account(files: UnitFiles, unit: Unit) -> Done | None:
    """What a unit did, None when it is not done, or not all of it is there."""
    try:
        line, _, content = files.path(ACCOUNTS, unit.file).read_bytes().partition(b"\n")
        head: dict[str, Any] = orjson.loads(line)
        if (head["form"], head["unit"], head["digest"]) != (_FORM, unit.name, unit.digest):
            return None
        if head["tables"] != hashlib.sha256(content).hexdigest():
            return None
        if head["files"] != files.sizes(unit.file):
            return None
        tables, source = {}, pa.BufferReader(content)
        for name in _TABLES:
            with pa.ipc.open_stream(source) as stream:
                tables[name] = stream.read_all()
        counts = Counts(
            aggregates=Aggregates(**tables, bucket_s=head["bucket_s"]),
            **{name: head[name] for name in _NUMBERS},
            played=Counter(head["played"]),
            confused=Counter({(one, other): often for one, other, often in head["confused"]}),
            unknown_cases=set(head["unknown_cases"]),
            seen={SeenTool(tool, frozenset(ls), agent or None) for tool, ls, agent in head["seen"]},
        )
        late, across = SetAside(**head["late"]), SetAside(**head["across"])
        return Done(unit.name, unit.digest, counts, late, across, head["open_traces"])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None
