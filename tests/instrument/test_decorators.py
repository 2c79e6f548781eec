"""A decorated function is still the function that it was."""

import functools
import inspect
import pickle
import typing
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pydantic
import pytest

from toolverdict.instrument import decorators, tool
from toolverdict.instrument.testing import CapturedSpans, capture_spans


def plain(city: str, n: "int" = 3, *, unit: typing.Annotated[str, "unit"] = "c") -> list[str]:
    """Forecast the weather."""
    return [city] * n


async def coroutine(city: str, n: int = 3) -> list[str]:
    """Forecast the weather."""
    return [city] * n


def generator(city: str, n: int = 3) -> Iterator[str]:
    """Forecast the weather."""
    yield from [city] * n


async def async_generator(city: str, n: int = 3) -> AsyncIterator[str]:
    """Forecast the weather."""
    for _ in range(n):
        yield city


KINDS: list[Any] = [plain, coroutine, generator, async_generator]


@pytest.mark.parametrize("function", KINDS, ids=lambda function: function.__name__)
def test_nothing_of_a_function_is_lost(function: Any) -> None:
    """B41: a framework that makes a schema of the tool makes the same one."""
    decorated = tool(function)
    assert decorated is not function
    assert inspect.signature(decorated) == inspect.signature(function)
    assert typing.get_type_hints(decorated, include_extras=True) == typing.get_type_hints(
        function, include_extras=True
    )
    assert decorated.__wrapped__ is function
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        assert getattr(decorated, name) == getattr(function, name)
    for predicate in (
        inspect.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
        inspect.isfunction,
    ):
        assert predicate(decorated) == predicate(function)
    schema = pydantic.TypeAdapter(decorated).json_schema()
    assert schema == pydantic.TypeAdapter(function).json_schema()
    assert schema["required"] == ["city"]


@tool
def pickled(a: int) -> int:
    return a


def test_a_tool_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(pickled)) is pickled


class Shop:
    @tool
    def method(self, a: int) -> tuple[str, int]:
        return ("method", a)

    @tool
    @classmethod
    def class_outside(cls, a: int) -> tuple[str, int]:
        return (cls.__name__, a)

    @classmethod
    @tool
    def class_inside(cls, a: int) -> tuple[str, int]:
        return (cls.__name__, a)

    @tool(labels=["read"])
    @staticmethod
    def static_outside(a: int) -> tuple[str, int]:
        return ("static", a)

    @staticmethod
    @tool(labels=["read"])
    def static_inside(a: int) -> tuple[str, int]:
        return ("static", a)

    @property
    @tool
    def member(self) -> str:
        return "member"

    @tool
    async def later(self, a: int) -> int:
        return a

    @tool
    def items(self, a: int) -> Iterator[int]:
        yield a


def arguments(spans: CapturedSpans) -> set[Any]:
    return {(span.attributes or {}).get("gen_ai.tool.call.arguments") for span in spans.tool_calls}


async def test_all_members_of_a_class_work() -> None:
    """B43: static by instance and by class, class methods, properties; self is in no arguments."""
    shop = Shop()
    with capture_spans(capture="full") as spans:
        assert shop.method(1) == ("method", 1)
        assert Shop.method(shop, a=1) == ("method", 1)
        assert shop.class_outside(1) == Shop.class_outside(1) == ("Shop", 1)
        assert shop.class_inside(a=1) == Shop.class_inside(1) == ("Shop", 1)
        assert shop.static_outside(1) == Shop.static_outside(1) == ("static", 1)
        assert shop.static_inside(1) == Shop.static_inside(a=1) == ("static", 1)
        assert await shop.later(1) == 1
        assert list(shop.items(1)) == [1]
    assert len(spans.tool_calls) == 12
    assert arguments(spans) == {'{"a":1}'}
    assert all("tool.args_hash" in (span.attributes or {}) for span in spans.tool_calls)
    with capture_spans(capture="full") as spans:
        assert shop.member == "member"
    assert arguments(spans) == {"{}"}


def test_receivers_are_in_no_version() -> None:
    def free(a: int) -> tuple[str, int]:
        return ("", a)

    with capture_spans() as spans:
        Shop().method(1)
        Shop.class_inside(1)
        Shop.static_inside(1)
        tool(free)(1)
    versions = {(span.attributes or {})["tool.schema_version"] for span in spans.tool_calls}
    assert len(versions) == 1


