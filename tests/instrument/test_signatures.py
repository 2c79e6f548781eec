import enum
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Annotated, Any, Literal, Optional, Union

import pytest

from toolverdict.instrument.signatures import auto_version, is_in_class, returns_none, without_body


def version(function: Callable[..., Any]) -> str:
    return auto_version(inspect.signature(function).parameters.values())


def base(a: int, b: str = "x") -> None: ...
def renamed(a: int, c: str = "x") -> None: ...
def retyped(a: float, b: str = "x") -> None: ...
def reordered(b: str, a: int) -> None: ...
def without_default(a: int, b: str) -> None: ...
def other_default(a: int, b: str = "y") -> None: ...
def keyword_only(a: int, *, b: str = "x") -> None: ...
def untyped(a, b="x"): ...  # type: ignore[no-untyped-def]
def added(a: int, b: str = "x", c: int = 0) -> None: ...


def test_versions_change_with_what_a_caller_sees() -> None:
    changed: list[Callable[..., Any]] = [
        renamed,
        retyped,
        reordered,
        without_default,
        keyword_only,
        untyped,
        added,
    ]
    versions = {version(function) for function in [base, *changed]}
    assert len(versions) == 1 + len(changed)
    assert version(other_default) == version(base)
    assert re.fullmatch("auto:[0-9a-f]{12}", version(base))


class Colour(enum.Enum):
    RED = 1


class Marker:
    """Its repr holds an address."""


ANNOTATIONS: list[Any] = [
    int,
    Optional[int],  # noqa: UP045 - both spellings are met
    list[int],
    dict[str, list[int]],
    Literal["a", 1, None, b"x", Colour.RED],
    Callable[[int], str],
    Callable[..., str],
    "forward",
    None,
    Colour,
    Any,
    tuple[int, ...],
    list["forward"],  # type: ignore[name-defined]  # noqa: F821
    Optional["later"],  # noqa: F821
]


def with_annotation(annotation: Any) -> str:
    parameter = inspect.Parameter(
        "a", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation
    )
    return auto_version([parameter])


def test_annotations_are_told_apart() -> None:
    assert len({with_annotation(annotation) for annotation in ANNOTATIONS}) == len(ANNOTATIONS)


def test_two_spellings_of_one_union_are_one() -> None:
    assert with_annotation(int | None) == with_annotation(Union[int, None])  # noqa: UP007


def test_objects_beside_a_type_do_not_count() -> None:
    assert with_annotation(Annotated[int, Marker()]) == with_annotation(Annotated[int, Marker()])
    assert with_annotation(Annotated[int, Marker()]) == with_annotation(int)


def test_versions_are_the_same_in_every_process() -> None:
    """B47: nothing depends on hash randomisation or addresses."""
    code = (
        "from typing import Annotated\n"
        "from toolverdict.instrument import tool\n"
        "from toolverdict.instrument.testing import capture_spans\n"
        "@tool(idempotency_key='when')\n"
        "def f(a: Annotated[int, object()], when: set[str], *rest: 'x') -> int: return 1\n"
        "with capture_spans() as spans: f(1, {'p', 'q', 'r'})\n"
        "names = 'tool.schema_version', 'tool.args_hash', 'idempotency.key_hash'\n"
        "print([spans.tool_calls[0].attributes[name] for name in names])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(outputs) == 1
    assert "hmac-sha256" in outputs.pop()


@pytest.mark.parametrize(
    ("annotation", "nothing"), [(None, True), ("None", True), (type(None), True), (int, False)]
)
def test_returning_nothing_is_declared(annotation: object, nothing: bool) -> None:
    assert returns_none(inspect.Signature(return_annotation=annotation)) is nothing


@pytest.mark.parametrize(
    ("qualname", "inside"),
    [("f", False), ("C.f", True), ("g.<locals>.f", False), ("g.<locals>.C.f", True)],
)
def test_functions_in_classes_are_known(qualname: str, inside: bool) -> None:
    assert is_in_class(qualname) is inside


def test_without_a_body_only_the_parameters_are_left() -> None:
    def full(a: int, /, b: int = 2, *c: int, d: int, e: int = 5, **f: int) -> str:
        local = "the body ran"
        raise AssertionError(local)

    assert isinstance(full, FunctionType)
    empty = without_body(full)
    assert empty(1, d=4, x=5) is None
    for args, kwargs in [((), {}), ((1,), {}), ((1,), {"b": 1})]:
        with pytest.raises(TypeError) as ours:
            empty(*args, **kwargs)
        with pytest.raises(TypeError) as own:
            full(*args, **kwargs)
        assert str(ours.value) == str(own.value)
