"""What each comparator says of a wrong argument: sentences that a person reads in a finding."""

from typing import Any

import pytest

from toolverdict.scoring.cases.arguments import Arguments

SAID: list[tuple[Any, Any, str | None]] = [
    ({"$absent": True}, 5, "is 5, expected not to be given"),
    ({"$enum": ["late", "damaged"]}, "lost", "is 'lost', expected one of 'late', 'damaged'"),
    ({"$enum": ["late"]}, " LATE", "is ' LATE', nearly 'late': letter case or spaces differ"),
    ({"$enum": ["late"]}, 7, "is 7, expected one of 'late'"),
    (
        {"$enum": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]},
        99,
        "is 99, expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9",
    ),
    ({"$equal": {"a": 1}}, {"a": 2}, "is 2, expected 1"),
    ({"$number": 5}, 6, "is 6, expected 5"),
    ({"$number": 5}, "x", "is 'x' (str), expected a number"),
    ({"$range": {"min": 1, "max": 5}}, 9, "is 9, expected at most 5"),
    ({"$range": {"min": 1}}, 0, "is 0, expected at least 1"),
    ({"$text": "hi", "match": "contains"}, "ho", "is 'ho', expected to contain 'hi'"),
    ({"$text": "hi", "match": "starts"}, "ho", "is 'ho', expected to start with 'hi'"),
    ({"$text": "hi", "match": "ends"}, "ho", "is 'ho', expected to end with 'hi'"),
    ({"$text": "hi"}, "ho", "is 'ho', expected 'hi'"),
    ({"$regex": "a+"}, "b", "is 'b', which does not match 'a+'"),
    ({"$money": 5, "currency": "EUR"}, 6, "is 6, expected 5 EUR"),
    ({"$money": 5, "currency": "EUR"}, 5, "carries no currency, expected EUR"),
    ({"$money": 5, "currency": "EUR"}, "5 USD", "is in USD, expected EUR"),
    ({"$money": 5}, True, "is True (bool), expected an amount of money"),
    (
        {"$time": "2024-05-20T10:00:00Z"},
        "2024-05-20T11:00:00Z",
        "is '2024-05-20T11:00:00Z', 1:00:00 after '2024-05-20T10:00:00Z'",
    ),
    (
        {"$time": "2024-05-20T10:00:00Z"},
        "2024-05-20T09:00:00Z",
        "is '2024-05-20T09:00:00Z', 1:00:00 before '2024-05-20T10:00:00Z'",
    ),
    (
        {"$time": "2024-05-20T10:00:00Z"},
        "2024-05-20",
        "is '2024-05-20', a day without a time of day",
    ),
    ({"$date": "2024-05-20"}, "2024-05-21", "is '2024-05-21', expected 2024-05-20"),
    ({"$path": "/a/b"}, "/a/c", "is '/a/c', expected '/a/b'"),
    (
        {"$url": "https://shop.example/a"},
        "https://shop.example/b",
        "is 'https://shop.example/b', expected 'https://shop.example/a'",
    ),
    ({"$id": "o_9"}, "o_8", "is 'o_8', expected 'o_9'"),
    (
        {"$query": "cheap flights"},
        "red shoes",
        "is 'red shoes', similarity 0.00 by words_and_trigrams to 'cheap flights', expected at least 0.75",
    ),
    ({"$pii": ["phone"]}, "call 12345678", None),
    ({"$pii": ["phone"]}, "call 1234567", None),
    ({"$pii": ["phone"]}, "+123456789012345", "holds personal data: phone"),
    ({"$pii": ["phone"]}, "+1234567890123456", None),
    ({"$pii": ["iban"]}, "de89 3704 0044 0532 0130 00", "holds personal data: iban"),
]


@pytest.mark.parametrize(("expected", "actual", "said"), SAID, ids=str)
def test_why_an_argument_is_wrong(expected: Any, actual: Any, said: str | None) -> None:
    found = Arguments({"x": expected}, exact=False).compare({"x": actual}).mismatches
    assert [mismatch.why for mismatch in found] == ([] if said is None else [said])
