"""Ids and names that an application hands over: text, whatever it keeps them as."""

from toolverdict.instrument import guard


def as_text(what: str, given: object) -> str | None:
    """The id as text: a UUID, number or database key by its ``str``; None stays None.

    Args:
        what: Names the id in our log.
        given: The id.
    """
    if given is None:
        return None
    try:
        return str(given)
    except Exception as error:  # noqa: BLE001 - an object without a text must not stop the tool
        guard.note("id", "the %s has no text (%s); it is left out", what, type(error).__name__)
        return None
