"""Instants and days, compared after normalisation: zones, epochs, and the bounds of a day.

An instant is ISO 8601 with a zone, or a number of seconds, milliseconds, microseconds or nanoseconds
since 1970, told apart by size. A time without a zone is an instant only where a zone is given; one
that a clock change skips or repeats there is undecided.
"""

from datetime import UTC, date, datetime, timedelta
from functools import cache, cached_property
from typing import ClassVar, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import field_validator, model_validator

from toolverdict.scoring.cases.comparators.base import Context, Kind, Unlike, undecided
from toolverdict.scoring.cases.equality import shown
from toolverdict.scoring.model import Json

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_CHARS = 64
# From which size on an epoch is of the next smaller unit: each holds the years up to 5138.
_UNITS = ((1e11, 1), (1e14, 10**3), (1e17, 10**6), (1e20, 10**9))


class Time(Kind):
    """The same instant, within ``tolerance`` seconds; ``zone`` is that of times without one."""

    kind: ClassVar[str] = "time"
    zone: str | None = None
    tolerance: float = 0.0

    @field_validator("zone")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        return _known_zone(value)

    @model_validator(mode="after")
    def _a_time(self) -> Self:
        _ = self._wanted
        if self.tolerance < 0:
            raise ValueError("the tolerance is a number of seconds, at least 0")
        return self

    @cached_property
    def _wanted(self) -> datetime:
        found = _instant(self.value, self.zone)
        if isinstance(found, Unlike):
            raise ValueError(f"expected a time: it {found.why}")
        return found

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """Right if both are the same instant."""
        wanted, got = self._wanted, _instant(actual, self.zone)
        if isinstance(got, Unlike):
            return got
        if (wanted.tzinfo is None) != (got.tzinfo is None):
            zoneless = "is" if got.tzinfo is None else "is compared with a time"
            return undecided(f"{zoneless} without a zone; give one: {{$time: ..., zone: ...}}")
        if abs(wanted - got) <= timedelta(seconds=self.tolerance):
            return None
        return Unlike(f"is {shown(actual)}, {_apart(wanted, got)} {shown(self.value)}")


class Date(Kind):
    """The same calendar day; an instant is on the day that it is in ``zone``."""

    kind: ClassVar[str] = "date"
    zone: str | None = None

    @field_validator("zone")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        return _known_zone(value)

    @field_validator("value")
    @classmethod
    def _a_day(cls, value: Json) -> Json:
        if _day(value) is None:
            raise ValueError("expected a day, such as 2024-05-20")
        return value

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """Right if it is that day, or an instant of it."""
        wanted, got = _day(self.value), _day(actual)
        if got is None:
            instant = _instant(actual, None)
            if isinstance(instant, Unlike):
                return instant
            if instant.tzinfo is not None:
                if self.zone is None:
                    return undecided(f"is {shown(actual)}, whose day depends on the zone; give one")
                instant = instant.astimezone(ZoneInfo(self.zone))
            got = instant.date()
        return None if got == wanted else Unlike(f"is {shown(actual)}, expected {self.value}")


def is_timestamp(text: str) -> bool:
    """Whether a text is an instant of ISO 8601 with date, time and zone."""
    if not 16 <= len(text) <= _MAX_CHARS or text[10] not in "Tt " or not text[:4].isdigit():
        return False
    found = _instant(text, None)
    return isinstance(found, datetime) and found.tzinfo is not None


def _known_zone(value: str | None) -> str | None:
    try:
        return value if value is None else ZoneInfo(value).key
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{value!r} is no time zone, such as Europe/Berlin") from None


def _day(value: Json) -> date | None:
    if not isinstance(value, str) or len(value) != 10:
        return None
    try:
        return date.fromisoformat(value)
    except ValueError:
        return None


def _instant(value: Json, zone: str | None) -> datetime | Unlike:
    """The instant of an argument; without a zone where neither it nor the case has one."""
    no_time = f"is {shown(value)}, expected a time"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return Unlike(no_time)
    if not isinstance(value, str):
        return _of_epoch(value) or Unlike(no_time)
    text = value.strip()
    if text.isascii() and text.isdigit() and 9 <= len(text) <= 19:
        return _of_epoch(int(text)) or Unlike(no_time)
    if _day(text) is not None:
        return Unlike(f"is {shown(value)}, a day without a time of day")
    try:
        made = datetime.fromisoformat(text.upper()) if len(text) <= _MAX_CHARS else None
    except ValueError:
        made = None
    if made is None:
        return Unlike(no_time)
    return _in_zone(made, zone) if made.tzinfo is None and zone is not None else made


def _of_epoch(value: float) -> datetime | None:
    for bound, per_second in _UNITS:
        if abs(value) < bound:
            try:
                return _EPOCH + timedelta(microseconds=round(value * 1_000_000 / per_second))
            except (OverflowError, ValueError):
                return None
    return None


def _in_zone(naive: datetime, zone: str) -> datetime | Unlike:
    info = _zone(zone)
    first, second = naive.replace(tzinfo=info), naive.replace(tzinfo=info, fold=1)
    if first.utcoffset() != second.utcoffset():
        return undecided(f"is {naive.isoformat()}, which {zone} has twice or never")
    return first.astimezone(UTC)


@cache
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _apart(wanted: datetime, got: datetime) -> str:
    return f"{abs(got - wanted)} {'after' if got > wanted else 'before'}"
