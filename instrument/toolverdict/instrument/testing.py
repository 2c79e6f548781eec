"""For tests of instrumented code: the spans that it made, in memory, without a collector.

>>> with capture_spans() as spans:
...     refund("o-1")
>>> spans.tool_calls[0].attributes["tool.outcome"]
'ok'
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final, overload

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from toolverdict.instrument import semconv, settings
from toolverdict.instrument.approvals import Approver
from toolverdict.instrument.decisions import Decider
from toolverdict.instrument.guard import strict
from toolverdict.instrument.hashing import HashKey
from toolverdict.instrument.settings import Capture

__all__ = ["TEST_KEY", "CapturedSpans", "capture_spans", "strict"]

TEST_KEY: Final = HashKey.of(b"toolverdict-test-key")
"""Keys the hashes in ``capture_spans``, so that they are the same in every run."""

_UNCHANGED: Final[Any] = object()


class CapturedSpans(Sequence[ReadableSpan], SpanExporter):
    """The spans that ended so far, in that order: that of a tool's body before that of its call."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a span may end while the interpreter cleans up in here
        self._spans: list[ReadableSpan] = []

    @overload
    def __getitem__(self, index: int) -> ReadableSpan: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ReadableSpan]: ...
    def __getitem__(self, index: int | slice) -> ReadableSpan | Sequence[ReadableSpan]:
        """One span, or some."""
        return self._spans[index]

    def __len__(self) -> int:
        """How many spans ended."""
        return len(self._spans)

    def __repr__(self) -> str:
        """Their names."""
        return f"CapturedSpans({[span.name for span in self._spans]})"

    @property
    def tool_calls(self) -> list[ReadableSpan]:
        """The spans of tool calls only."""
        return [
            span
            for span in self._spans
            if (span.attributes or {}).get(semconv.GEN_AI_OPERATION_NAME)
            == semconv.OPERATION_EXECUTE_TOOL
        ]

    def body_of(self, call: ReadableSpan) -> ReadableSpan | None:
        """The span of what ran in a tool call; None if its body did not run."""
        return next(
            (
                span
                for span in self._spans
                if span.name.startswith(f"{semconv.SPAN_EXECUTE_TOOL} ")
                and span.parent is not None
                and call.context is not None
                and span.parent.span_id == call.context.span_id
            ),
            None,
        )

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep ended spans; called by the SDK."""
        with self._lock:
            self._spans.extend(spans)
        return SpanExportResult.SUCCESS


@contextmanager
def capture_spans(
    *,
    policy: Decider | None = _UNCHANGED,
    approver: Approver | None = _UNCHANGED,
    capture: Capture = _UNCHANGED,
    hash_key: HashKey = TEST_KEY,
    strictly: bool = True,
) -> Iterator[CapturedSpans]:
    """Collect the spans made inside, and nothing else; the global provider is left alone.

    Settings that are not given stay as they are, and all are put back at the end.

    Args:
        policy: Decides about calls inside.
        approver: Is asked for approvals inside.
        capture: ``full`` records arguments and results.
        hash_key: Keys the hashes of arguments.
        strictly: Whether faults of toolverdict raise; a test should see them.
    """
    spans = CapturedSpans()
    provider = TracerProvider(
        sampler=ALWAYS_ON, resource=Resource.get_empty(), shutdown_on_exit=False
    )
    provider.add_span_processor(SimpleSpanProcessor(spans))
    given = {"policy": policy, "approver": approver, "capture": capture, "key": hash_key}
    changes: dict[str, Any] = {k: value for k, value in given.items() if value is not _UNCHANGED}
    with ExitStack() as undo:
        undo.callback(settings.replace, settings.replace(replace(settings.current(), **changes)))
        undo.callback(settings.override_provider, settings.override_provider(provider))
        if strictly:
            undo.enter_context(strict())
        yield spans
