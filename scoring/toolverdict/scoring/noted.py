"""What a span notes for the safety checks beside the call itself: keyed atoms, and tool definitions."""

from collections.abc import Iterable, Mapping
from typing import Final

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.values import decoded
from toolverdict.scoring.model import Atoms, Json
from toolverdict.scoring.spans import Span
from toolverdict.scoring.values import as_text

TOOL_DEFINITIONS: Final = ("gen_ai.tool.definitions", "mlflow.chat.tools")
"""Attributes that hold the tools that a model was offered, with their descriptions."""

_MAX_ATOMS: Final = 1_024
_MAX_DEFINITIONS: Final = 64


def atoms_of(attributes: Mapping[str, Json], name: str) -> Atoms | None:
    """The keyed atoms under a name, as :mod:`toolverdict.instrument.provenance` records them.

    None where there are none recorded, which is not the same as no atoms.
    """
    hashes = attributes.get(name)
    key_id = attributes.get(semconv.TAINT_ATOMS_KEY_ID)
    if not isinstance(hashes, list) or not isinstance(key_id, str) or not key_id:
        return None
    known = frozenset(one for one in hashes[:_MAX_ATOMS] if isinstance(one, str))
    cut = attributes.get(semconv.TAINT_ATOMS_TRUNCATED) is True or len(hashes) > _MAX_ATOMS
    return Atoms(key_id, known, whole=not cut)


def definitions_of(spans: Iterable[Span]) -> tuple[Json, ...]:
    """What the spans of a trajectory say of the tools that its model was offered, each once.

    Every request to a model repeats them, so equal texts are read once.
    """
    found: dict[str, Json] = {}
    for span in spans:
        for name in TOOL_DEFINITIONS:
            text = span.attributes.get(name)
            if text is not None and len(found) < _MAX_DEFINITIONS:
                key = text if isinstance(text, str) else as_text(text)
                if key not in found:
                    found[key] = definitions_in(span.attributes)
    return tuple(found.values())


def definitions_in(attributes: Mapping[str, Json]) -> Json:
    """The tools that a model was offered, as one list; None where the span does not say."""
    for name in TOOL_DEFINITIONS:
        value = attributes.get(name)
        if value is not None:
            read = decoded(value)
            return [decoded(one) for one in read] if isinstance(read, list) else read
    return None
