"""How much one request, and each of its records, may hold, and what is said of those above that.

A record above a limit is refused whole, with a partial success that names the limit: what was
accepted is stored as it came, so that a hash of arguments still fits them. Records of a resource or
scope above a limit are refused with it. The limits are those of intake alone. What it let in is
stored, whatever the limits are by then; so what it refused is taken out before the log is written
(:func:`toolverdict.collector.otlp_wire.without`).
"""

from typing import Final, NamedTuple

MIB: Final = 1024 * 1024


class Limits(NamedTuple):
    """In the order in which the native decoder takes them."""

    records: int = 200_000
    """Spans or log records in one request, valid or not."""
    messages: int = 2_000_000
    """Protobuf messages of any kind (an attribute is two) and items of lists of strings, in one
    request."""
    attributes: int = 10_000
    """Attributes of one span, event, link, log record, resource or scope."""
    events: int = 10_000
    """Events of one span."""
    links: int = 10_000
    """Links of one span."""
    record_messages: int = 200_000
    """Messages in one record: its events, links, attributes, values, and what these contain."""
    value_bytes: int = 8 * MIB
    """Bytes of one text or bytes value of a record."""
    record_bytes: int = 32 * MIB
    """Weight of one record; see :mod:`toolverdict.collector.weights`."""
    context_bytes: int = MIB
    """Weight of one resource or scope."""


class Over(NamedTuple):
    """What of a request is over a limit, by its number among its like in the order of the wire."""

    records: frozenset[int] = frozenset()
    scopes: frozenset[int] = frozenset()
    resources: frozenset[int] = frozenset()


LIMIT_REASONS: Final = (
    "attributes",
    "events",
    "links",
    "values",
    "value",
    "record",
    "scope",
    "resource",
)
"""The first word of each text of :func:`limit_faults`."""


def limit_faults(limits: Limits) -> tuple[str, ...]:
    """Why a record is over a limit, in the order in which that is looked for."""
    return (
        f"attributes of one span, event, link or log record must not be more than "
        f"{limits.attributes} (--max-attributes)",
        f"events must not be more than {limits.events} (--max-events)",
        f"links must not be more than {limits.links} (--max-links)",
        f"values of one record, with its attributes, events and links, must not be more than "
        f"{limits.record_messages}",
        f"value or name must not be longer than {limits.value_bytes} bytes (--max-value-mib)",
        f"record must not weigh more than {limits.record_bytes} bytes (--max-record-mib)",
        f"scope must not weigh more than {limits.context_bytes} bytes or have more than "
        f"{limits.attributes} attributes (--max-attributes)",
        f"resource must not weigh more than {limits.context_bytes} bytes or have more than "
        f"{limits.attributes} attributes (--max-attributes)",
    )
