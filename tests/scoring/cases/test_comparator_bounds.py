"""Comparators at their bounds: the last value that is right, and the first that is not."""

from typing import Any

import pytest

from toolverdict.scoring.cases.arguments import Arguments
from toolverdict.scoring.cases.comparators.base import Context
from toolverdict.scoring.cases.comparators.numbers import Number
from toolverdict.scoring.cases.comparators.references import follow, parse_ref
from toolverdict.scoring.cases.comparators.registry import (
    ComparatorError,
    builtin_names,
    make,
    names,
    register,
)
from toolverdict.scoring.cases.comparators.times import is_timestamp
from toolverdict.scoring.cases.plans import PlanError


def answer(expected: Any, actual: Any) -> str:
    found = Arguments({"x": expected}, exact=True).compare({"x": actual})
    return "undecided" if not found.decided else "right" if found.wholly_right else "wrong"


def said(expected: Any, actual: Any) -> str:
    found = Arguments({"x": expected}, exact=True).compare({"x": actual})
    (one,) = found.mismatches or found.undecided
    return one.why


T = "2024-05-20T18:38:00Z"
RIGHT: list[tuple[Any, Any]] = [
    ({"$number": 5, "tolerance": 0}, 5),
    ({"$number": -100, "tolerance": "1%"}, -101),
    ({"$number": 1 / 3}, 0.33333333334),
    ({"$number": 10, "tolerance": "0.5 %"}, 10.05),
    ({"$number": 1000, "tolerance": "1%"}, 1009),
    ({"$range": {"min": 1, "max": 5}}, 1),
    ({"$range": {"min": 5, "max": 5}}, 5),
    ({"$range": {"min": 1}}, 10**9),
    ({"$time": T, "zone": None}, T),
    ({"$time": T}, 1716230280000000),
    ({"$time": T}, 1716230280000000000),
    ({"$time": T}, "1716230280000000000"),
    ({"$time": T}, " 2024-05-20T18:38:00Z "),
    ({"$time": T, "tolerance": 0.5}, 1716230280.5),
    ({"$time": "2001-09-09T01:46:39Z"}, "999999999"),
    ({"$time": "1973-03-03T09:46:40Z"}, 10**11),
    ({"$time": "1973-03-03T09:46:40Z"}, 10**14),
    ({"$time": "1973-03-03T09:46:40Z"}, 10**17),
    ({"$time": "5138-11-16T09:46:39Z"}, 10**11 - 1),
    ({"$time": "1969-12-31T23:59:59Z"}, -1),
    ({"$time": T}, "2024-05-20T18:38:00." + "0" * 43 + "Z"),
    ({"$money": -5}, "-$5.00"),
    ({"$money": -5}, "$-5"),
    ({"$money": 5}, {"value": 5}),
    ({"$money": 5}, {"amount": 5, "currency": 7}),
    ({"$money": 5, "currency": "USD"}, "$5 USD"),
    ({"$money": 5, "currency": "CAD"}, "$5"),
    ({"$money": "$5"}, "5 AUD"),
    ({"$money": 5}, "0" * 99 + "5"),
    ({"$money": 1234567}, "1,234,567"),
    ({"$money": 1234.5}, "1'234.5"),
    ({"$money": 0.5}, ".5"),
    (
        {"$money": 12.34, "currency": "EUR", "minor_units": True},
        {"amount": 1234, "currency": "EUR"},
    ),
    ({"$query": "a b", "min": 1}, "b A"),
    ({"$query": "a bb zzzzzzzzzz", "min": 0.6}, "a bb qqqqqqqqqq"),
    ({"$query": ["a b", "c d"], "min": 1}, "c d"),
    ({"$id": "o_9"}, "o_9"),
    ({"$id": 9}, 9),
    ({"$path": "a/b"}, "a//b/"),
    ({"$path": "\\\\srv\\a"}, "//srv/b/../a"),
    ({"$path": "Caf\u00e9"}, "Cafe\u0301"),
    ({"$url": "http://a.example/x"}, " http://a.example:80/x"),
    ({"$url": "ws://a.example/"}, "ws://a.example:80/"),
    ({"$url": "wss://a.example/"}, "wss://a.example:443/"),
    ({"$url": "ftp://a.example/"}, "ftp://a.example:21/"),
    ({"$url": "https://a.example/~x"}, "https://a.example/%7Ex"),
    ({"$text": None, "min_length": 3}, "abc"),
    ({"$text": None, "max_length": 3}, "abc"),
    ({"$regex": "x*"}, "x" * 100_000),
    ({"$regex": "Caf\u00e9+"}, "Cafe\u0301"),
    ({"$schema": True}, {"any": "thing"}),
]
WRONG: list[tuple[Any, Any]] = [
    ({"$number": -100, "tolerance": "1%"}, -101.5),
    ({"$number": 10, "tolerance": "1%"}, 10.5),
    ({"$time": T}, "2024-05-20T18:38:00." + "0" * 44 + "Z"),
    ({"$time": T}, 10**20),
    ({"$money": 5}, {"amount": "x", "currency": "EUR"}),
    ({"$money": 5, "currency": "EUR"}, {"amount": 5, "currency": 7}),
    ({"$money": 5}, "0" * 100 + "5"),
    ({"$money": 5}, " " + "0" * 99 + "5" + "9" * 50),
    ({"$money": -5}, "5"),
    ({"$money": 5, "currency": "EUR"}, "$5"),
    ({"$id": 9}, "9"),
    ({"$text": "a"}, "ba"),
    ({"$text": "a"}, "ab"),
    ({"$text": "a"}, "A"),
    ({"$path": "a\\b"}, "a/b"),
    ({"$path": "ab:\\c"}, "ab:/c"),
    ({"$url": "https://a.example/?x="}, "https://a.example/"),
    ({"$url": "https://a.example/#x"}, "https://a.example/#y"),
    ({"$url": "https://a.example/"}, "https://eve@a.example/"),
    ({"$url": "https://a.example/"}, "https://a.example:8443/"),
    ({"$url": "https://a.example/"}, "a.example"),
    ({"$text": None, "max_length": 0}, "a"),
    ({"$text": None, "min_length": 1, "max_length": 3}, ""),
    ({"$regex": "x*"}, "x" * 100_001),
    ({"$schema": False}, 1),
]


