"""Keyed atoms and tool definitions, as spans hold them."""

from typing import Any

import pytest

from toolverdict.instrument import semconv, tool
from toolverdict.instrument.testing import capture_spans
from toolverdict.scoring.model import Atoms
from toolverdict.scoring.noted import atoms_of, definitions_in

NAME = semconv.TAINT_ARGUMENT_ATOMS
KEY = semconv.TAINT_ATOMS_KEY_ID


def test_what_the_agent_records_is_read_back() -> None:
    @tool(labels=["external_message"])
    def send(to: str) -> str:
        return "sent"

    with capture_spans() as spans:
        send("ann@shop.example")
        send("ann@shop.example")
    noted = [dict(span.attributes or {}) for span in spans if NAME in (span.attributes or {})]
    as_json = [{k: list(v) if isinstance(v, tuple) else v for k, v in one.items()} for one in noted]
    first, second = (atoms_of(one, NAME) for one in as_json)
    assert first is not None
    assert first == second
    assert first.whole
    assert len(first.hashes) == 2  # the address, and its host


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, None),
        ({NAME: ["a"]}, None),
        ({NAME: ["a"], KEY: ""}, None),
        ({NAME: "a", KEY: "k"}, None),
        ({NAME: [], KEY: "k"}, Atoms("k", frozenset())),
        ({NAME: ["a", 5, None], KEY: "k"}, Atoms("k", frozenset({"a"}))),
        (
            {NAME: ["a"], KEY: "k", semconv.TAINT_ATOMS_TRUNCATED: True},
            Atoms("k", frozenset({"a"}), whole=False),
        ),
    ],
)
def test_whatever_stands_there(attributes: dict[str, Any], expected: Atoms | None) -> None:
    assert atoms_of(attributes, NAME) == expected


def test_more_than_anybody_records_is_not_whole() -> None:
    found = atoms_of({NAME: [str(i) for i in range(5_000)], KEY: "k"}, NAME)
    assert found is not None
    assert (len(found.hashes), found.whole) == (1_024, False)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, None),
        ({"gen_ai.tool.definitions": '[{"name": "a"}]'}, [{"name": "a"}]),
        ({"gen_ai.tool.definitions": ['{"name": "a"}']}, [{"name": "a"}]),
        ({"gen_ai.tool.definitions": "no json"}, "no json"),
        ({"mlflow.chat.tools": '[{"type": "function"}]'}, [{"type": "function"}]),
    ],
)
def test_definitions_in_any_spelling(attributes: dict[str, Any], expected: Any) -> None:
    assert definitions_in(attributes) == expected
