"""What goes on a span of the content of a call: all of it if that was asked for, and its atoms.

A value may raise anything when it is looked at. Then it is not recorded, and nothing else happens.
"""

from typing import Final

from opentelemetry.trace import Span

from toolverdict.instrument import capture, guard, redaction, semconv, settings, spans
from toolverdict.instrument.provenance import Atoms
from toolverdict.instrument.settings import Settings
from toolverdict.instrument.spans import Attributes

_NOTHING: Final[Attributes] = {}


def content(
    attribute: str, truncated: str, value: object, in_force: Settings, span: Span
) -> Attributes:
    """A value as JSON, whole or not at all and flagged; nothing unless the settings say so.

    Args:
        attribute: Holds the JSON.
        truncated: Says that it was too large.
        value: What is recorded.
        in_force: Say whether, how much and what not.
        span: Limits how long an attribute may be.
    """
    if in_force.capture == "off" or not span.is_recording():
        return _NOTHING
    try:
        redact = redaction.redactor(in_force)
        length = spans.length_limit(span)
        return {attribute: capture.to_json(value, in_force.max_captured_bytes, length, redact)}
    except capture.TooLarge:
        return {truncated: True}
    except Exception as error:  # noqa: BLE001 - see above
        guard.note("capture", "a value cannot be captured (%s)", type(error).__name__)
        return _NOTHING


def atoms(attribute: str, value: object, in_force: Settings) -> Attributes:
    """The hashes of the atoms in a value, and whose hashes they are."""
    of = Atoms()
    try:
        of.add(value)
    except Exception as error:  # noqa: BLE001 - see above
        guard.note("atoms", "a value has no atoms (%s)", type(error).__name__)
        return _NOTHING
    return hashes(attribute, of, in_force)


def add_atoms(of: Atoms, value: object, *, is_item: bool) -> None:
    """Add the atoms in an item of a stream, or in what it returned at its end."""
    try:
        of.add_item(value) if is_item else of.add(value)
    except Exception as error:  # noqa: BLE001 - see above
        guard.note("atoms", "a value has no atoms (%s)", type(error).__name__)
        of.whole = False


def hashes(attribute: str, of: Atoms, in_force: Settings) -> Attributes:
    """The hashes of atoms, whose hashes they are, and whether these are all."""
    key = settings.hash_key(in_force)
    noted: dict[str, str | bool | tuple[str, ...]] = {
        attribute: of.hashes(key),
        semconv.TAINT_ATOMS_KEY_ID: key.id,
    }
    return noted if of.whole else {**noted, semconv.TAINT_ATOMS_TRUNCATED: True}