@pytest.mark.parametrize(("expected", "actual"), RIGHT, ids=range(len(RIGHT)))
def test_the_last_that_is_right(expected: Any, actual: Any) -> None:
    assert answer(expected, actual) == "right"


@pytest.mark.parametrize(("expected", "actual"), WRONG, ids=range(len(WRONG)))
def test_the_first_that_is_wrong(expected: Any, actual: Any) -> None:
    assert answer(expected, actual) == "wrong"


DOLLARS = "ARS/AUD/CAD/CLP/COP/HKD/MXN/NZD/SGD/TWD/USD"
SAID: list[tuple[Any, Any, str]] = [
    ({"$range": {"min": 1}}, "0", "is '0' (str), expected a number"),
    ({"$time": T}, 10**20, f"is {10**20}, expected a time"),
    ({"$time": T}, "9" * 20, f"is '{'9' * 20}', expected a time"),
    ({"$time": T}, True, "is True, expected a time"),
    ({"$time": T}, "soon", "is 'soon', expected a time"),
    (
        {"$time": T},
        "2024-05-20T18:38:00",
        "is without a zone; give one: {$time: ..., zone: ...}",
    ),
    (
        {"$time": "2024-05-20T18:38:00"},
        T,
        "is compared with a time without a zone; give one: {$time: ..., zone: ...}",
    ),
    (
        {"$time": T, "zone": "Europe/Berlin"},
        "2024-10-27T02:30:00",
        "is 2024-10-27T02:30:00, which Europe/Berlin has twice or never",
    ),
    ({"$date": "2024-05-20"}, T, f"is '{T}', whose day depends on the zone; give one"),
    ({"$date": "2024-05-20"}, 5.5e30, "is 5.5e+30, expected a time"),
    ({"$money": "$5"}, 5, f"carries no currency, expected {DOLLARS}"),
    ({"$money": 5, "currency": "EUR"}, "$5", f"is in {DOLLARS}, expected EUR"),
    ({"$money": 5}, "five", "is 'five', expected an amount of money"),
    ({"$money": 5}, "1,234", "is '1,234', which is no amount that all would read alike"),
    (
        {"$query": "restaurants", "min": 0.9},
        "restaurant",
        "is 'restaurant', similarity 0.87 by words_and_trigrams to 'restaurants',"
        " expected at least 0.9",
    ),
    ({"$query": "a"}, 7, "is 7 (int), expected a query"),
    (
        {"$id": "o_9"},
        "O_9",
        "is 'O_9', expected 'o_9': only letter case, spaces or Unicode form differ",
    ),
    (
        {"$id": "o_9", "display": ["A-7", "B-7"]},
        "B-7",
        "is 'B-7', the display id of what is called 'o_9'",
    ),
    ({"$id": 9}, "9", "is '9' (str), expected 9 (int)"),
    ({"$url": "https://a.example"}, "//a.example/", "is '//a.example/', expected a URL"),
    ({"$path": "/a"}, 5, "is 5 (int), expected a path"),
    ({"$url": "https://a.example"}, "no", "is 'no', expected a URL"),
    ({"$text": "a"}, 5, "is 5 (int), expected a text"),
    ({"$text": None, "min_length": 3}, "ab", "has 2 characters, expected at least 3"),
    (
        {"$text": None, "max_length": 1},
        "ab",
        "has 2 characters, expected at least 0 and at most 1",
    ),
    ({"$regex": "a"}, 5, "is 5 (int), expected a text"),
    ({"$ref": "order.result.id"}, 5, "refers to order.result.id, which is not known here"),
    (
        {"$schema": {"items": {"type": "integer"}}},
        [1, "2"],
        "breaks its schema: '2' is not of type 'integer'",
    ),
    (
        {"$schema": {"$ref": "https://example.com/no"}},
        1,
        "is compared with a schema that refers to what is not in it",
    ),
]


