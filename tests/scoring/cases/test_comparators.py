"""Each comparator: what is right, what is wrong and why, and what cannot be told."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from toolverdict.scoring.cases.arguments import Arguments, Comparison
from toolverdict.scoring.cases.comparators import queries, registry
from toolverdict.scoring.cases.comparators.base import Context, Unlike
from toolverdict.scoring.cases.comparators.registry import ComparatorError, names, register
from toolverdict.scoring.cases.examples import arguments_for
from toolverdict.scoring.cases.model import Case, Expectation
from toolverdict.scoring.cases.plans import Mismatch, PlanError

RIGHT, WRONG, UNDECIDED = "right", "wrong", "undecided"


def plain(value: Any) -> str:
    """A test's name that is short, and stays the same where it is escaped once more."""
    return str(value).encode("ascii", "replace").decode().replace("\\", "/")[:80]


def compared(
    expected: Any, actual: Any, context: Context | None = None, **beside: Any
) -> Comparison:
    plan = Arguments({"x": expected}, exact=False)
    return plan.compare({"x": actual, **beside}, context or Context())


def answer(comparison: Comparison) -> str:
    if comparison.mismatches:
        return WRONG
    return UNDECIDED if comparison.undecided else RIGHT


def mismatch(expected: Any, actual: Any, context: Context | None = None, **beside: Any) -> Mismatch:
    comparison = compared(expected, actual, context, **beside)
    (found,) = comparison.mismatches or comparison.undecided
    return found


EUR = {"currency": "EUR"}


@pytest.mark.parametrize(
    ("expected", "actual", "right"),
    [
        ({"$money": 120}, 120.0, RIGHT),
        ({"$money": 0.3}, 0.1 + 0.2, RIGHT),
        ({"$money": 120}, 120.01, WRONG),
        ({"$money": 120, "tolerance": 0.01}, 120.01, RIGHT),
        ({"$money": 120, "tolerance": 0.01}, 120.02, WRONG),
        ({"$money": 100, "tolerance": "1%"}, 101, RIGHT),
        ({"$money": 100, "tolerance": "1%"}, 101.1, WRONG),
        ({"$money": 5}, -5, WRONG),
        ({"$money": 5}, 25, WRONG),
        ({"$money": 1000}, "1e3", RIGHT),
        ({"$money": 460}, "\\$460.00", RIGHT),
        ({"$money": 1234.5, **{"currency": "USD"}}, "US$1,234.50", RIGHT),
        ({"$money": 1234.5, "currency": "USD"}, "$1,234.50", RIGHT),
        ({"$money": 1234.5, "currency": "EUR"}, "1.234,50 €", RIGHT),
        ({"$money": 1234.5, "currency": "EUR"}, "1.234,50 EUR", RIGHT),
        ({"$money": 12}, "\uff11\uff12", RIGHT),
        ({"$money": 1234}, "1\u00a0234", RIGHT),
        ({"$money": 1234}, "1,234", UNDECIDED),
        ({"$money": 1234}, "1,23,4", UNDECIDED),
        ({"$money": 1.234, "currency": "KWD"}, "1.234 KWD", RIGHT),
        ({"$money": 1234567.89}, "1,234,567.89", RIGHT),
        ({"$money": 5}, "about 5", WRONG),
        ({"$money": 5}, True, WRONG),
        ({"$money": 5}, None, WRONG),
        ({"$money": 120, **EUR}, "120 USD", WRONG),
        ({"$money": 120, **EUR}, {"amount": 120, "currency": "EUR"}, RIGHT),
        ({"$money": 120, **EUR}, {"amount": 120, "currency": "USD"}, WRONG),
        ({"$money": 120, **EUR}, 120, WRONG),
        ({"$money": "120 EUR"}, "120.00 EUR", RIGHT),
        ({"$money": "120 EUR"}, "120 GBP", WRONG),
        (
            {"$money": 20, "currency": "USD", "minor_units": True},
            {"amount": 2000, "currency": "USD"},
            RIGHT,
        ),
        ({"$money": 2000, "currency": "JPY", "minor_units": True}, "2000 JPY", RIGHT),
        ({"$money": 2000, "currency": "JPY", "minor_units": True}, "200000 JPY", WRONG),
        ({"$money": 1.234, "currency": "KWD", "minor_units": True}, "1234 KWD", RIGHT),
    ],
    ids=plain,
)
def test_money(expected: Any, actual: Any, right: str) -> None:
    """S16, B149, B151, B152: decimal, one currency, and never a guess."""
    assert answer(compared(expected, actual)) == right


