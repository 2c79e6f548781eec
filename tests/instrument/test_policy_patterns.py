"""Patterns: they mean the whole text, and take no longer than its length."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.instrument.policy.patterns import compile_pattern

GOOD = [
    ("cust_[0-9]{4,12}", ["cust_1234"], ["cust_123", "cust_1234567890123", "cust_1234x"]),
    (r"[a-z0-9._-]+@shop\.example", ["a.b@shop.example"], ["@shop.example", "a@shopxexample"]),
    (r"^[A-Z]{2}\d{2}[A-Z0-9]{11,30}$", ["DE89370400440532013000"], ["DE8937"]),
    ("-?[0-9]+", ["-5", "5"], ["--5", "5-"]),
    ("a{2,}b", ["aab", "aaab"], ["ab"]),
    (r"\[\]\^\\", ["[]^\\"], ["[]^"]),
    (r"[\]\\^-]+", ["]^\\-"], ["a"]),
    ("[a&&b~~]+", ["a&&b~"], ["c"]),
    ("ab?", ["a", "ab"], ["abb"]),
    (r"\w+", ["a_1"], ["a-1", "\N{LATIN SMALL LETTER E WITH ACUTE}"]),
]


@pytest.mark.parametrize(("pattern", "yes", "no"), GOOD, ids=[row[0] for row in GOOD])
def test_a_pattern_means_the_whole_text(pattern: str, yes: list[str], no: list[str]) -> None:
    matches = compile_pattern(pattern)
    for text in yes:
        assert matches(text)
        assert not matches(text + "\n")
        assert not matches("\n" + text)
    assert not any(matches(text) for text in no)


BAD = [
    ("(a+)+", "is not read here"),
    ("a|b", "write a list of patterns"),
    (".*", "is not read here"),
    ("[^a]", "say what is allowed"),
    ("[a-z]+[a-z]", "can be read as part of it"),
    ("[a-z]*[0-9]?[a-z]*", "can be read as part of it"),
    ("a+a", "can be read as part of it"),
    ("a{3,2}", "a repetition goes up to"),
    ("a{9999}", "a repetition goes up to"),
    ("a{x}", "a repetition is"),
    ("[z-a]", "from one character up to another"),
    ("[", "ends in the middle"),
    ("a\\", "ends in the middle"),
    ("[]", "matches nothing"),
    ("", "empty"),
    ("a++", "is not read here"),
    (r"\s", "is not read in patterns"),
    (r"\b", "is not read in patterns"),
    ("caf\N{LATIN SMALL LETTER E WITH ACUTE}", "printable ASCII"),
    ("a\n", "printable ASCII"),
    ("a" * 501, "at most 500"),
    ("a$b", "is not read here"),
]


@pytest.mark.parametrize(("pattern", "message"), BAD, ids=range(len(BAD)))
def test_what_is_not_of_this_kind_is_refused_when_it_is_loaded(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        compile_pattern(pattern)


def test_a_hostile_text_takes_no_longer_than_its_length() -> None:
    matches = compile_pattern(r"[a-z0-9]+(\@)".replace("(", "").replace(")", ""))
    started = time.process_time()
    for _ in range(100):
        assert not matches("a" * 10_000)
    assert time.process_time() - started < 2
    assert not matches("a" * 10_001 + "@")


@given(st.from_regex(r"[ab]{1,3}[cd]?[0-9]{0,2}x", fullmatch=True), st.text(max_size=6))
def test_it_agrees_with_regular_expressions_where_both_read_a_pattern(
    text: str, other: str
) -> None:
    pattern = r"[ab]{1,3}[cd]?[0-9]{0,2}x"
    matches = compile_pattern(pattern)
    assert matches(text)
    assert matches(other) == bool(re.fullmatch(pattern, other, re.ASCII))
