"""Probabilities as 56-bit thresholds, and the threshold and randomness in a W3C ``tracestate``.

A trace has one randomness R, uniform in [0, 2^56): the last 56 bits of its id, or ``rv`` where its
spans carry one. A threshold T keeps the trace if and only if R >= T, so with probability
1 - T / 2^56, and each kept span then stands for 2^56 / (2^56 - T). Both are sub-keys of the member
``ot``::

    ot=th:f333333333334;rv:0123456789abcd,vendor=anything

``th`` is hex with trailing zeros dropped, ``th:0`` keeps everything; ``rv`` has all 14 digits.

Source: OpenTelemetry specification, "TraceState: Probability Sampling" and "TraceState Handling"
(status development), and W3C Trace Context level 2, "tracestate".
"""

import re
from fractions import Fraction
from typing import Final, NamedTuple

RANDOMNESS_BITS: Final = 56
NEVER: Final = 1 << RANDOMNESS_BITS
"""One more than the largest threshold: no randomness reaches it."""
RANDOMNESS_MASK: Final = NEVER - 1

UNKNOWN_MEMBER: Final = "toolverdict=th:unknown"
"""Marks a span that was sampled, nobody knows how: it has no adjusted count, which is not 1."""

_DIGITS: Final = RANDOMNESS_BITS // 4
_THRESHOLD: Final = re.compile(rf"[0-9a-fA-F]{{1,{_DIGITS}}}")
_RANDOMNESS: Final = re.compile(rf"[0-9a-fA-F]{{{_DIGITS}}}")


class Sampled(NamedTuple):
    """What a ``tracestate`` says about how its span was sampled so far."""

    threshold: int | None
    """None when it does not say, or when what it says cannot be believed."""
    randomness: int | None
    """The explicit randomness; None for that of the trace id."""
    unknown: bool
    """It was sampled, and the threshold is not known."""


def threshold_of(probability: float) -> int:
    """The threshold that keeps this share, exact to 2^-56.

    Raises:
        ValueError: when the probability is not in [2^-56, 1].
    """
    if not 2.0**-RANDOMNESS_BITS <= probability <= 1:
        raise ValueError(f"a probability is from 2^-56 to 1, not {probability}")
    return NEVER - round(Fraction(probability) * NEVER)


def read_sampled(trace_state: str) -> Sampled:
    """Read the sub-keys ``th`` and ``rv``; any text is a ``tracestate``, however wrong.

    Unknown is what is malformed or there twice, what an earlier version of the specification wrote
    (``p``), and what :func:`write_sampled` marked as unknown.
    """
    own, others = _split(trace_state)
    if own is None:
        return Sampled(None, None, UNKNOWN_MEMBER in others)
    threshold, sound_threshold = _number(own, "th", _THRESHOLD, pad=True)
    randomness, sound_randomness = _number(own, "rv", _RANDOMNESS, pad=False)
    legacy = threshold is None and any(item.startswith("p:") and item != "p:0" for item in own)
    unknown = not sound_threshold or not sound_randomness or legacy or UNKNOWN_MEMBER in others
    return Sampled(None if unknown else threshold, randomness, unknown)


def write_sampled(trace_state: str, threshold: int | None, randomness: int | None) -> str:
    """The same ``tracestate`` with another threshold, everybody else's parts kept as they are.

    Args:
        trace_state: what the span has.
        threshold: from 0 to 2^56 - 1; None erases it and marks the span as unknown.
        randomness: the explicit randomness; None leaves it to the trace id.
    """
    own, others = _split(trace_state)
    items = [] if threshold is None else [f"th:{_hex(threshold).rstrip('0') or '0'}"]
    if randomness is not None:
        items.append(f"rv:{_hex(randomness)}")
    items += [item for item in own or () if not item.startswith(("th:", "rv:"))]
    members = [f"ot={';'.join(items)}"] if items else []
    if threshold is None:
        members.append(UNKNOWN_MEMBER)
    # Whoever changes a member moves it to the front, says W3C.
    return ",".join(members + [member for member in others if member != UNKNOWN_MEMBER])


def _split(trace_state: str) -> tuple[list[str] | None, list[str]]:
    """The sub-keys of ``ot`` (None without such a member), and the other members."""
    own: list[str] | None = None
    others = []
    for member in trace_state.split(","):
        key, _, value = member.strip(" \t").partition("=")
        if key == "ot":
            own = [*(own or ()), *filter(None, value.strip(" \t").split(";"))]
        elif key:
            others.append(member.strip(" \t"))
    return own, others


def _number(
    items: list[str], key: str, form: re.Pattern[str], *, pad: bool
) -> tuple[int | None, bool]:
    """The value of a sub-key, None without one; and False when there is one that is wrong."""
    values = [item.partition(":")[2] for item in items if item.partition(":")[0] == key]
    if not values:
        return None, True
    if len(values) > 1 or form.fullmatch(values[0]) is None:
        return None, False
    return int(values[0].ljust(_DIGITS, "0") if pad else values[0], 16), True


def _hex(number: int) -> str:
    return f"{number:0{_DIGITS}x}"