def test_the_currency_may_have_a_key_of_its_own() -> None:
    wanted = {"$money": 120, **EUR}
    assert answer(compared(wanted, 120, currency="EUR")) == RIGHT
    found = mismatch(wanted, 120, currency="USD")
    assert (found.code, found.comparator) == ("currency_differs", "money")
    assert found.why == "is in USD, expected EUR"
    other = {"$money": 120, "currency": "EUR", "currency_key": "unit"}
    assert answer(compared(other, 120, unit="EUR")) == RIGHT


T = "2024-05-20T18:38:00Z"


@pytest.mark.parametrize(
    ("expected", "actual", "right"),
    [
        ({"$time": T}, "2024-05-20T18:38:00.000Z", RIGHT),
        ({"$time": T}, "2024-05-20T18:38:00+00:00", RIGHT),
        ({"$time": T}, "2024-05-20T14:38:00-04:00", RIGHT),
        ({"$time": T}, "2024-05-20t18:38z", RIGHT),
        ({"$time": T}, 1716230280, RIGHT),
        ({"$time": T}, 1716230280000, RIGHT),
        ({"$time": T}, "1716230280", RIGHT),
        ({"$time": T}, "2024-05-20T18:38:01Z", WRONG),
        ({"$time": T, "tolerance": 1}, "2024-05-20T18:38:01Z", RIGHT),
        ({"$time": T}, "2024-05-20T18:38:00", UNDECIDED),
        ({"$time": T, "zone": "Europe/Berlin"}, "2024-05-20T20:38:00", RIGHT),
        ({"$time": T, "zone": "Europe/Berlin"}, "2024-05-20T18:38:00", WRONG),
        ({"$time": "2024-05-20T18:38:00"}, "2024-05-20T18:38", RIGHT),
        ({"$time": T, "zone": "Europe/Berlin"}, "2024-10-27T02:30:00", UNDECIDED),
        ({"$time": T, "zone": "Europe/Berlin"}, "2024-03-31T02:30:00", UNDECIDED),
        ({"$time": T}, "2024-05-20", WRONG),
        ({"$time": T}, "tomorrow", WRONG),
        ({"$time": T}, 10**30, WRONG),
        ({"$time": T}, True, WRONG),
        ({"$date": "2024-05-20"}, "2024-05-20", RIGHT),
        ({"$date": "2024-05-20"}, "2024-05-21", WRONG),
        ({"$date": "2024-11-02"}, "2024-1-12", WRONG),
        ({"$date": "2024-05-20", "zone": "Europe/Berlin"}, "2024-05-19T22:30:00Z", RIGHT),
        ({"$date": "2024-05-19", "zone": "Europe/Berlin"}, "2024-05-19T22:30:00Z", WRONG),
        ({"$date": "2024-05-20"}, "2024-05-19T22:30:00Z", UNDECIDED),
        ({"$date": "2024-05-20"}, "2024-05-20T23:59:59", RIGHT),
    ],
    ids=plain,
)
def test_times_and_days(expected: Any, actual: Any, right: str) -> None:
    """S17, B154: instants, zones, clock changes and the bounds of a day."""
    assert answer(compared(expected, actual)) == right


