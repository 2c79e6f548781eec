"""A span as the scorer sees it, and the tree its parents make.

Everything here comes from a trace and is hostile: parents may be missing, point at themselves or
run in circles, chains may be 50,000 deep. All walks are iterative and say what they found.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import pyarrow as pa

from toolverdict.collector import schema
from toolverdict.collector.typed_json import load_attributes
from toolverdict.scoring.model import Json

STATUS_ERROR: Final = 2
"""``status_code`` of a span that failed (OTLP: ``STATUS_CODE_ERROR``)."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a span: an event of the span, or a log record that names it.

    ``name`` is what it calls itself: the attribute ``event.name``, else the name of the event.
    ``body`` is a log record's; events of spans have none.
    """

    name: str
    attributes: Mapping[str, Json]
    body: Json = None
    at_ns: int = 0


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One log record, with the span it belongs to where it says one."""

    trace_id: str | None
    span_id: str | None
    event: Event
    resource: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Span:
    """One span with all its attributes; times in nanoseconds, ``end_ns`` None when unfinished."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    start_ns: int
    end_ns: int | None
    failed: bool
    attributes: Mapping[str, Json]
    resource: Mapping[str, Json]
    trace_state: str
    kind: int = 0
    status_message: str = ""
    events: tuple[Event, ...] = ()

    def text(self, *keys: str) -> str | None:
        """The first of these attributes that is a non-empty text, or a whole number as one."""
        for key in keys:
            value = self.attributes.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)
            if isinstance(value, str) and value:
                return value
        return None


COLUMNS = [
    "trace_id",
    "span_id",
    "parent_span_id",
    "name",
    "start_time_unix_nano",
    "end_time_unix_nano",
    "kind",
    "status_code",
    "status_message",
    "trace_state",
    "attributes",
    "events",
    *schema.PROMOTED,
    "resource_attributes",
]
"""The columns of the lake that scoring reads of spans."""

LOG_COLUMNS = [
    "trace_id",
    "span_id",
    "time_unix_nano",
    "observed_time_unix_nano",
    "event_name",
    "body",
    "attributes",
    "resource_attributes",
]
"""The columns of the lake that scoring reads of log records."""


def traces(table: pa.Table) -> Iterator[list[Span]]:
    """Cut a table sorted by trace id into traces, one list of spans each.

    Args:
        table: rows of one bucket with at least :data:`COLUMNS`, whole traces, sorted by trace id.
    """
    trace: list[Span] = []
    for batch in table.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            if trace and trace[0].trace_id != row["trace_id"]:
                yield trace
                trace = []
            trace.append(span_of(row))
    if trace:
        yield trace


def span_of(row: Mapping[str, Any]) -> Span:
    """The span in one row with at least :data:`COLUMNS`."""
    return Span(
        trace_id=row["trace_id"],
        span_id=row["span_id"],
        parent_span_id=row["parent_span_id"],
        name=row["name"],
        start_ns=row["start_time_unix_nano"],
        end_ns=row["end_time_unix_nano"] or None,
        failed=row["status_code"] == STATUS_ERROR,
        attributes=schema.attributes_of(row),
        resource=_resource_of(row),
        trace_state=row["trace_state"] or "",
        kind=row["kind"] or 0,
        status_message=row["status_message"] or "",
        events=() if row["events"] is None else _events(row),
    )


def _events(row: Mapping[str, Any]) -> tuple[Event, ...]:
    return tuple(
        Event(event["name"], event["attributes"], None, event["time_unix_nano"])
        for event in schema.events_of(row)
    )


def log_records(table: pa.Table) -> Iterator[LogRecord]:
    """The log records of one bucket, in the order of the table.

    Args:
        table: rows with at least :data:`LOG_COLUMNS`.
    """
    for batch in table.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            attributes = schema.attributes_of(row)
            said = attributes.get("event.name")
            event = Event(
                name=said if isinstance(said, str) and said else row["event_name"] or "",
                attributes=attributes,
                body=schema.body_of(row),
                at_ns=row["time_unix_nano"] or row["observed_time_unix_nano"],
            )
            yield LogRecord(row["trace_id"], row["span_id"], event, _resource_of(row))


def _resource_of(row: Mapping[str, Any]) -> Mapping[str, Json]:
    try:
        return resource_of(row["resource_attributes"])
    except (ValueError, TypeError):
        return schema.resource_attributes_of(row)  # raises and names the span


@lru_cache(maxsize=1024)
def resource_of(text: str) -> Mapping[str, Json]:
    """The attributes of a resource, which thousands of spans share."""
    return load_attributes(text)


class Tree:
    """The spans of one trace by id and by parent. Built once, then only read."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self.spans = sorted(spans, key=lambda span: (span.start_ns, span.span_id))
        self.by_id = {span.span_id: span for span in self.spans}

    def parent(self, span: Span) -> Span | None:
        """The parent when it is in the trace; None for a root, an orphan or its own parent."""
        parent = self.by_id.get(span.parent_span_id or "")
        return None if parent is span else parent

    @cached_property
    def roots(self) -> list[Span]:
        """Spans without a parent in this trace, in time order."""
        return [span for span in self.spans if self.parent(span) is None]

    @cached_property
    def orphans(self) -> list[Span]:
        """Spans whose parent was named but is not here: sampled out, lost, late or mistaken."""
        return [s for s in self.spans if s.parent_span_id and s.parent_span_id not in self.by_id]

    @cached_property
    def circular(self) -> list[Span]:
        """Spans that no root reaches, since their parents run in a circle."""
        reached = {span.span_id for span in self._reach(self.roots)}
        return [span for span in self.spans if span.span_id not in reached]

    @cached_property
    def top_down(self) -> list[Span]:
        """Every span once, each after its parent; circles are entered at their first span."""
        return self._reach([*self.roots, *self.circular])

    def inherited(self, *keys: str) -> dict[str, str | None]:
        """Per span id, the first of these text attributes on the span, else on its ancestors."""
        values: dict[str, str | None] = {}
        for span in self.top_down:
            own = span.text(*keys)
            values[span.span_id] = own or values.get(span.parent_span_id or "")
        return values

    def _reach(self, starts: Iterable[Span]) -> list[Span]:
        children: dict[str, list[Span]] = {}
        for span in self.spans:
            if (parent := self.parent(span)) is not None:
                children.setdefault(parent.span_id, []).append(span)
        reached: dict[str, Span] = {}
        waiting = list(reversed(list(starts)))
        while waiting:
            span = waiting.pop()
            if span.span_id not in reached:
                reached[span.span_id] = span
                waiting.extend(reversed(children.get(span.span_id, ())))
        return list(reached.values())
