"""What is shown on a terminal, of whatever command: untrusted texts, and rates."""

from collections.abc import Mapping


def plain(value: object, most: int = 400) -> str:
    """A text from a trace, safe on a terminal and no longer than ``most`` characters.

    Control and direction characters are escaped; a text that is cut ends in an ellipsis.
    """
    text = str(value)
    cut = text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in cut)


def rate_text(rate: Mapping[str, float | None]) -> str:
    """A rate with its counts and interval, or ``None (n=0)``."""
    if rate["value"] is None:
        return "None (n=0)"
    return (
        f"{rate['value']:.3f}  ({rate['numerator']:g}/{rate['denominator']:g})  "
        f"[{rate['low']:.3f}, {rate['high']:.3f}]"
    )