@pytest.mark.parametrize(
    ("expected", "actual", "right"),
    [
        ({"$number": 3}, 3.0, RIGHT),
        ({"$number": 3.14}, 33.14, WRONG),
        ({"$number": 3}, "3", WRONG),
        ({"$number": 3}, True, WRONG),
        ({"$number": 10, "tolerance": 0.5}, 10.5, RIGHT),
        ({"$number": 10, "tolerance": 0.5}, 10.6, WRONG),
        ({"$range": {"min": 1, "max": 5}}, 5, RIGHT),
        ({"$range": {"min": 1, "max": 5}}, 5.1, WRONG),
        ({"$range": {"min": 1}}, 0, WRONG),
        ({"$range": {"max": 1}}, "0", WRONG),
        ({"$enum": ["damaged", "late"]}, "late", RIGHT),
        ({"$enum": ["damaged", "late"]}, "because it was late", WRONG),
        ({"$text": "Café"}, "Cafe\u0301", RIGHT),
        ({"$text": "Straße", "ignore_case": True}, "STRASSE", RIGHT),
        ({"$text": "a"}, "a ", WRONG),
        ({"$text": "order A", "match": "contains"}, "my order A-7", RIGHT),
        ({"$text": "order", "match": "starts"}, "my order", WRONG),
        ({"$text": "order", "match": "ends"}, "my order", RIGHT),
        ({"$text": None, "min_length": 3}, "ab", WRONG),
        ({"$text": None, "max_length": 3}, "abcd", WRONG),
        ({"$text": None, "max_length": 0}, "", RIGHT),
        ({"$text": "a"}, 1, WRONG),
        ({"$regex": "ORD-[0-9]+"}, "ORD-10", RIGHT),
        ({"$regex": "ORD-[0-9]+"}, "see ORD-10", WRONG),
        ({"$regex": "ORD-[0-9]+", "match": "part"}, "see ORD-10", RIGHT),
        ({"$regex": ".*"}, "x" * 200_000, WRONG),
        ({"$path": "/a/b"}, "/a/./c/../b/", RIGHT),
        ({"$path": "/a/b"}, "//a/b", RIGHT),
        ({"$path": "/a/b"}, "/a/../b", WRONG),
        ({"$path": "C:\\a\\b"}, "C:/a/b", RIGHT),
        ({"$url": "https://Shop.example/a?x=1&y=2"}, "HTTPS://shop.example:443/a?y=2&x=1", RIGHT),
        ({"$url": "https://shop.example/a"}, "http://shop.example/a", WRONG),
        ({"$url": "https://shop.example/a"}, "https://shop.example.evil/a", WRONG),
        ({"$url": "https://shop.example/a"}, "https://shop.example/b", WRONG),
        ({"$url": "https://shop.example"}, "https://shop.example/", RIGHT),
        ({"$url": "https://shop.example"}, "https://[", WRONG),
        ({"$any": True}, None, RIGHT),
        ({"$absent": True}, None, WRONG),
        ({"$equal": {"$money": 1}}, {"$money": 1}, RIGHT),
        ({"$equal": {"a": [1]}}, {"a": [2]}, WRONG),
        ({"$schema": {"type": "array", "items": {"type": "integer"}}}, [1, 2], RIGHT),
        ({"$schema": {"type": "array", "items": {"type": "integer"}}}, [1, "2"], WRONG),
        ({"$schema": {"$ref": "https://example.com/no"}}, 1, UNDECIDED),
        ({"$list": [1, 2]}, [1, 2], RIGHT),
        ({"$list": [1, 2]}, [2, 1], WRONG),
        ({"$list": [1, 2], "order": "any"}, [2, 1], RIGHT),
        ({"$list": [1, 1], "order": "any"}, [1, 2], WRONG),
        ({"$list": [1, 1], "order": "any", "match": "at_least"}, [1, 2], WRONG),
        ({"$list": [1, 2], "match": "at_least"}, [0, 1, 5, 2], RIGHT),
        ({"$list": [1, 2], "match": "at_least"}, [2, 1], WRONG),
        ({"$list": [1, 2], "order": "any", "match": "at_least"}, [2, 3, 1], RIGHT),
        ({"$list": [1, 2, 3], "match": "at_most"}, [1, 3], RIGHT),
        ({"$list": [1, 2, 3], "match": "at_most"}, [3, 1], WRONG),
        ({"$list": [1, 2, 3], "order": "any", "match": "at_most"}, [3, 1], RIGHT),
        ({"$list": [1, 2, 3], "order": "any", "match": "at_most"}, [4], WRONG),
        ({"$list": [{"$range": {"min": 1, "max": 9}}, 1], "order": "any"}, [1, 5], RIGHT),
        ({"$list": [{"$range": {"min": 1, "max": 9}}, 1], "order": "any"}, [1, 1], RIGHT),
        ({"$list": [{"$time": T}], "order": "any"}, ["2024-05-20T18:38:00"], UNDECIDED),
        ({"$list": [1]}, "1", WRONG),
        ({"a": {"$range": {"min": 1}}, "b": 2}, {"a": 3, "b": 2}, RIGHT),
        ({"a": {"$range": {"min": 1}}, "b": 2}, {"a": 3, "b": 2, "c": 1}, WRONG),
        ({"a": {"$absent": True}, "b": {"$any": True}}, {"b": 1}, RIGHT),
        ({"a": {"$any": True}}, {}, WRONG),
        ([{"$any": True}, 2], [7, 2], RIGHT),
        ({"$int": "12345678901234567890123"}, {"$int": "12345678901234567890123"}, RIGHT),
        (12345678901234567, {"$int": "12345678901234567"}, RIGHT),
        (12345678901234567, {"$int": "12345678901234568"}, WRONG),
    ],
    ids=plain,
)
def test_other_kinds(expected: Any, actual: Any, right: str) -> None:
    assert answer(compared(expected, actual)) == right


