import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from typing import Any

import pytest

from toolverdict.instrument import ToolDenied, tool
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import capture_spans


class Base:
    @tool
    def run(self, n: int) -> int:
        return n

    @tool
    async def wait(self, n: int) -> int:
        return n

    @tool
    def items(self, n: int) -> Iterator[int]:
        yield from range(n)

    @tool
    async def stream(self, n: int) -> AsyncGenerator[int, int | None]:
        total = 0
        for number in range(n):
            try:
                total += (yield number) or 0
            except KeyError:
                yield -1
        yield total

    @tool
    @classmethod
    def make(cls, n: int) -> int:
        return n

    @tool(labels=["payment"])
    def pay(self, n: int) -> int:
        return n


class Derived(Base):
    @tool
    def run(self, n: int) -> int:
        return super().run(n) + 1

    @tool
    async def wait(self, n: int) -> int:
        return await super().wait(n) + 1

    @tool
    def items(self, n: int) -> Iterator[int]:
        yield from super().items(n)

    @tool
    async def stream(self, n: int) -> AsyncGenerator[int, int | None]:
        async with aclosing(super().stream(n)) as items:
            sent = None
            with suppress(StopAsyncIteration):
                while True:
                    try:
                        sent = yield await items.asend(sent)
                    except ValueError:
                        yield await items.athrow(KeyError())
                        sent = None

    @tool
    @classmethod
    def make(cls, n: int) -> int:
        return super().make(n) + 1

    @tool
    def pay(self, n: int) -> int:
        return super().pay(n)


def test_what_a_method_overrides_is_a_part_of_its_call() -> None:
    """B44: one call is counted once, however many classes decorate it."""
    thing = Derived()
    with capture_spans() as spans:
        assert thing.run(1) == 2
        assert asyncio.run(thing.wait(1)) == 2
        assert list(thing.items(2)) == [0, 1]
        assert Derived.make(1) == 2
    assert [span.name for span in spans.tool_calls] == [
        "tool.call run",
        "tool.call wait",
        "tool.call items",
        "tool.call make",
    ]


async def drained(stream: AsyncGenerator[int, int | None]) -> list[int]:
    items = [await anext(stream)]
    with suppress(StopAsyncIteration):
        while True:
            items.append(await stream.asend(10))
    return items


def test_a_stream_that_a_method_overrides_is_a_part_of_its_call() -> None:
    """B44: what is sent, thrown and closed reaches the overridden one as well."""

    async def thrown_at() -> list[int]:
        stream = Derived().stream(2)
        items = [await anext(stream), await stream.athrow(ValueError())]
        await stream.aclose()
        return items

    with capture_spans() as spans:
        assert asyncio.run(drained(Derived().stream(2))) == [0, 1, 20]
        assert asyncio.run(thrown_at()) == [0, -1]
        assert asyncio.run(drained(Base().stream(1))) == [0, 10]
    found = [dict(span.attributes or {}) for span in spans.tool_calls]
    assert [(one["tool.items"], one["tool.outcome"]) for one in found] == [
        (3, "ok"),
        (2, "cancelled"),
        (2, "ok"),
    ]
    assert [span.name for span in spans if span.name.startswith("execute_tool")] == [
        "execute_tool stream"
    ] * 3


def test_another_instance_and_recursion_are_calls_of_their_own() -> None:
    class Tree(Base):
        def __init__(self, *children: Base) -> None:
            self.children = children

        @tool
        def run(self, n: int) -> int:
            if n > 1:
                return self.run(n - 1)
            return sum(child.run(n) for child in self.children)

    with capture_spans() as spans:
        assert Tree(Base(), Tree()).run(2) == 1
    assert len(spans.tool_calls) == 4
    with capture_spans() as spans:
        assert Base().run(1) == 1
        assert Base().run(1) == 1
    assert len(spans.tool_calls) == 2


def test_a_label_that_the_override_lacks_is_decided_about() -> None:
    deny = Policy.parse("{version: 1, id: p, rules: [{id: d, effect: deny, labels: [payment]}]}")
    with capture_spans(policy=deny) as spans, pytest.raises(ToolDenied):
        Derived().pay(1)
    assert len(spans.tool_calls) == 2


class Adder:
    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, n: int) -> int:
        return n + self.by


class AsyncAdder(Adder):
    async def __call__(self, n: int) -> int:  # type: ignore[override]
        return n + self.by


def test_an_object_that_is_called_is_a_tool() -> None:
    add: Any = tool(name="add", labels=["read"])(Adder(2))
    wait: Any = tool(name="wait")(AsyncAdder(3))
    with capture_spans(capture="full") as spans:
        assert add(1) == add(n=1) == 3
        assert asyncio.run(wait(1)) == 4
        with pytest.raises(TypeError):
            add()
    assert add.__name__ == "add"
    assert [span.name for span in spans.tool_calls][:1] == ["tool.call add"]
    found = [(span.attributes or {}).get("gen_ai.tool.call.arguments") for span in spans.tool_calls]
    assert found == ['{"n":1}'] * 3 + [None]


def test_it_needs_a_name() -> None:
    with pytest.raises(TypeError, match="name"):
        tool(Adder(1))
