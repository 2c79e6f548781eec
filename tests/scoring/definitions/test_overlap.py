"""Tools that are described alike, and descriptions that are too long."""

from hypothesis import given
from hypothesis import strategies as st

from toolverdict.instrument.catalogue.definitions import Catalogue, Tool
from toolverdict.scoring.definitions.overlap import long_descriptions, overlaps

_SEARCH = "Search the customer records by name and return every match."
_OTHERS = [
    Tool("pay_invoice", {}, description="Pay an open invoice from the company account."),
    Tool("read_ticket", {}, description="Read one support ticket with its comments."),
    Tool("send_mail", {}, description="Send a mail to one address."),
]


def test_the_same_words_are_found_whatever_the_order_and_the_spelling_of_names() -> None:
    tools = [
        Tool("searchCustomers", {}, description=_SEARCH),
        Tool(
            "customers_search",
            {},
            description="By name search the customer records; return every match",
        ),
        *_OTHERS,
    ]
    (found,) = overlaps(Catalogue.of(tools))
    assert found.tools == ("customers_search", "searchCustomers")
    assert found.similarity > 0.9
    assert "records" in found.shared
    assert found.confused is None


def test_tools_that_do_other_things_are_not_alike() -> None:
    assert overlaps(Catalogue.of(_OTHERS)) == []


def test_words_that_every_tool_uses_do_not_make_two_alike() -> None:
    """``get ... from the store`` says nothing where all say it."""
    tools = [
        Tool(f"get_{what}", {}, description=f"Get the {what} from the store.")
        for what in ("order", "refund", "parcel", "receipt", "voucher", "invoice")
    ]
    assert overlaps(Catalogue.of(tools)) == []


def test_parameters_count_as_words() -> None:
    schema = {"type": "object", "properties": {"customer_id": {}, "currency": {}, "amount": {}}}
    tools = [Tool("charge", schema), Tool("debit", schema), *_OTHERS]
    (found,) = overlaps(Catalogue.of(tools), least=0.5)
    assert {"customer", "currency", "amount"} <= set(found.shared)


def test_what_was_confused_comes_first_in_both_directions() -> None:
    tools = [
        Tool("a_find", {}, description="find the thing quickly"),
        Tool("a_search", {}, description="find the thing quickly"),
        Tool("b_find", {}, description="list every parcel of today"),
        Tool("b_search", {}, description="list every parcel of today"),
        *_OTHERS,
    ]
    confusion = {"b_find": {"b_search": 2}, "b_search": {"b_find": 1}, "pay_invoice": {"x": 9}}
    first, second = overlaps(Catalogue.of(tools), confusion)
    assert (first.tools, first.confused) == (("b_find", "b_search"), 3)
    assert (second.tools, second.confused) == (("a_find", "a_search"), 0)


def test_two_servers_with_one_tool_are_alike() -> None:
    tools = [Tool("search", {}, server=one, description=_SEARCH) for one in ("crm", "shop")]
    (found,) = overlaps(Catalogue.of(tools))
    assert found.tools == ("crm/search", "shop/search")


@given(st.lists(st.text(max_size=40), max_size=6))
def test_any_description_is_compared_and_never_more_than_alike(texts: list[str]) -> None:
    tools = [Tool(f"t{n}", {}, description=text) for n, text in enumerate(texts)]
    for one in overlaps(Catalogue.of(tools), least=0.0):
        assert 0.0 <= one.similarity <= 1.0 + 1e-3


def test_long_descriptions_are_told_with_their_length() -> None:
    tools = [
        Tool("short", {}, description="a" * 10),
        Tool("long", {}, description="word " * 300),
        Tool("longest", {}, description="word " * 400),
        Tool("none", {}),
    ]
    found = long_descriptions(Catalogue.of(tools), most_chars=100)
    assert [(one.tool, one.chars, one.words) for one in found] == [
        ("longest", 2000, 400),
        ("long", 1500, 300),
    ]