def test_an_argument_that_must_not_be_there() -> None:
    plan = Arguments({"note": {"$absent": True}}, exact=True)
    assert plan.compare({}).wholly_right
    assert not plan.compare({"note": None}).wholly_right


def test_a_display_id_is_named_as_such() -> None:
    """S15: said by the case, or seen beside the id in an earlier result."""
    found = mismatch({"$id": "ord_9", "display": "A123"}, "A123")
    assert (found.code, found.comparator) == ("display_id_used", "id")
    results = Context(earlier=lambda: [{"orders": [{"id": "ord_9", "number": "A123"}]}])
    assert mismatch({"$id": "ord_9"}, "A123", results).code == "display_id_used"
    assert mismatch({"$id": "ord_9"}, "A124", results).code is None


@pytest.mark.parametrize("actual", ["ord_90", "ORD_9", " ord_9", "ord\uff3f9", 9])
def test_an_id_is_exact(actual: Any) -> None:
    """B155: not even the Unicode form may differ, and then the two are shown as they are."""
    assert answer(compared({"$id": "ord_9"}, actual)) == WRONG


def test_ids_that_differ_only_in_form_say_so() -> None:
    assert "only letter case, spaces or Unicode form" in mismatch({"$id": "ord_9"}, "ORD_9").why


def test_a_near_miss_of_an_enum_says_so() -> None:
    """S18."""
    found = mismatch({"$enum": ["not_received"]}, "Not received")
    assert found.code == "near_miss"
    assert "nearly 'not_received'" in found.why


@pytest.mark.parametrize(
    ("expected", "actual", "right"),
    [
        ("cheap flights to Rome", "flights to rome, cheap", RIGHT),
        ("cheap flights to Rome", "Cheap flights to Rome!", RIGHT),
        ("restaurants near me", "restaurant near me", RIGHT),
        ("cheap flights to Rome", "best pasta recipe", WRONG),
        ("cheap flights to Rome", "", WRONG),
        ("cheap flights to Rome", 7, WRONG),
    ],
)
def test_queries_are_compared_by_what_they_ask(expected: str, actual: Any, right: str) -> None:
    """S19."""
    assert answer(compared({"$query": expected}, actual)) == right


def test_a_query_says_how_alike_it_is_and_by_what_method() -> None:
    found = mismatch({"$query": "cheap flights to Rome", "min": 0.9}, "flights Rome")
    assert "similarity 0.74 by words_and_trigrams" in found.why
    assert (
        answer(compared({"$query": ["rome flights", "flights rome cheap"]}, "rome flights"))
        == RIGHT
    )


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("write to dana@example.com", "email"),
        ("call +49 170 1234567", "phone"),
        ("card 4111 1111 1111 1111", "card"),
        ("IBAN DE89 3704 0044 0532 0130 00", "iban"),
        ("ssn 123-45-6789", "us_ssn"),
        ("from 203.0.113.9", "ip"),
        ({"a": ["x", {"b": "dana@example.com"}]}, "email"),
        ({"dana@example.com": 1}, "email"),
    ],
    ids=plain,
)
def test_personal_data_is_named_by_kind_and_never_repeated(text: Any, kinds: str) -> None:
    """S20."""
    found = mismatch({"$pii": True}, text)
    assert (found.code, found.actual) == ("pii", None)
    assert found.why == f"holds personal data: {kinds}"


@pytest.mark.parametrize(
    "text",
    [
        "order 4111 1111 1111 1112",
        "DE89 3704 0044 0532 0130 02",
        "127.0.0.1",
        "A-77",
        "version 1.2.3",
        5,
        None,
    ],
    ids=plain,
)
def test_what_only_looks_like_personal_data_is_not(text: Any) -> None:
    assert answer(compared({"$pii": True}, text)) == RIGHT


def test_only_the_named_kinds_of_personal_data_count() -> None:
    assert answer(compared({"$pii": ["card"]}, "dana@example.com")) == RIGHT
    assert Arguments({"note": {"$pii": True}}, exact=False).compare({}).wholly_right


def test_a_comparator_says_itself_and_the_place() -> None:
    plan = Arguments({"items": [{"price": {"$money": 5}}]}, exact=False)
    (found,) = plan.compare({"items": [{"price": 6}]}).mismatches
    assert (found.key_path, found.comparator, found.chosen) == ("items[0].price", "money", "case")
    assert (found.expected, found.actual) == (5, 6)


