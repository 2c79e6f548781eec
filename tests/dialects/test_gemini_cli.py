"""Shapes in which Gemini CLI writes a call: alone, in a list of one, with its request and its answer."""

from typing import Any

import pytest

from toolverdict.scoring.dialects.gemini_cli import DIALECT, server_of
from toolverdict.scoring.spans import Span

REQUEST = {"callId": "c1", "name": "read_file", "args": {"path": "a.txt"}}


def span(**attributes: Any) -> Span:
    return Span("t", "s", None, "tool_call", 1, 2, False, attributes, {}, "")


@pytest.mark.parametrize(
    "written", [REQUEST, [REQUEST], {"request": REQUEST}, [{"request": REQUEST}]]
)
def test_arguments_are_those_of_the_request(written: Any) -> None:
    assert DIALECT.arguments_of is not None
    assert DIALECT.arguments_of(written) == {"path": "a.txt"}


@pytest.mark.parametrize("written", [{"path": "a.txt"}, [1, 2], "text", None])
def test_what_is_no_request_stays(written: Any) -> None:
    assert DIALECT.arguments_of is not None
    assert DIALECT.arguments_of(written) == written


@pytest.mark.parametrize(
    ("status", "response", "wanted"),
    [
        ("success", {"output": "text"}, "text"),
        ("success", {"resultDisplay": "shown"}, "shown"),
        ("success", {"other": 1}, {"other": 1}),
        ("success", "text", "text"),
        ("error", {"error": {"message": "no such file"}}, {"error": "no such file"}),
        ("error", {"error": "denied"}, {"error": "denied"}),
        ("error", None, {"error": "error"}),
        ("cancelled", None, {"error": "cancelled"}),
    ],
)
def test_a_result_is_the_response_and_an_error_is_said(
    status: str, response: Any, wanted: Any
) -> None:
    assert DIALECT.result_of is not None
    written = {"status": status, "request": REQUEST, "response": response}
    assert DIALECT.result_of(written) == wanted
    assert DIALECT.result_of([written]) == wanted


@pytest.mark.parametrize("written", [{"status": "success"}, ["a", "b"], "text"])
def test_what_is_no_answer_stays(written: Any) -> None:
    assert DIALECT.result_of is not None
    assert DIALECT.result_of(written) == written


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("read_file", (None, "read_file")),
        ("mcp_shop_refund", ("shop", "refund")),
        ("mcp_shop", (None, "mcp_shop")),
    ],
)
def test_a_server_is_told_from_the_name(name: str, wanted: tuple[str | None, str]) -> None:
    assert server_of(name, span()) == wanted
