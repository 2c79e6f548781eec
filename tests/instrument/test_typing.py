"""What a type checker says about decorated functions; checked by mypy, and run for its sense."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, assert_type

from toolverdict.instrument import tool, trajectory


@tool
def plain(a: int, *, b: str = "x") -> list[str]:
    return [b] * a


@tool(labels=["payment"], idempotency_key="a")
async def coroutine(a: int) -> str:
    return str(a)


@tool(idempotency_key=lambda arguments: str(arguments["a"]))
def generator(a: int) -> Iterator[int]:
    yield a


@tool
async def async_generator(a: int) -> AsyncIterator[int]:
    yield a


class Shop:
    @tool
    def method(self, a: int) -> int:
        return a

    @tool
    @classmethod
    def maker(cls, a: int) -> "Shop":
        return cls()

    @tool(name="static")
    @staticmethod
    def static(a: int) -> int:
        return a


@trajectory("bot")
def run(a: int) -> str:
    return str(a)


async def test_types_are_kept() -> None:
    assert_type(plain(1, b="y"), list[str])
    coroutine_: Callable[[int], Coroutine[Any, Any, str]] = coroutine
    assert_type(await coroutine_(1), str)
    assert_type(next(iter(generator(1))), int)
    assert_type([item async for item in async_generator(1)], list[int])
    assert_type(Shop().method(1), int)
    assert_type(Shop.maker(1), Shop)
    assert_type(Shop.static(1), int)
    assert_type(run(1), str)