@pytest.mark.parametrize(
    ("expected", "actual", "right", "comparator"),
    [
        ({"order_id": "o_9"}, {"order_id": "O_9"}, WRONG, "id"),
        ({"at": T}, {"at": "2024-05-20T20:38:00+02:00"}, RIGHT, None),
        ({"at": T}, {"at": "2024-05-20T18:38:01Z"}, WRONG, "time"),
        ({"day": "2024-05-20"}, {"day": "2024-05-20T00:00:00Z"}, WRONG, "equal"),
        ({"n": 1}, {"n": 1.0}, RIGHT, None),
    ],
)
def test_what_is_inferred_is_said(
    expected: Any, actual: Any, right: str, comparator: str | None
) -> None:
    comparison = Arguments(expected, exact=False).compare(actual)
    assert answer(comparison) == right
    assert [m.comparator for m in comparison.mismatches] == ([comparator] if comparator else [])
    assert all(m.chosen == "inferred" for m in comparison.mismatches)


SCHEMA = {
    "properties": {
        "amount": {"type": "number", "x-comparator": {"money": {"tolerance": 0.01}}},
        "reason": {"enum": ["late", "damaged"]},
        "at": {"type": "string", "format": "date-time"},
        "count": {"type": "integer"},
        "page": {"type": "integer", "default": 1},
        "note": {"default": None},
        "q": {"x-comparator": "query"},
    }
}


@pytest.mark.parametrize(
    ("expected", "actual", "right"),
    [
        ({"amount": 5}, {"amount": "5.01"}, RIGHT),
        ({"amount": 5}, {"amount": 5.02}, WRONG),
        ({"reason": "late"}, {"reason": "Late"}, WRONG),
        ({"at": T}, {"at": 1716230280}, RIGHT),
        ({"q": "flights to rome"}, {"q": "Rome flights to"}, RIGHT),
        ({"count": 5}, {"count": "5"}, RIGHT),
        ({"count": 5}, {"count": "6"}, WRONG),
        ({"count": 5}, {"count": "five"}, WRONG),
        ({}, {"page": 1}, RIGHT),
        ({}, {"page": 2}, WRONG),
        ({}, {"delete_db": True}, WRONG),
        ({"page": 1}, {}, RIGHT),
        ({"page": 2}, {}, WRONG),
        ({"note": None}, {}, RIGHT),
    ],
    ids=plain,
)
def test_the_catalogue_decides_where_the_case_does_not(
    expected: Any, actual: Any, right: str
) -> None:
    """B146 among them: a default that is spelt out is no extra key."""
    comparison = Arguments(expected, exact=True, schema=SCHEMA).compare(actual)
    assert answer(comparison) == right


def test_a_number_in_text_is_reported_where_the_schema_lets_it_pass() -> None:
    plan = Arguments({"count": 5}, exact=True, schema=SCHEMA)
    assert plan.compare({"count": "5"}).coerced == ("count",)
    assert plan.compare({"count": 5}).coerced == ()


def test_without_a_catalogue_a_missing_key_is_not_null() -> None:
    assert not Arguments({"note": None}, exact=True).compare({}).wholly_right


@pytest.mark.parametrize("quoted", ['{"a": 1}', '"{\\"a\\": 1}"'])
def test_arguments_written_as_text_are_read(quoted: str) -> None:
    """B143."""
    assert Arguments({"a": 1}, exact=True).compare(quoted).wholly_right


