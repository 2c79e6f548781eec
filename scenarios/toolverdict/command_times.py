"""Times as the commands show them."""

from datetime import UTC, datetime


def shown_time(milliseconds: int) -> str:
    """Milliseconds since 1970 as UTC text; the number, where a damaged row holds no such time."""
    try:
        when = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")
