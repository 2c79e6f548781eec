"""Tempo's older JSON export of a trace as OTLP/JSON, which a collector takes.

``/api/traces/ID`` answers ``{"batches": [...]}`` with the names that OTLP had before version 0.15
(``instrumentationLibrarySpans``, ``instrumentationLibrary``); ids are base64 in some versions and
hex in others, enums are names. Everything else is OTLP's JSON already.
"""

import base64
import binascii
import re
from typing import Any

_RENAMED = {
    "batches": "resourceSpans",
    "instrumentationLibrarySpans": "scopeSpans",
    "instrumentationLibrary": "scope",
}
_ID_KEYS = ("traceId", "spanId", "parentSpanId")
_HEX = re.compile(r"(?:[0-9a-fA-F]{16}){1,2}")
_ID_BYTES = (8, 16)


def otlp_of_tempo(export: dict[str, Any]) -> dict[str, Any]:
    """The body of an OTLP/JSON export request with the spans of a Tempo export.

    Args:
        export: the parsed answer of Tempo; one that has today's names already is returned as it is,
            but for its ids.

    Raises:
        ValueError: when it is no export of a trace.
    """
    if "batches" not in export and "resourceSpans" not in export:
        inner = export.get("trace")  # the answer of /api/v2/traces
        if not isinstance(inner, dict) or inner is export:
            raise ValueError("no export of a trace: it has neither batches nor resourceSpans")
        return otlp_of_tempo({key: value for key, value in inner.items() if key != "trace"})
    batches = export.get("batches", export.get("resourceSpans"))
    if not isinstance(batches, list):
        raise ValueError("no export of a trace: its batches are no list")
    return {"resourceSpans": [_batch(batch) for batch in batches]}


def _batch(batch: Any) -> Any:
    if not isinstance(batch, dict):
        return batch
    renamed = _renamed(batch)
    groups = renamed.get("scopeSpans")
    if isinstance(groups, list):
        renamed["scopeSpans"] = [_group(group) for group in groups]
    return renamed


def _group(group: Any) -> Any:
    if not isinstance(group, dict):
        return group
    renamed = _renamed(group)
    spans = renamed.get("spans")
    if isinstance(spans, list):
        renamed["spans"] = [_span(span) for span in spans]
    return renamed


def _span(span: Any) -> Any:
    if not isinstance(span, dict):
        return span
    fixed = {key: _id(value) if key in _ID_KEYS else value for key, value in span.items()}
    links = fixed.get("links")
    if isinstance(links, list):
        fixed["links"] = [_span(link) for link in links]
    return fixed


def _renamed(value: dict[str, Any]) -> dict[str, Any]:
    return {_RENAMED.get(key, key): inner for key, inner in value.items()}


def _id(value: Any) -> Any:
    """An id in hex, whether it was that or base64; what is neither stays, for the collector to say."""
    if not isinstance(value, str) or _HEX.fullmatch(value):
        return value
    try:
        decoded = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return value
    return decoded.hex() if len(decoded) in _ID_BYTES else value