def test_an_undecided_key_leaves_the_others_decided() -> None:
    plan = Arguments({"at": {"$time": T}, "n": 1}, exact=True)
    doubtful = plan.compare({"at": "2024-05-20T18:38:00", "n": 1})
    assert (doubtful.score, doubtful.wholly_right, doubtful.decided) == (1.0, False, False)
    wrong = plan.compare({"at": "2024-05-20T18:38:00", "n": 2})
    assert (wrong.score, wrong.wholly_right, wrong.decided) == (0.0, False, True)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"$mony": 5}, "unknown comparator $mony; did you mean $money?"),
        ({"$gt": 5}, "The value itself is {$equal: ...}"),
        ({"$money": 5, "$range": {}}, "names two comparators"),
        ({"$money": 5, "curency": "EUR"}, "$money: unknown option 'curency'; it has currency"),
        ({"$money": 5, "currency": "euro"}, "expected a code of ISO 4217"),
        ({"$money": 5, "minor_units": True}, "needs the currency"),
        ({"$money": "1,234"}, "can be read in one way only"),
        ({"$money": 5, "tolerance": -1}, "is no tolerance"),
        ({"$time": "soon"}, "expected a time"),
        ({"$time": T, "zone": "Berlin"}, "'Berlin' is no time zone"),
        ({"$time": T, "tolerance": -1}, "at least 0"),
        ({"$date": T}, "expected a day"),
        ({"$enum": "late"}, "expected a list"),
        ({"$range": {}}, "expected an object with min, max or both"),
        ({"$range": {"min": 5, "max": 1}}, "nothing is in the range"),
        ({"$range": {"min": "a"}}, "min and max are numbers"),
        ({"$number": "5"}, "expected a number"),
        ({"$regex": "("}, "is no regular expression"),
        ({"$regex": 5}, "expected a regular expression as text"),
        ({"$text": None}, "says nothing"),
        ({"$text": 5}, "expected a text"),
        ({"$query": "!?"}, "with words in it"),
        ({"$query": "a", "method": "telepathy"}, "unknown method 'telepathy'"),
        ({"$url": "shop"}, "with a scheme and a host"),
        ({"$path": ""}, "expected a path as text"),
        ({"$id": ""}, "expected an id"),
        ({"$schema": {"type": "strong"}}, "is no JSON Schema"),
        ({"$schema": []}, "expected a JSON Schema"),
        ({"$ref": "order.id"}, "expected ID.result"),
        ({"$pii": ["soul"]}, "expected true, or a list of email"),
        ({"$list": 5}, "expected a list after $list"),
        ({"$list": [], "order": "up"}, "order is listed or any"),
        ({"$list": [], "match": "some"}, "match is exactly, at_least or at_most"),
        ({"$list": [], "sorted": True}, "unknown option 'sorted'"),
        ({"$list": [{"$mony": 1}]}, "did you mean $money"),
        ({"$optional": 1, "min": 2}, "$optional: unknown option 'min'; it has none"),
        ({"$optional": {"$mony": 1}}, "did you mean $money"),
    ],
    ids=plain,
)
def test_a_comparator_that_cannot_be_made_says_what_is_wrong(bad: Any, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        Arguments({"x": bad}, exact=True)
    assert message in caught.value.problem
    assert caught.value.path[0] == "x"


def test_nesting_has_an_end() -> None:
    deep: Any = {"$any": True}
    for _ in range(100):
        deep = [deep]
    with pytest.raises(PlanError, match="nested deeper"):
        Arguments({"x": deep}, exact=True)


class Even:
    """A comparator of a user's own."""

    kind = "even"
    accepts_missing = False

    def __init__(self, value: Any, strict: bool = False) -> None:
        self.expected = value
        self.strict = strict

    def compare(self, actual: Any, context: Context) -> Unlike | None:
        return None if actual % 2 == 0 else Unlike("is odd")


def test_users_bring_comparators_of_their_own() -> None:
    register("even", Even)
    assert "even" in names()
    assert answer(compared({"$even": True}, 4)) == RIGHT
    found = mismatch({"$even": True, "strict": True}, 5)
    assert (found.comparator, found.why) == ("even", "is odd")
    with pytest.raises(PlanError, match=r"\$even: .*unexpected keyword"):
        Arguments({"x": {"$even": True, "wild": 1}}, exact=True)
    with pytest.raises(ComparatorError, match="take another name"):
        register("money", Even)
    assert "raised TypeError" in mismatch({"$even": True}, "a").why
    assert answer(compared({"$even": True}, "a")) == UNDECIDED
    register("odd", lambda value: Even(object()))
    with pytest.raises(PlanError, match="what it expects is not JSON"):
        Arguments({"x": {"$odd": True}}, exact=True)
    register("broken", lambda value: 5)  # type: ignore[arg-type, return-value]
    with pytest.raises(PlanError, match="made a int, no comparator"):
        Arguments({"x": {"$broken": True}}, exact=True)


def test_installed_packages_bring_comparators_and_query_methods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By entry points, as a wheel declares them."""
    (tmp_path / "their_kinds.py").write_text(
        "from toolverdict.scoring.cases.comparators.presence import Equal as Same\n"
        "def alike(expected, actual):\n"
        "    answers = {'zero': lambda: 1 / 0, 'more': lambda: 1.5}\n"
        "    return answers.get(actual, lambda: float(len(expected) == len(actual)))()\n"
    )
    declared = tmp_path / "their_kinds-1.dist-info"
    declared.mkdir()
    (declared / "METADATA").write_text("Metadata-Version: 2.1\nName: their-kinds\nVersion: 1\n")
    (declared / "entry_points.txt").write_text(
        "[toolverdict.comparators]\nsame = their_kinds:Same\ngone = their_kinds:Gone\n"
        "[toolverdict.query_methods]\nlengths = their_kinds:alike\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry._installed.cache_clear()
    queries._methods.cache_clear()
    try:
        assert answer(compared({"$same": 1}, 1.0)) == RIGHT
        assert answer(compared({"$query": "abc", "method": "lengths"}, "xyz")) == RIGHT
        assert answer(compared({"$query": "abc", "method": "lengths"}, "wxyz")) == WRONG
        for strange, why in (
            ("zero", "lengths raised ZeroDivisionError"),
            ("more", "lengths gave 1.5, which is no share"),
        ):
            found = mismatch({"$query": "abc", "method": "lengths"}, strange)
            assert (
                found.why,
                answer(compared({"$query": "abc", "method": "lengths"}, strange)),
            ) == (
                f"cannot be compared: {why}",
                UNDECIDED,
            )
        with pytest.raises(PlanError, match=r"\$gone: their_kinds:Gone cannot be loaded"):
            Arguments({"x": {"$gone": 1}}, exact=True)
    finally:
        registry._installed.cache_clear()
        queries._methods.cache_clear()


def test_plans_cross_processes() -> None:
    case = Case(
        id="c", expected=(Expectation(tool="f", arguments={"a": {"$money": 5}, "b": [1, "x"]}),)
    )
    again = pickle.loads(pickle.dumps(case))
    assert again == case
    plan = again.expected[0].plan
    assert plan.compare({"a": "5.00", "b": [1, "x"]}).wholly_right


@pytest.mark.parametrize(
    ("expected", "example"),
    [
        ({"$enum": ["a", "b"]}, "a"),
        ({"$range": {"min": 3}}, 3),
        ({"$money": 5, "currency": "EUR"}, {"amount": 5, "currency": "EUR"}),
        ({"$list": [{"$enum": ["a"]}, 2]}, ["a", 2]),
        ({"k": {"$time": T}}, {"k": T}),
        ({"$regex": "x"}, "x"),
        ({"$ref": "a.result"}, "x"),
    ],
    ids=plain,
)
def test_an_example_is_taken_for_right_where_one_can_be_told(expected: Any, example: Any) -> None:
    expectation = Expectation(tool="f", arguments={"x": expected, "y": {"$absent": True}})
    assert arguments_for(expectation) == {"x": example}


OPTIONAL: list[tuple[Any, Any, str]] = [
    ({"$optional": 5}, {}, "right"),
    ({"$optional": 5}, {"x": 5}, "right"),
    ({"$optional": 5}, {"x": 6}, "wrong"),
    ({"$optional": 5}, {"x": None}, "wrong"),
    ({"$optional": {"$money": 5}}, {"x": "5.00"}, "right"),
    ({"$optional": {"$money": 5}}, {"x": "5.01"}, "wrong"),
    ({"$optional": {"$time": "2024-05-20T10:00:00Z"}}, {"x": "2024-05-20T10:00"}, "undecided"),
    ({"$optional": {"a": {"$optional": 1}, "b": 2}}, {"x": {"b": 2}}, "right"),
    ({"$optional": {"a": {"$optional": 1}, "b": 2}}, {"x": {"a": 3, "b": 2}}, "wrong"),
    ([{"$optional": 1}], {"x": [1]}, "right"),
]


@pytest.mark.parametrize(("expected", "actual", "right"), OPTIONAL, ids=plain)
def test_an_optional_argument_may_be_absent_but_not_wrong(
    expected: Any, actual: Any, right: str
) -> None:
    found = Arguments({"x": expected}, exact=True).compare(actual)
    answer = "undecided" if not found.decided else "right" if found.wholly_right else "wrong"
    assert answer == right


def test_what_may_be_absent_is_so_though_the_schema_has_a_default() -> None:
    schema = {"properties": {"x": {"default": 1}, "y": {"default": 1}}}
    for expected in ({"$optional": 5}, {"$absent": True}):
        plan = Arguments({"x": expected}, exact=True, schema=schema)
        assert plan.compare({}).wholly_right
    assert not Arguments({"x": 5}, exact=True, schema=schema).compare({}).wholly_right
    assert Arguments({"x": 1}, exact=True, schema=schema).compare({}).wholly_right


def test_an_optional_number_in_text_is_read_where_the_schema_says_number() -> None:
    schema = {"properties": {"x": {"type": "number"}}}
    plan = Arguments({"x": {"$optional": 5}}, exact=True, schema=schema)
    assert plan.compare({"x": "5"}).coerced == ("x",)
    assert plan.compare({"x": "6"}).coerced == ()
    assert plan.compare({}).coerced == ()


def test_the_similarity_of_a_right_query_is_recorded_with_its_method() -> None:
    expected = {
        "q": {"$query": "cheap flights to rome"},
        "more": {"list": [{"$query": "hotels"}, 1], "maybe": {"$optional": {"$query": "cars"}}},
        "n": {"$money": 5},
        "absent": {"$optional": {"$query": "trains"}},
    }
    actual = {
        "q": "flights to rome, cheap",
        "more": {"list": ["hotels", 1], "maybe": "rental of cars"},
        "n": 5,
    }
    found = list(Arguments(expected, exact=True).measured(json.dumps(actual)))
    assert [(one.key_path, one.comparator, one.method) for one in found] == [
        ("q", "query", "words_and_trigrams"),
        ("more.list[0]", "query", "words_and_trigrams"),
        ("more.maybe", "query", "words_and_trigrams"),
    ]
    assert [one.score for one in found] == pytest.approx([1.0, 1.0, 0.5])
    assert list(Arguments(expected, exact=True).measured({"q": 7, "more": [], "n": 5})) == []
    assert list(Arguments(expected, exact=True).measured("{bad")) == []


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"$path": "/a"}, 5),
        ({"$regex": "a"}, 5),
        ({"$money": 5}, []),
        ({"$url": "https://shop.example"}, None),
        ({"$text": "a"}, True),
        ({"$time": T}, {}),
    ],
    ids=plain,
)
def test_a_value_of_another_kind_is_wrong_and_says_of_which(expected: Any, actual: Any) -> None:
    found = mismatch(expected, actual)
    assert not found.undecided
    assert found.why.startswith("is ")
    assert "expected" in found.why


def test_a_display_id_is_looked_for_in_lists_and_objects_within() -> None:
    """Of results that are deep or large, no more is looked at than is bounded."""
    both = {"id": "o_9", "number": "A-77"}
    nested = Context(earlier=lambda: [{"pages": [[], [{"orders": [both]}]]}])
    assert mismatch({"$id": "o_9"}, "A-77", nested).code == "display_id_used"
    apart = Context(earlier=lambda: [{"pages": [{"id": "o_9"}, {"number": "A-77"}]}, 5])
    assert mismatch({"$id": "o_9"}, "A-77", apart).code is None
    endless = Context(earlier=lambda: [*([both] * 1), *([{"x": [[]] * 50}] * 5_000)])
    assert mismatch({"$id": "o_9"}, "A-77", endless).code is None


@pytest.mark.parametrize(
    ("value", "path", "right"),
    [
        ([1, {"a": [2]}], "[1].a[0]", 2),
        ({"a": {"b": None}}, ".a.b", None),
    ],
)
def test_a_reference_follows_lists_and_objects(value: Any, path: str, right: Any) -> None:
    asked: list[str] = []

    def resolve(text: str) -> Any:
        asked.append(text)
        return right

    context = Context(resolve=resolve)
    assert answer(compared({"$ref": f"order.result{path}"}, right, context)) == RIGHT
    assert asked == [f"order.result{path}"]
    assert value is not None


def test_epochs_that_no_calendar_holds_are_no_times() -> None:
    for value in (1e30, float("nan"), -1e25, 10**40):
        assert answer(compared({"$time": T}, value)) == WRONG


def test_undecided_items_of_a_list_leave_it_undecided() -> None:
    """None is wrong, and one may be right."""
    expected = {"$list": [{"$time": T}, 1], "order": "any"}
    assert answer(compared(expected, [1, "2024-05-20T10:00"])) == UNDECIDED
    assert answer(compared(expected, [2, "2024-05-20T10:00"])) == WRONG
    assert answer(compared([{"$time": T}, {"$time": T}], ["2024-05-20T10:00", "nine"])) == WRONG


def test_a_list_longer_than_is_looked_at_is_wrong() -> None:
    found = mismatch({"$list": [1], "match": "at_least"}, [1] * 2_001)
    assert found.why == "has more than 2000 items"