def test_a_partial_is_a_tool_with_all_its_arguments() -> None:
    """What a partial has fixed is hashed and recorded with the rest."""

    def pay(to: str, amount: int, currency: str = "EUR") -> str:
        return f"{to} {amount} {currency}"

    pay_ann = tool(functools.partial(pay, "ann", currency="USD"))
    with capture_spans(capture="full") as spans:
        assert pay_ann(5) == "ann 5 USD"
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'amount'"):
            pay_ann()
    assert spans.tool_calls[0].name == "tool.call pay"
    assert '{"amount":5,"currency":"USD","to":"ann"}' in arguments(spans)
    assert list(inspect.signature(pay_ann).parameters) == ["amount", "currency"]


def test_a_bound_method_is_a_tool() -> None:
    class Plain:
        def get(self, a: int) -> int:
            return a

    with capture_spans(capture="full") as spans:
        assert tool(Plain().get)(1) == 1
    assert arguments(spans) == {'{"a":1}'}


def test_a_name_of_ones_own() -> None:
    with capture_spans() as spans:
        assert tool(name="weather.forecast")(plain)("Rome", 1) == ["Rome"]
    assert spans.tool_calls[0].name == "tool.call weather.forecast"


class Callable_:
    def __call__(self) -> None: ...


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"labels": "payment"}, TypeError, "labels takes a list of strings"),
    ({"labels": [1]}, TypeError, "labels takes a list of strings"),
    ({"labels": [""]}, ValueError, "labels holds an empty string"),
    ({"labels": ["paymnet"]}, ValueError, "unknown label 'paymnet'; did you mean 'payment'"),
    ({"exclude": "token"}, TypeError, "exclude takes a list of strings"),
    ({"exclude": ["token"]}, TypeError, "exclude names no parameter of the tool: token"),
    ({"idempotency_key": "order"}, TypeError, "idempotency_key names no parameter"),
    ({"idempotency_key": "n", "exclude": ["n"]}, TypeError, "idempotency_key names no parameter"),
    ({"name": ""}, ValueError, "is not empty"),
    ({"name": "a\0b"}, ValueError, "has no control characters"),
    ({"name": "\ud800"}, ValueError, "encodable as UTF-8"),
]


@pytest.mark.parametrize(("settings", "kind", "message"), WRONG, ids=[str(w[0]) for w in WRONG])
def test_mistakes_are_told_when_decorating(
    settings: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        tool(**settings)(plain)


@pytest.mark.parametrize("target", [Shop, Callable_(), 3], ids=["class", "callable", "number"])
def test_only_functions_and_methods_are_tools(target: Any) -> None:
    with pytest.raises(TypeError, match=r"tool\(\) decorates functions and methods[,;]"):
        tool(target)


def test_a_decorated_function_carries_what_is_known_of_it() -> None:
    """So nobody has to look into closures for it, whatever stands around the function."""

    class Shop:
        @tool(name="shop.refund", labels=["payment"])
        def refund(self, order_id: str) -> None: ...

        @classmethod
        @tool
        def price(cls, item: str) -> int:
            return 1

        @tool
        @staticmethod
        def greet() -> str:
            return "hello"

    @tool
    async def search(text: str) -> list[str]:
        return [text]

    @tool
    def stream(to: int) -> Iterator[int]:
        yield from range(to)

    @functools.wraps(search)
    def retried(*args: Any, **kwargs: Any) -> Any:
        return search(*args, **kwargs)

    marked = [Shop.refund, Shop().refund, Shop.price, Shop.greet, search, stream, retried]
    specs = [getattr(function, decorators.MARK) for function in marked]
    assert [spec.name for spec in specs] == [
        *["shop.refund"] * 2,
        *["price", "greet", "search", "stream", "search"],
    ]
    assert specs[0].labels == ("payment",)
    assert not hasattr(functools.partial(stream), decorators.MARK)


def test_a_tool_is_not_decorated_twice() -> None:
    @tool
    def search(text: str) -> str:
        return text

    for again in (search, functools.partial(search, "a")):
        with pytest.raises(TypeError, match="with @tool already") as refused:
            tool(labels=["payment"])(again)
        assert "\n" not in str(refused.value)
