"""Every recording of a real agent against the truth about its run, field by field.

    python tests/dialects/scorecard.py [NAME ...]

prints, per recording and field, how many values are right, wrong, or not carried: absent from what
was sent, as ``not_carried.json`` argues per recording. A value that is wrong is worse than none, so
a field that is not carried has to come out empty. A field that is listed and found is an error too.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from toolverdict.collector.decode import decode, table_of
from toolverdict.collector.signals import WIRE, Signal
from toolverdict.scoring.spans import COLUMNS, LOG_COLUMNS
from toolverdict.scoring.unit import Rules, score_unit

RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"
NOT_CARRIED = Path(__file__).parent / "not_carried.json"
SIGNALS = {wire.http_path: signal for signal, wire in WIRE.items()}

RIGHT, WRONG, ABSENT = "right", "wrong", "not carried"
FIELDS = (
    "calls",
    "conversation",
    "user",
    "agent",
    "model",
    "version",
    "tool",
    "call_id",
    "arguments",
    "result",
    "outcome",
    "error_kind",
    "executed",
    "retry_of",
    "turn",
    "parallel_group",
    "approval",
)

_BY_OUTCOME = {
    "ok": ("ok", None),
    "empty": ("ok", None),
    "denied": ("rejected", "rejected"),
    "invalid_arguments": ("error", "invalid_arguments"),
}
"""Our outcomes in the words of the recordings; every other failure is an exception."""
_NO_OUTCOME = ("unknown", "pending_approval", "cancelled")


class Judged(NamedTuple):
    """One value: whose it is, and whether it is right."""

    field: str
    state: str
    said: str


def names() -> list[str]:
    """The recordings there are."""
    return sorted(path.name for path in RECORDINGS.iterdir() if path.is_dir())


def requests(name: str) -> Iterator[tuple[Signal, bytes]]:
    """The export requests of a recording, in the order in which they arrived."""
    folder = RECORDINGS / name
    for line in (folder / "requests.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["path"] in SIGNALS:
            yield SIGNALS[entry["path"]], (folder / entry["file"]).read_bytes()


def tables(sent: Iterator[tuple[Signal, bytes]]) -> tuple[pa.Table, pa.Table]:
    """The spans and log records of some requests, as the scorer reads them from a lake."""
    rows: dict[Signal, list[list[Any]]] = {Signal.TRACES: [], Signal.LOGS: []}
    for received, (signal, body) in enumerate(sent):
        rows[signal].extend(decode(signal, body, received))
    spans = table_of(Signal.TRACES, rows[Signal.TRACES]).select(COLUMNS)
    logs = table_of(Signal.LOGS, rows[Signal.LOGS]).select(LOG_COLUMNS)
    order: list[tuple[str, Literal["ascending", "descending"]]] = [
        ("trace_id", "ascending"),
        ("start_time_unix_nano", "ascending"),
    ]
    return spans.sort_by(order), logs


def calls_of(name: str) -> list[dict[str, Any]]:
    """The rows of the calls that the scorer finds in one recording."""
    spans, logs = tables(requests(name))
    return list(score_unit(spans, Rules(), logs).calls.to_pylist())


def expected(name: str) -> dict[str, Any]:
    """The truth about a recording, written from its script and never from spans."""
    truth: dict[str, Any] = json.loads((RECORDINGS / name / "EXPECTED.json").read_text())
    return truth


def not_carried(name: str) -> dict[str, str]:
    """The fields that a recording does not carry, each with the reason."""
    reasons: dict[str, dict[str, str]] = json.loads(NOT_CARRIED.read_text())
    return reasons.get(name, {})


def judge(
    rows: Sequence[dict[str, Any]], truth: dict[str, Any], absent: dict[str, str]
) -> list[Judged]:
    """Each value that was found against the truth."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: (row["start_time_unix_nano"], row["index"])):
        runs.setdefault(row["trajectory_id"], []).append(row)
    found = [sorted(run, key=lambda row: row["index"]) for run in runs.values()]
    counts = [len(run) for run in found], [len(run["calls"]) for run in truth["runs"]]
    if counts[0] != counts[1]:
        return [Judged("calls", WRONG, f"{counts[0]} calls in trajectories, not {counts[1]}")]
    judged = [Judged("calls", RIGHT, "")] * sum(counts[0])
    for run, true in zip(found, truth["runs"], strict=True):
        for row, call in zip(run, true["calls"], strict=True):
            where = f"call {call['index']} ({call['tool']})"
            for field, got, wanted in _values(row, call, true, truth):
                judged.append(_judge(field, got, wanted, field in absent, where))
    return [*judged, *_stale(judged, absent)]