@pytest.mark.parametrize(("expected", "actual", "why"), SAID, ids=range(len(SAID)))
def test_what_is_said(expected: Any, actual: Any, why: str) -> None:
    assert said(expected, actual) == why


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"$number": 5, "tolerance": True}, "$number: tolerance: True is no tolerance; expected a number or a text like '1%'"),
        ({"$number": 5, "tolerance": "much"}, "$number: tolerance: 'much' is no tolerance; expected a number or a text like '1%'"),
        ({"$number": 5, "tolerance": "inf"}, "$number: tolerance: 'inf' is no tolerance; expected a number or a text like '1%'"),
        ({"$range": [1]}, "$range: expected an object with min, max or both"),
        ({"$range": {"min": 1, "step": 2}}, "$range: expected an object with min, max or both"),
        ({"$query": []}, "$query: expected a query, or a list of them, with words in it"),
        ({"$query": ["a", 5]}, "$query: expected a query, or a list of them, with words in it"),
        ({"$query": "a", "method": "m"}, "$query: unknown method 'm'; known: words_and_trigrams"),
        ({"$id": True}, "$id: expected an id: a text or a whole number"),
        ({"$id": 1.5}, "$id: expected an id: a text or a whole number"),
        ({"$path": 5}, "$path: expected a path as text"),
        ({"$url": "https:///x"}, "$url: expected a URL with a scheme and a host"),
        ({"$url": ""}, "$url: expected a URL as text"),
        ({"$text": 5}, "$text: expected a text, or null to look at the length alone"),
        ({"$text": None}, "$text: says nothing: give a text, min_length or max_length"),
        ({"$money": 5, "currency": "EURO"}, "$money: currency: expected a code of ISO 4217, such as EUR"),
        ({"$money": 5, "minor_units": True}, "$money: minor_units needs the currency, which says how many there are"),
        ({"$date": "2024-5-20"}, "$date: expected a day, such as 2024-05-20"),
        ({"$time": T, "tolerance": -1}, "$time: the tolerance is a number of seconds, at least 0"),
        ({"$time": T, "zone": "Mars"}, "$time: zone: 'Mars' is no time zone, such as Europe/Berlin"),
        ({"$time": "soon"}, "$time: expected a time: it is 'soon', expected a time"),
        ({"$ref": 5}, "$ref: expected ID.result, followed by a path: order.result.items[0].id"),
        ({"$schema": 5}, "$schema: expected a JSON Schema"),
        ({"$id": "o_9", "display": [7]}, "$id: display.0: Input should be a valid string"),
        ({"$number": 5, "step": 1}, "$number: unknown option 'step'; it has tolerance"),
        ({"$money": 5, "unit": 1}, "$money: unknown option 'unit'; it has currency, currency_key, minor_units, tolerance"),
        ({"$absent": True, "wild": 1}, "$absent: unknown option 'wild'; it has none"),
        ({"$mony": 5}, "unknown comparator $mony; did you mean $money? The value itself is {$equal: ...}"),
    ],
    ids=str,
)  # fmt: skip
def test_what_a_comparator_does_not_take(bad: Any, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        Arguments({"x": bad}, exact=True)
    assert caught.value.problem == message


def test_the_names_of_ours_are_these() -> None:
    listed = (
        "absent any date enum equal id list money number optional path pii query range ref regex"
        " schema text time url"
    )
    assert builtin_names() == tuple(listed.split())
    assert list(names()) == sorted({*names()})
    with pytest.raises(ComparatorError) as caught:
        make("qqqq", 1, {})
    assert str(caught.value) == (
        f"unknown comparator $qqqq; known are {', '.join(names())}."
        " The value itself is {$equal: ...}"
    )
    with pytest.raises(ComparatorError) as caught:
        register("list", Number)
    assert str(caught.value) == ("$list is a comparator of toolverdict's own; take another name")


def test_a_tolerance_of_nothing_is_no_mistake() -> None:
    assert answer({"$time": T, "tolerance": 0}, T) == "right"


def test_a_value_that_differs_from_an_earlier_result_names_place_and_source() -> None:
    plan = Arguments({"x": {"$ref": "order.result"}}, exact=True)
    earlier = Context(resolve=lambda text: {"id": "o_9", "lines": [1]})
    assert plan.compare({"x": {"id": "o_9", "lines": [1]}}, earlier).wholly_right
    (found,) = plan.compare({"x": {"id": "o_9", "lines": [2]}}, earlier).mismatches
    assert found.key_path == "x.lines[0]"
    assert found.why == "is 2, expected 1, from order.result"


def test_a_broken_rule_of_a_schema_names_its_place() -> None:
    plan = Arguments({"x": {"$schema": {"items": {"type": "integer"}}}}, exact=True)
    (found,) = plan.compare({"x": [1, "2"]}).mismatches
    assert found.key_path == "x[1]"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2024-05-20T18:38Z", True),
        ("2024-05-20t18:38z", True),
        ("2024-05-20 18:38:00+02:00", True),
        ("2024-05-20T18:38:00." + "0" * 43 + "Z", True),
        ("2024-05-20T18:38:00." + "0" * 44 + "Z", False),
        ("2024-05-20T18:38:00", False),
        ("2024-05-20", False),
        ("20240520T183800Z", False),
        ("2024-05-20x18:38:00Z", False),
        ("next-05-20T18:38:00Z", False),
        ("", False),
    ],
)
def test_what_is_taken_for_an_instant(text: str, found: bool) -> None:
    assert is_timestamp(text) is found


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("a.result", ("a", ())),
        ("a.result.b", ("a", ("b",))),
        ("a.result[0]", ("a", (0,))),
        ('a.result.items[12]["b.c"].d', ("a", ("items", 12, "b.c", "d"))),
    ],
)
def test_a_reference_is_a_call_and_a_path(text: str, parsed: Any) -> None:
    assert parse_ref(text) == parsed


@pytest.mark.parametrize("text", ["a", "a.results", ".result", "a.result.", "a.result[x]", "a.result[-1]", "a.result]", 5])  # fmt: skip
def test_what_is_no_reference_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"^expected ID\.result, followed by a path"):
        parse_ref(text)


def test_a_path_is_followed_as_far_as_it_goes() -> None:
    result = {"items": [{"id": "o_9"}, None]}
    assert follow(result, (), "r") is result
    assert follow(result, ("items", 0, "id"), "r") == "o_9"
    assert follow(result, ("items", 1), "r") is None
    for path in (("items", 2), ("items", "id"), (0,), ("item",), ("items", 1, "id")):
        found: Any = follow(result, path, "order.result.x")
        assert found.undecided
        assert found.why == "refers to order.result.x, but the result has nothing there"
