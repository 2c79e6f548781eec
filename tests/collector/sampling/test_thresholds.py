"""Thresholds and ``tracestate``: what is written is read again, and nobody else's part is touched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.collector.sampling.thresholds import (
    NEVER,
    UNKNOWN_MEMBER,
    Sampled,
    read_sampled,
    threshold_of,
    write_sampled,
)
from toolverdict.scoring.sampling import adjusted_count

THRESHOLDS = st.integers(0, NEVER - 1)
RANDOMNESS = st.none() | st.integers(0, NEVER - 1)
VENDORS = st.lists(
    st.from_regex(r"[a-np-z][a-z0-9]{0,5}(@[a-z]{1,4})?=[!-+\--<>-~]{1,9}", fullmatch=True),
    max_size=4,
)
OWN = st.lists(st.sampled_from(["k1:13", "th:8", "th:zz", "rv:1", "x:y", "p:8", ""]), max_size=4)
ANYTHING = st.text(max_size=40) | st.from_regex(r"[ot=hrvp:;, 0-9a-f]{0,40}", fullmatch=True)


@pytest.mark.parametrize(
    ("probability", "written"),
    [(1.0, "th:0"), (0.5, "th:8"), (0.25, "th:c"), (2.0**-56, "th:ffffffffffffff")],
)
def test_the_thresholds_of_the_specification(probability: float, written: str) -> None:
    assert write_sampled("", threshold_of(probability), None) == f"ot={written}"


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="from 2"):
        threshold_of(probability)


@given(st.floats(2.0**-56, 1.0))
def test_a_threshold_keeps_its_share(probability: float) -> None:
    assert (NEVER - threshold_of(probability)) / NEVER == pytest.approx(probability, abs=2.0**-56)


@given(THRESHOLDS, RANDOMNESS, VENDORS)
def test_what_is_written_is_read_again(
    threshold: int, randomness: int | None, vendors: list[str]
) -> None:
    text = write_sampled(",".join(vendors), threshold, randomness)
    assert read_sampled(text) == Sampled(threshold, randomness, False)
    assert adjusted_count(text) == pytest.approx(
        min(NEVER / (NEVER - threshold), 1 << 20), abs=2.0**-20
    )


@given(st.none() | THRESHOLDS, RANDOMNESS, VENDORS, VENDORS, OWN)
def test_other_members_and_sub_keys_stay(
    threshold: int | None,
    randomness: int | None,
    before: list[str],
    after: list[str],
    own: list[str],
) -> None:
    text = write_sampled(",".join([*before, f"ot={';'.join(own)}", *after]), threshold, randomness)
    members = [member for member in text.split(",") if member]
    others = [m for m in members if not m.startswith("ot=") and m != UNKNOWN_MEMBER]
    assert others == before + after
    items = [i for m in members if m.startswith("ot=") for i in m[3:].split(";")]
    theirs = [item for item in own if item and not item.startswith(("th:", "rv:"))]
    assert [item for item in items if not item.startswith(("th:", "rv:"))] == theirs


@given(ANYTHING, st.none() | THRESHOLDS, RANDOMNESS)
def test_any_text_can_be_read_and_written_and_twice_is_once(
    text: str, threshold: int | None, randomness: int | None
) -> None:
    written = write_sampled(text, threshold, randomness)
    assert write_sampled(written, threshold, randomness) == written
    said = read_sampled(written)
    assert said.randomness == randomness
    if threshold is None:
        assert said == Sampled(None, randomness, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", Sampled(None, None, False)),
        ("vendor=ot:th:8", Sampled(None, None, False)),
        ("a=ot=th:8", Sampled(None, None, False)),
        ("ot=th:8", Sampled(8 << 52, None, False)),
        ("ot=th:C", Sampled(12 << 52, None, False)),
        (" a=b , ot=x:y;th:8 ", Sampled(8 << 52, None, False)),
        ("ot=rv:00000000000001;th:0", Sampled(0, 1, False)),
        ("ot=th:", Sampled(None, None, True)),
        ("ot=th:g", Sampled(None, None, True)),
        ("ot=th:+8", Sampled(None, None, True)),
        ("ot=th:123456789abcdef", Sampled(None, None, True)),
        ("ot=th:8;th:8", Sampled(None, None, True)),
        ("ot=th:8,ot=th:c", Sampled(None, None, True)),
        ("ot=th:8;rv:1", Sampled(None, None, True)),
        ("ot=p:8;r:62", Sampled(None, None, True)),
        ("ot=p:0;r:62", Sampled(None, None, False)),
        (UNKNOWN_MEMBER, Sampled(None, None, True)),
        (f"ot=th:8,{UNKNOWN_MEMBER}", Sampled(None, None, True)),
    ],
)
def test_what_a_trace_state_says(text: str, said: Sampled) -> None:
    assert read_sampled(text) == said