def _values(
    row: dict[str, Any], call: dict[str, Any], run: dict[str, Any], truth: dict[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Each field as it was found and as it was; what the script did not set is left out."""
    generated = "generated at run time"
    for field, column in (("conversation_id", "conversation_id"), ("user_id", "user_id")):
        wanted = run[field]
        if wanted is not None and not wanted.startswith(generated):
            yield field.removesuffix("_id"), row[column], wanted
    yield "agent", row["agent"], truth["agent_name"]
    model = row["model"]
    is_same = model is not None and model.startswith(truth["model"])
    yield "model", truth["model"] if is_same else model, truth["model"]
    if truth["app_version_set_by_script"] is not None:
        yield "version", row["service_version"], truth["app_version_set_by_script"]
    yield "tool", row["tool"], call["tool"]
    yield "tool", row["exposed_as"] or row["tool"], call["tool_as_exposed"]
    yield "call_id", row["call_id"], call["call_id"]
    yield "arguments", _json(row["arguments"]), call["arguments"]
    if call["result"] is not None:
        yield "result", _json(row["result"]), call["result"]
    outcome, kind = _BY_OUTCOME.get(row["outcome"], ("error", "exception"))
    if row["outcome"] in _NO_OUTCOME:
        outcome, kind = row["outcome"], None
    yield "outcome", outcome, call["outcome"]
    if kind == "exception" and row["executed"] is None:
        kind = None  # an error of which nothing more is known
    yield "error_kind", kind, call["error_kind"]
    yield "executed", row["executed"], call["executed"]
    yield "retry_of", row["retry_of"], call["retry_of"]
    yield "turn", row["turn"], call["turn"]
    yield "parallel_group", row["parallel_group"], call["parallel_group"]
    wanted = call["approval"] and call["approval"]["decision"]
    edited = row["approval_status"] == "approved" and row["requested_arguments"] is not None
    yield "approval", "edited" if edited else row["approval_status"], wanted
    if "requested_arguments" in call:
        yield "arguments", _json(row["requested_arguments"]), call["requested_arguments"]


def _judge(field: str, got: Any, wanted: Any, is_absent: bool, where: str) -> Judged:
    if got == wanted and type(got) is type(wanted):
        return Judged(field, RIGHT, "")
    if got is None and is_absent:
        return Judged(field, ABSENT, "")
    return Judged(field, WRONG, f"{where}: {field} is {got!r}, not {wanted!r}")


def _stale(judged: Sequence[Judged], absent: dict[str, str]) -> Iterator[Judged]:
    missing = {one.field for one in judged if one.state != RIGHT}
    for field in sorted(set(absent) - missing):
        yield Judged(field, WRONG, f"{field} is listed as not carried, and was found")


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def main(chosen: Sequence[str]) -> int:
    """Print the table; 1 when anything is wrong."""
    wrong = 0
    mark = {RIGHT: "+", ABSENT: "-", WRONG: "X"}
    print(f"{'':42}" + " ".join(f"{field[:8]:>8}" for field in FIELDS))  # noqa: T201
    for name in chosen or names():
        judged = judge(calls_of(name), expected(name), not_carried(name))
        cells = []
        for field in FIELDS:
            states = Counter(one.state for one in judged if one.field == field)
            cells.append("".join(f"{mark[state]}{count}" for state, count in states.items()))
        print(f"{name:42}" + " ".join(f"{cell:>8}" for cell in cells))  # noqa: T201
        for one in judged:
            if one.state == WRONG:
                wrong += 1
                print(f"    {one.said}")  # noqa: T201
    print(f"\n+ right, - not carried (not_carried.json says why), X wrong: {wrong}")  # noqa: T201
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
