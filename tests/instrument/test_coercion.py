import asyncio
import datetime
import functools
import json
from collections.abc import AsyncGenerator, Iterator
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from toolverdict.instrument import InvalidArguments, tool
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import capture_spans


class Order(BaseModel):
    id: str
    amount: Annotated[Decimal, Field(gt=0)] = Decimal(1)

    @field_validator("id")
    @classmethod
    def _known(cls, value: str) -> str:
        if value.startswith("secret"):
            raise ValueError(f"{value} is not known")
        return value


class Client:
    pass


@tool(coerce=True)
def refund(order: Order, day: datetime.date | None = None, *, times: int = 1) -> Any:
    return order, day, times


def untyped(function: Any, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def test_the_coerced_value_is_hashed_shown_and_executed() -> None:
    with capture_spans(capture="full") as spans:
        given = untyped(refund, {"id": "o", "amount": "2.50"}, "2026-01-02", times="3")
        same = refund(Order(id="o", amount=Decimal("2.50")), datetime.date(2026, 1, 2), times=3)
    assert given == same == (Order(id="o", amount=Decimal("2.50")), datetime.date(2026, 1, 2), 3)
    first, second = (dict(span.attributes or {}) for span in spans.tool_calls)
    assert first["tool.args_hash"] == second["tool.args_hash"]
    assert json.loads(str(first["gen_ai.tool.call.arguments"])) == {
        "order": {"id": "o", "amount": 2.5},
        "day": "2026-01-02",
        "times": 3,
    }


def test_what_cannot_be_coerced_does_not_run_and_names_no_value() -> None:
    """B28, B31: the attempt leaves a span with what was given, and the message no input."""
    deny = Policy.parse("{version: 1, id: p, rules: [{id: a, effect: allow, tools: ['*']}]}")
    with (
        capture_spans(capture="full", policy=deny) as spans,
        pytest.raises(InvalidArguments) as caught,
    ):
        untyped(refund, {"id": "secret-1", "amount": "-1"}, day="yesterday", times="4111x")
    said = str(caught.value)
    assert said.startswith("order: value_error; order: Input should be greater than 0; day: ")
    assert "times: Input should be a valid integer" in said
    for value in ("secret-1", "yesterday", "4111", "-1"):
        assert value not in said
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    (span,) = spans
    found = dict(span.attributes or {})
    assert found["tool.outcome"] == "invalid_arguments"
    assert found["tool.executed"] is False
    assert found["policy.decision"] == "allow"
    assert found["tool.args_hash"]
    assert "4111x" in str(found["gen_ai.tool.call.arguments"])


def test_keys_that_the_model_made_up_are_not_in_the_message() -> None:
    @tool(coerce=True)
    def count(things: dict[str, int], mode: Literal["a", "b"] = "a") -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        untyped(count, {"secret": "x"}, mode="hidden")
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert "Input should be 'a' or 'b'" in str(caught.value)


def test_arguments_that_do_not_fit_are_still_a_type_error() -> None:
    with capture_spans() as spans, pytest.raises(TypeError, match="missing 1 required"):
        untyped(refund)
    assert (spans[0].attributes or {})["tool.outcome"] == "invalid_arguments"


def test_every_kind_of_tool() -> None:
    class Shop:
        @tool(coerce=True)
        def method(self, n: int) -> Any:
            return n

        @tool(coerce=True)
        @classmethod
        def of_class(cls, n: int) -> Any:
            return n

        @tool(coerce=True)
        @staticmethod
        def static(n: int, *rest: int, **more: int) -> Any:
            return n, rest, more

    @tool(coerce=True)
    async def waiting(n: int) -> Any:
        return n

    @tool(coerce=True)
    def items(n: int) -> Iterator[int]:
        yield n

    @tool(coerce=True)
    async def async_items(n: int) -> AsyncGenerator[int, None]:
        yield n

    async def first() -> Any:
        return [item async for item in untyped(async_items, "1")]

    shop = Shop()
    assert untyped(shop.method, "1") == untyped(shop.of_class, n="1") == 1
    assert untyped(Shop.static, "1", "2", a="3") == (1, (2,), {"a": 3})
    assert asyncio.run(untyped(waiting, "1")) == 1
    assert list(untyped(items, "1")) == asyncio.run(first()) == [1]
    partial = functools.partial(lambda a, n: (a, n), "x")
    assert untyped(tool(name="partial", coerce=True)(partial), "1") == ("x", "1")


def test_other_classes_are_checked_and_annotations_that_say_nothing_refused() -> None:
    @tool(coerce=True)
    def use(client: Client, other: Any = None, third=None) -> Any:  # type: ignore[no-untyped-def]
        return client

    client = Client()
    assert use(client) is client
    with pytest.raises(InvalidArguments, match="client: is_instance_of"):
        untyped(use, 1)

    ran = []

    @tool(coerce=True)
    def broken(a: "Nowhere") -> None:  # type: ignore[name-defined] # noqa: F821
        ran.append(a)

    with pytest.raises(TypeError, match="cannot be read"):
        broken(1)
    assert ran == []
