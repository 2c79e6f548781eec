"""The keys of an object in a case file: which are known, and what may stand under them."""

from difflib import get_close_matches
from typing import Any

from toolverdict.scoring.cases.files import Place


def texts(place: Place, value: Any) -> list[str]:
    """A text, or a list of texts."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise place.error(f"expected a name or a list of names, got {kind(value)}")
    return texts


def list_of(place: Place, value: Any, what: str) -> list[Any]:
    """A list of what is named."""
    # A text is iterable too: it must not fall apart into one-letter tools.
    if not isinstance(value, list):
        raise place.error(f"expected a list of {what}, got {kind(value)}")
    return value


def known_keys(
    place: Place, document: dict[str, Any], known: tuple[str, ...], notes: set[str]
) -> dict[str, Any]:
    """The keys that are known; a near miss of one is an error, others are added to ``notes``."""
    for key in sorted(document.keys() - set(known)):
        near = get_close_matches(str(key), known, n=1, cutoff=0.8)
        if near and near[0] not in document:
            raise place.at(key).error(f"unknown key {key!r}; did you mean {near[0]!r}?")
        notes.add(str(key))
    return {key: value for key, value in document.items() if key in known}


def strict_keys(place: Place, document: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """The document, all of whose keys must be known."""
    for key in sorted(document.keys() - set(known)):
        near = get_close_matches(str(key), known, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
        raise place.at(key).error(f"unknown key {key!r}; {hint}")
    return dict(document)


def kind(value: Any) -> str:
    """What a value is, for a message."""
    return "nothing" if value is None else f"a {type(value).__name__}"
