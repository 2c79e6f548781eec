"""Writes a lake of millions of spans as ``instrument`` makes them by default: hashes, no arguments.

    python -m tests.bench.load --spans 1000000 --out DIR [--buckets 1] [--layout compacted|hot]

Each trajectory has an ``invoke_agent`` span; each call a ``tool.call`` span and, if the body ran,
an ``execute_tool`` span inside it. Three days, 10 million spans are 1.5 million trajectories; rows
are in the hour in which they were received, so long trajectories lie in several. The same seed
gives the same rows. ``load_policy.yaml`` is the policy that decided; ``load_model`` says what is
drawn from the profile and what is assumed.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
from tests.bench.load_model import (
    APPROVALS,
    DAY,
    OUTCOMES,
    PENDING,
    SECOND,
    SPANS_PER_TRAJECTORY,
    TOOLS,
    Bools,
    Calls,
    Ints,
    Random,
    Tool,
    Trajectories,
    Words64,
    draw,
)

from toolverdict.collector.lake import Lake
from toolverdict.collector.lake.layout import PartFolder, compacted_file, hour_of
from toolverdict.collector.lake.part_file import COMPACT_LEVEL, HOT_LEVEL, REPLACES_KEY, PartWriter
from toolverdict.collector.schema import SPANS
from toolverdict.collector.signals import Signal
from toolverdict.instrument import semconv
from toolverdict.instrument.decisions import DANGEROUS_LABELS
from toolverdict.instrument.policy import Policy

POLICY: Final = Path(__file__).with_name("load_policy.yaml")
FIRST_DAY_NS: Final = int(datetime(2026, 11, 2, tzinfo=UTC).timestamp()) * SECOND
HOUR: Final = 3600 * SECOND
_FLUSHES: Final = 6
"""Parts that a collector writes in an hour."""

_AGENTS: Final = [f"{what}-agent" for what in ("orders", "travel", "billing", "shop", "desk")]
_VERSIONS: Final = ["2.3.0", "2.4.0", "2.4.1"]
_KEY_ID: Final = "27e9212a2424"
_ERRORS: Final = {
    "invalid_arguments": "toolverdict.instrument.errors.InvalidArguments",
    "upstream_error": "ConnectionError",
    "timeout": "TimeoutError",
    "permission_denied": "PermissionError",
    "rate_limited": "toolverdict.instrument.errors.RateLimited",
    "denied": "toolverdict.instrument.errors.ToolDenied",
}
ROOT, CALL, BODY = 0, 1, 2


class Rows(NamedTuple):
    """Spans of trajectories, in columns; ``trace`` and ``span`` are ids as numbers."""

    trace: Words64
    """Two numbers a row."""
    span: Words64
    start: Ints
    received: Ints
    table: pa.Table

    def take(self, rows: Ints) -> "Rows":
        """Some rows, in this order."""
        trace, span, start = self.trace[rows], self.span[rows], self.start[rows]
        return Rows(trace, span, start, self.received[rows], self.table.take(rows))

    @staticmethod
    def joined(parts: Sequence["Rows"]) -> "Rows":
        """All rows, one part below the other."""
        return Rows(
            np.concatenate([part.trace for part in parts]),
            np.concatenate([part.span for part in parts]),
            np.concatenate([part.start for part in parts]),
            np.concatenate([part.received for part in parts]),
            pa.concat_tables([part.table for part in parts]).unify_dictionaries(),
        )


def hours(spans: int, seed: int, days: int = 3) -> Iterator[tuple[int, Rows]]:
    """Per hour when it begins and the spans received in it, in the order of a part."""
    random = np.random.default_rng(seed)
    digest = Policy.load(POLICY).digest
    carried: list[Rows] = []
    total = 24 * days
    for number in range(total):
        begin = FIRST_DAY_NS + number * HOUR
        count = round(spans / SPANS_PER_TRAJECTORY / total)
        drawn = [*carried, _rows(random, draw(random, count, begin), digest)]
        rows = Rows.joined(drawn)
        ends = begin + HOUR if number < total - 1 else np.iinfo(np.int64).max
        carried = [rows.take(np.flatnonzero(rows.received >= ends))]
        here = np.flatnonzero(rows.received < ends)
        trace = rows.trace[here]
        order = np.lexsort((rows.span[here], rows.start[here], trace[:, 1], trace[:, 0]))
        yield begin, rows.take(here[order])


def write(out: Path, spans: int, buckets: int = 1, layout: str = "compacted", seed: int = 7) -> int:
    """Writes the lake; returns how many spans it holds."""
    out.mkdir(parents=True, exist_ok=True)
    lake, written = Lake.create(out, buckets), 0
    for begin, rows in hours(spans, seed):
        bucket_of = (rows.trace[:, 1] % np.uint64(buckets)).astype(np.int64)
        flush_of = np.clip((rows.received - begin) * _FLUSHES // HOUR, 0, _FLUSHES - 1)
        for bucket in range(buckets):
            hot = [
                f"part-{begin + n * HOUR // _FLUSHES:016x}-{seed:08x}-0.parquet" for n in range(6)
            ]
            if layout == "compacted":
                replaced = {REPLACES_KEY: orjson.dumps(sorted(hot))}
                chosen = np.flatnonzero(bucket_of == bucket)
                file, table = compacted_file(hot), _table(rows.take(chosen))
                _write(lake, begin, bucket, file, table, COMPACT_LEVEL, replaced)
                written += table.num_rows
                continue
            for flush, file in enumerate(hot):
                chosen = np.flatnonzero((bucket_of == bucket) & (flush_of == flush))
                table = _table(rows.take(chosen))
                _write(lake, begin, bucket, file, table, HOT_LEVEL, {})
                written += table.num_rows
    return written


def _write(
    lake: Lake,
    begin: int,
    bucket: int,
    file: str,
    table: pa.Table,
    level: int,
    metadata: dict[bytes, bytes],
) -> None:
    def fill(sink: pa.NativeFile) -> None:
        writer = PartWriter(sink, Signal.TRACES, SPANS, level)
        writer.write(table)
        writer.close(metadata)

    if table.num_rows:
        folder = PartFolder(Signal.TRACES, hour_of(begin), bucket)
        lake.store.write(f"{folder.name}/{file}", fill)


def _rows(random: Random, drawn: Trajectories, digest: str) -> Rows:
    """The spans of trajectories that begin in one hour."""
    calls, count = drawn.calls, len(drawn.start)
    ids = random.integers(0, 1 << 63, (count, 4), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    ids[:, 1] ^= random.integers(0, 256, count, dtype=np.uint64)
    call_ids = random.integers(0, 1 << 63, (len(calls.tool), 3), dtype=np.uint64)
    there, ran = np.flatnonzero(~drawn.cut), np.flatnonzero(calls.executed)
    every = np.arange(len(calls.tool))
    kind = np.repeat([ROOT, CALL, BODY], [len(there), len(every), len(ran)])
    call = np.concatenate([np.full(len(there), -1), every, ran])
    owner = np.concatenate([there, calls.trajectory, calls.trajectory[ran]])
    inside = np.minimum((calls.end - calls.start) // 4, SECOND // 1000)
    start = np.concatenate([drawn.start[there], calls.start, (calls.start + inside)[ran]])
    end = np.concatenate([drawn.end[there], calls.end, (calls.end - inside)[ran]])
    parent = np.concatenate([ids[there, 2], ids[calls.trajectory, 2], call_ids[ran, 0]])
    spans = np.concatenate([ids[there, 2], call_ids[:, 0], call_ids[ran, 1]])
    received = end + random.integers(0, 5 * SECOND, len(end))
    about = _About(drawn, calls, kind, call, owner, digest)
    columns = {
        "trace_id": _hex(ids[owner, :2]),
        "span_id": _hex(spans[:, None]),
        "parent_span_id": _hex(parent[:, None], "", kind != ROOT),
        "start_time": pa.array(start // 1000).cast(SPANS.field("start_time").type),
        "end_time": pa.array(end // 1000).cast(SPANS.field("end_time").type),
        "start_time_unix_nano": pa.array(start),
        "end_time_unix_nano": pa.array(end),
        "received_time_unix_nano": pa.array(received),
        **_columns(about, ids, call_ids, start, end),
    }
    return Rows(ids[owner, :2], spans, start, received, pa.table(columns))


class _About(NamedTuple):
    """What each row is about: its kind, its call (-1 for a root), its trajectory."""

    drawn: Trajectories
    calls: Calls
    kind: Ints
    call: Ints
    owner: Ints
    digest: str

    def of_call(self, values: Ints, kinds: Sequence[int] = (CALL,)) -> Ints:
        """A value of the call in rows of these kinds, -1 elsewhere."""
        return np.where(np.isin(self.kind, kinds), values[self.call], -1)


def _columns(
    about: _About, ids: Words64, call_ids: Words64, start: Ints, end: Ints
) -> dict[str, Any]:
    """What the attributes say, by the names of the columns."""
    calls, kind = about.calls, about.kind
    is_call, is_root = kind == CALL, kind == ROOT
    tool, both = about.of_call(calls.tool), about.of_call(calls.tool, (CALL, BODY))
    outcome = about.of_call(calls.outcome)
    agent = (ids[:, 3] % np.uint64(len(_AGENTS))).astype(np.int64)[about.owner]
    agent = np.where(kind == BODY, -1, agent)
    names = [one.name for one in TOOLS]
    failed = np.isin(outcome, [n for n, word in enumerate(OUTCOMES) if word in _ERRORS])
    effects = ["allow", "deny", "require_approval"]
    effect_of = np.array([effects.index(one.effect) for one in TOOLS])
    reasons = ["no_rule", "rule", "approval_rejected"]
    reason_of = np.array([1 if one.rules else 0 for one in TOOLS])
    approval = about.of_call(calls.approval)
    pays = is_call & np.isin(tool, [n for n, one in enumerate(TOOLS) if "payment" in one.labels])
    keyed = np.where(pays & ((approval == 0) | (outcome == PENDING)), 0, -1)
    of_call, words = np.maximum(about.call, 0), call_ids[np.maximum(about.call, 0)]
    day = np.maximum(0, start - FIRST_DAY_NS) // DAY
    newer = (tool % 7 == 0) & (day >= 1)
    hashed = _hashes(calls.arguments[of_call], calls.tool[of_call])
    conversation = ids[about.owner][:, 1:]
    return {
        "name": _words(np.where(is_root, agent, _name_codes(kind, both)), _NAMES),
        "status_code": pa.array(np.where(failed, 2, 0).astype(np.int32)),
        "status_message": _texts(np.where(failed, outcome, len(OUTCOMES)), [*OUTCOMES, ""]),
        "attributes": _attributes(about),
        "events": _events(np.where(failed, outcome, -1), end),
        "resource_attributes": _words(about.owner % len(_VERSIONS), _RESOURCES),
        semconv.TOOL_NAME: _words(tool, names),
        semconv.TOOL_ARGS_HASH: _hex(hashed, "hmac-sha256:", is_call),
        semconv.TOOL_ARGS_HASH_KEY_ID: _words(is_call - 1, [_KEY_ID]),
        semconv.TOOL_SCHEMA_VERSION: _words(np.where(is_call, newer * 1, -1), ["1.0.0", "1.1.0"]),
        semconv.TOOL_OUTCOME: _words(outcome, OUTCOMES),
        semconv.POLICY_DECISION: _words(np.where(is_call, effect_of[tool], -1), effects),
        semconv.POLICY_ID: _words(is_call - 1, ["load"]),
        semconv.POLICY_REASON_CODE: _words(
            np.where(approval == 2, 2, np.where(is_call, reason_of[tool], -1)), reasons
        ),
        semconv.APPROVAL_ID: _hex(words[:, 1:], "appr_", approval >= 0),
        semconv.APPROVAL_STATUS: _words(approval, APPROVALS),
        semconv.IDEMPOTENCY_KEY_HASH: _hex(hashed[:, ::-1], "hmac-sha256:", keyed >= 0),
        semconv.GEN_AI_TOOL_NAME: _words(both, names),
        semconv.GEN_AI_OPERATION_NAME: _words(
            np.where(is_root, 0, np.where(is_call, 1, -1)),
            [semconv.OPERATION_INVOKE_AGENT, semconv.OPERATION_EXECUTE_TOOL],
        ),
        semconv.GEN_AI_TOOL_CALL_ID: _hex(words[:, 1:], "call_", ~is_root),
        semconv.GEN_AI_AGENT_NAME: _words(agent, _AGENTS),
        semconv.GEN_AI_CONVERSATION_ID: _hex(conversation, "conv_", kind != BODY),
        semconv.ERROR_TYPE: _words(
            np.where(failed, outcome, -1), [_ERRORS.get(word, "") for word in OUTCOMES]
        ),
    }


_NAMES: Final = [
    *(f"invoke_agent {agent}" for agent in _AGENTS),
    *(f"{semconv.SPAN_TOOL_CALL} {tool.name}" for tool in TOOLS),
    *(f"{semconv.SPAN_EXECUTE_TOOL} {tool.name}" for tool in TOOLS),
]


def _name_codes(kind: Ints, tool: Ints) -> Ints:
    return len(_AGENTS) + tool + np.where(kind == BODY, len(TOOLS), 0)


def _resource(version: str) -> str:
    return orjson.dumps(
        {
            "telemetry.sdk.language": "python",
            "telemetry.sdk.name": "opentelemetry",
            "telemetry.sdk.version": "1.44.0",
            "service.instance.id": "0c5c0b8a-7148-4949-ab5b-4b4c8db2bd79",
            semconv.SERVICE_NAME: "load",
            semconv.SERVICE_VERSION: version,
        }
    ).decode()


_RESOURCES: Final = [_resource(version) for version in _VERSIONS]
_CONSTANT: Final[dict[str, Any]] = {
    "trace_state": "",
    "flags": 256,
    "kind": 1,
    "dropped_attributes_count": 0,
    "dropped_events_count": 0,
    "dropped_links_count": 0,
    "resource_dropped_attributes_count": 0,
    "resource_schema_url": "",
    "scope_name": "toolverdict.instrument",
    "scope_version": "",
    "scope_attributes": "{}",
    "scope_dropped_attributes_count": 0,
    "scope_schema_url": "",
    "service_name": "load",
}


def _table(rows: Rows) -> pa.Table:
    """With every column of the lake; what no span has is null."""
    count = len(rows.span)
    columns = []
    for field in SPANS:
        if field.name in rows.table.column_names:
            column: Any = rows.table.column(field.name)
        elif field.name not in _CONSTANT:
            column = pa.nulls(count, field.type)
        elif pa.types.is_dictionary(field.type):
            column = _words(np.zeros(count, np.int64), [_CONSTANT[field.name]])
        else:
            column = pa.repeat(pa.scalar(_CONSTANT[field.name], field.type), count)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=SPANS)


def _attributes(about: _About) -> Any:
    """The attributes without a column of their own, as JSON; few different ones."""
    calls = about.calls
    texts = ["{}"]
    texts += [
        _attribute_text(tool, executed, status, about.digest)
        for tool in TOOLS
        for executed in (False, True)
        for status in (None, "new", "replayed")
    ]
    stored = (calls.approval == 0).astype(np.int64) * (1 + calls.replayed)
    code = 1 + calls.tool * 6 + calls.executed * 3 + stored
    return _texts(np.where(about.kind == CALL, code[about.call], 0), texts, pa.large_string())


def _attribute_text(tool: Tool, executed: bool, status: str | None, digest: str) -> str:
    said: dict[str, Any] = {
        semconv.TOOL_LABELS: tool.labels,
        semconv.TOOL_ARGS_HASH_CANON: "jcs-tagged/1",
    }
    if DANGEROUS_LABELS & set(tool.labels):
        said |= {semconv.TAINT_ARGUMENT_ATOMS: [], semconv.TAINT_ATOMS_KEY_ID: _KEY_ID}
    said[semconv.POLICY_DIGEST] = digest
    if tool.rules:
        said[semconv.POLICY_RULE_IDS] = tool.rules
    if status is not None:
        said[semconv.IDEMPOTENCY_STATUS] = status
    said[semconv.TOOL_EXECUTED] = executed
    if "untrusted" in tool.labels and executed:
        atoms = [f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}" for number in (1, 2)]
        said |= {semconv.TAINT_RESULT_ATOMS: atoms, semconv.TAINT_ATOMS_KEY_ID: _KEY_ID}
    return orjson.dumps(said).decode()


def _events(failed: Ints, end: Ints) -> Any:
    """The exception of a failed call."""
    rows = np.flatnonzero(failed >= 0)
    texts = [
        f'[{{"time_unix_nano":{at},"name":"exception","attributes":{{"exception.type":'
        f'"{_ERRORS[OUTCOMES[outcome]]}"}},"dropped_attributes_count":0}}]'
        for outcome, at in zip(failed[rows].tolist(), end[rows].tolist(), strict=True)
    ]
    codes = np.full(len(failed), -1)
    codes[rows] = np.arange(len(rows))
    return _texts(codes, texts, pa.large_string())


def _hashes(arguments: Words64, tool: Ints) -> Words64:
    """Four well mixed numbers for each pair: what stands for the hash of arguments (SplitMix64)."""
    mixed = arguments ^ (tool.astype(np.uint64) << np.uint64(48))
    made = []
    for number in range(1, 5):
        one = mixed + np.uint64(0x9E3779B97F4A7C15 * number % (1 << 64))
        one = (one ^ (one >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        one = (one ^ (one >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        made.append(one ^ (one >> np.uint64(31)))
    return np.stack(made, axis=1)


def _hex(words: Words64, prefix: str = "", there: Bools | None = None) -> Any:
    """Rows of numbers as hex text behind a prefix, null where there is none."""
    rows = np.ones(len(words), np.bool_) if there is None else there
    chosen = np.ascontiguousarray(words[rows]).astype(">u8")
    width = len(prefix) + 16 * words.shape[1]
    text = np.empty((len(chosen), width), np.uint8)
    text[:, : len(prefix)] = np.frombuffer(prefix.encode(), np.uint8)
    digits = np.frombuffer(chosen.tobytes().hex().encode(), np.uint8)
    text[:, len(prefix) :] = digits.reshape(len(chosen), width - len(prefix))
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(rows * width, out=offsets[1:])
    valid = pa.py_buffer(np.packbits(rows, bitorder="little").tobytes())
    return pa.StringArray.from_buffers(
        len(rows), pa.py_buffer(offsets.tobytes()), pa.py_buffer(text.tobytes()), valid
    )


def _words(codes: Ints, values: Sequence[str]) -> Any:
    """A column of words, null where the code is -1."""
    indices: Any = pa.array(codes.astype(np.int32), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.string()))


def _texts(codes: Ints, values: Sequence[str], kind: pa.DataType | None = None) -> Any:
    """A column of text, null where the code is -1."""
    places: Any = pa.array(codes, mask=codes < 0)
    return pa.array(values, kind or pa.string()).take(places)


def main() -> None:
    """Writes a lake and prints what it cost."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--buckets", type=int, default=1)
    parser.add_argument("--layout", choices=("compacted", "hot"), default="compacted")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    began = time.process_time()
    written = write(given.out, given.spans, given.buckets, given.layout, given.seed)
    spent = time.process_time() - began
    size = sum(path.stat().st_size for path in given.out.rglob("*.parquet"))
    print(f"{written:,} spans, {size / 2**20:.0f} MiB, {spent:.1f} CPU s; policy: {POLICY}")


if __name__ == "__main__":
    main()
