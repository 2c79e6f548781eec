import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.instrument.arguments import Binder, freeze
from toolverdict.instrument.errors import Unhashable


def binder(function: Callable[..., Any], *exclude: str) -> Binder:
    return Binder.of(function, exclude, static=False)


def many(a: int, b: int = 2, *rest: int, c: int = 3, **others: int) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1,), {}), ((1, 2), {}), ((), {"a": 1}), ((), {"b": 2, "a": 1}), ((1,), {"c": 3, "b": 2})],
)
def test_however_it_is_called_the_arguments_are_the_same(
    args: tuple[int, ...], kwargs: dict[str, int]
) -> None:
    """B49: positional, keyword and default arguments are bound to names before anything else."""
    bound = binder(many).bind(args, kwargs)
    assert bound == {"a": 1, "b": 2, "rest": (), "c": 3, "others": {}}


def test_extra_arguments_are_seen() -> None:
    """Nothing gets past by coming in another way."""
    bound = binder(many).bind((1, 2, 9), {"x": 8})
    assert bound["rest"] == (9,)
    assert bound["others"] == {"x": 8}


def test_excluded_parameters_are_never_looked_at() -> None:
    bound = binder(many, "c", "token").bind((1,), {"token": 7, "x": 8})
    assert bound == {"a": 1, "b": 2, "rest": (), "others": {"x": 8}}


def test_excluding_what_is_not_there_is_an_error() -> None:
    def plain(a: int) -> None: ...

    with pytest.raises(TypeError, match="exclude names no parameter of the tool: tokn"):
        binder(plain, "tokn")


class Shop:
    def method(self, a: int) -> None: ...
    def classy(cls, a: int) -> None: ...


def test_the_receiver_of_a_method_is_no_argument() -> None:
    """B43: self and cls are never in the arguments."""
    assert binder(Shop.method).bind((Shop(), 1), {}) == {"a": 1}
    assert binder(Shop.classy).bind((Shop, 1), {}) == {"a": 1}
    assert [p.name for p in binder(Shop.method).parameters] == ["a"]


def test_a_parameter_that_is_only_called_cls_is_an_argument() -> None:
    def classify(cls: str, text: str) -> None: ...

    assert binder(classify).bind(("spam", "x"), {}) == {"cls": "spam", "text": "x"}
    assert binder(Shop.classy).bind(("spam", 1), {}) == {"cls": "spam", "a": 1}


def test_arguments_that_do_not_fit_raise_what_the_tool_would() -> None:
    def plain(a: int, *, b: int) -> None:
        raise AssertionError("the body ran")

    fits_not = binder(plain)
    with pytest.raises(TypeError) as bound:
        fits_not.bind((), {})
    error = fits_not.does_not_fit(bound.value, (), {})
    with pytest.raises(TypeError) as own:
        plain()  # type: ignore[call-arg]
    assert str(error) == str(own.value)


def test_a_body_never_runs_to_find_its_error() -> None:
    """Python 3.11's own bind refuses what f(a=2) allows; the body must still not run unseen."""

    def positional(a: int = 1, /, **others: int) -> None:
        raise AssertionError("the body ran")

    @functools.wraps(positional)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("the body ran")

    for function in (positional, wrapped):
        error = binder(function).does_not_fit(TypeError("no"), (), {"a": 2})
        assert str(error).endswith("positional(): no")


def test_a_snapshot_does_not_change_with_the_arguments() -> None:
    """What was hashed and shown is not what somebody else makes of it later."""
    inner = [1, {"k": {2}}]
    snapshot = freeze({"a": inner, "t": (inner,), "b": bytearray(b"x")})
    inner.append(3)
    inner[1]["k"].add(9)  # type: ignore[index]
    assert snapshot == {"a": [1, {"k": {2}}], "t": ([1, {"k": {2}}],), "b": b"x"}
    with pytest.raises(TypeError):
        snapshot["a"] = 1  # type: ignore[index]


def test_a_snapshot_keeps_what_is_shared_shared() -> None:
    """B20: a value that occurs 2**40 times is copied once."""
    value: object = "x"
    for _ in range(40):
        value = [value, value]
    freeze({"a": value})


def test_a_snapshot_has_an_end() -> None:
    """B19: 200,000 levels and cycles are refused, not followed."""
    deep: list[Any] = []
    for _ in range(200_000):
        deep = [deep]
    loop: list[Any] = []
    loop.append(loop)
    for value, reason in [(deep, "too_deep"), (loop, "cycle"), ([0] * 300_000, "too_large")]:
        with pytest.raises(Unhashable, match=reason):
            freeze({"a": value})
    while deep:  # taken apart by hand: the interpreter would recurse
        deep = deep.pop()


def test_a_partial_has_its_fixed_arguments() -> None:
    fixed = Binder.of(many, (), static=False, given=(1,), given_keywords={"c": 5})
    assert fixed.bind((7,), {}) == {"a": 1, "b": 7, "rest": (), "c": 5, "others": {}}
    assert isinstance(fixed.signature, inspect.Signature)


def named(a: int, b: int = 2, *, c: int = 3, d: int) -> None: ...


@given(
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e"]), st.integers()),
)
def test_binding_quickly_is_binding(args: list[int], kwargs: dict[str, int]) -> None:
    binder = Binder.of(named, (), static=True)
    signature = inspect.signature(named)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        with pytest.raises(TypeError):
            binder.bind(tuple(args), kwargs)
        return
    bound.apply_defaults()
    assert list(binder.bind(tuple(args), kwargs).items()) == list(bound.arguments.items())
