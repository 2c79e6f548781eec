"""What adapters know of a tool before they wrap it."""

import functools
from typing import Any

import pytest

from toolverdict.instrument import tool
from toolverdict.instrument.adapters.options import Options, refuse_decorated
from toolverdict.instrument.decorators import is_decorated
from toolverdict.instrument.guard import counts


@tool
def refund(order_id: str, amount: float) -> str:
    return "refunded"


@functools.wraps(refund)
def retried(*args: Any, **kwargs: Any) -> str:
    return refund(*args, **kwargs)


def plain(order_id: str) -> str:
    return order_id


class Shop:
    @tool
    def price(self, item: str) -> int:
        return 1


@pytest.mark.parametrize(
    "function",
    [refund, retried, functools.partial(functools.partial(refund, "o-1"), 1), Shop().price],
)
def test_a_call_of_these_is_witnessed_already(function: Any) -> None:
    assert is_decorated(function)
    with pytest.raises(TypeError, match="'it' is decorated with @tool"):
        refuse_decorated("it", None, function)


@pytest.mark.parametrize("function", [plain, functools.partial(plain, "o-1"), len, None, Shop()])
def test_a_call_of_these_is_not(function: Any) -> None:
    assert not is_decorated(function)
    refuse_decorated("it", function)


def test_what_is_said_of_a_tool_that_is_not_there_is_counted_at_least() -> None:
    options = Options(labels={"refnd": ["payment"]})
    before = counts().get("adapter", 0)
    options.remark(["refnd", "refund"])
    assert counts().get("adapter", 0) == before
    options.remark(["refund"])
    assert counts()["adapter"] == before + 1
    with pytest.raises(
        ValueError, match="labels names no tool that is here: 'refnd'; did you mean"
    ):
        options.check(["refund"])
