import asyncio
from collections.abc import Iterator
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
