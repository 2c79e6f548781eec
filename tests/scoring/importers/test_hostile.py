"""Whatever a file holds, it becomes cases that our own reader takes, or one line that says why not.

Begins with a good document of each source, and puts anything in the place of some of its parts.
"""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.scoring.cases.files import Place
from toolverdict.scoring.cases.formats import read_case
from toolverdict.scoring.errors import InputError
from toolverdict.scoring.importers import IMPORTERS
from toolverdict.scoring.importers.imported import Losses
from toolverdict.scoring.importers.nodes import Node

_PART = {"text": "Hi", "function_call": {"name": "f", "args": {"a": 1}}}
GOOD: dict[str, Any] = {
    "adk": {
        "eval_cases": [
            {
                "eval_id": "e",
                "conversation": [
                    {
                        "user_content": {"parts": [_PART]},
                        "intermediate_data": {"tool_uses": [{"name": "f", "args": {"a": 1}}]},
                    },
                    {"intermediate_data": {"invocation_events": [{"content": {"parts": [_PART]}}]}},
                    {"query": "q", "expected_tool_use": [{"tool_name": "f", "tool_input": {}}]},
                ],
            }
        ]
    },
    "agentevals": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
        {"role": "ai", "content": [{"type": "tool_use", "name": "f", "input": {"a": 1}}]},
        {"role": "tool", "content": "x"},
    ],
    "bfcl": [
        {"id": "a", "ground_truth": [{"f": {"a": [1, ""], "b": [{"c": ["x", "y"]}]}}]},
        {"id": "b", "ground_truth": [["f(a=1)", "g(2, *x)"], []]},
        {"id": "irrelevance_1", "question": [[{"role": "user", "content": "Hi"}]]},
    ],
    "deepeval": [{"name": "n", "expected_tools": [{"name": "f", "inputParameters": {"a": 1}}]}],
    "promptfoo": {
        "prompts": ["{{q}}"],
        "defaultTest": {"vars": {"x": "y"}, "assert": [{"type": "not-trajectory:tool-used"}]},
        "tests": [
            {
                "vars": {"q": "Hi"},
                "assert": [
                    {"type": "trajectory:tool-used", "value": {"name": "f", "min": 1, "max": 2}},
                    {"type": "trajectory:tool-used", "value": ["g", "{{q}}"]},
                    {
                        "type": "trajectory:tool-sequence",
                        "value": {"mode": "exact", "steps": ["h"]},
                    },
                    {
                        "type": "trajectory:tool-args-match",
                        "value": {"name": "h", "args": {"a": {"b": 1}}, "ignore": ["c"]},
                    },
                    {"type": "trajectory:step-count", "value": {"type": "tool", "max": 3}},
                    {"type": "trajectory:tool-set", "value": {"tools": ["g"], "mode": "subset"}},
                    {"type": "tool-call-f1", "value": ["g"]},
                ],
            }
        ],
    },
    "tau-bench": [
        {
            "id": "1",
            "user_scenario": {"instructions": {"known_info": "x"}},
            "evaluation_criteria": {
                "actions": [{"name": "f", "arguments": {"a": 1}, "compare_args": ["a"]}]
            },
        },
        {"info": {"task": {"instruction": "x", "actions": [{"name": "f", "kwargs": {}}]}}},
    ],
}
GOOD["promptfoo"]["defaultTest"]["assert"][0]["value"] = "del_*"
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 10**20)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.sampled_from(["f", "f(a=1)", "{}", "{{q}}", "x_*", "user", "trajectory:tool-set"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "type", "$enum", "f", ""]), inner, max_size=3)
    ),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of everything inside a document."""
    yield path
    if isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(one, (*path, key))


def replaced(document: Any, path: tuple[Any, ...], by: Any) -> Any:
    if not path:
        return by
    changed = copy.deepcopy(document)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = by
    return changed


def cases_of(source: str, document: Any) -> int:
    """How many cases a document becomes; our own reader takes them all."""
    losses = Losses()
    made = 0
    for place, case in IMPORTERS[source](Node(Place("file"), document), losses):
        read_case(Place(str(place)), {"id": "c", **case})
        made += 1
    assert not any("\n" in line for line in losses.lines())
    return made


@pytest.mark.parametrize("source", sorted(IMPORTERS))
@given(data=st.data())
def test_nothing_but_cases_or_one_line(source: str, data: st.DataObject) -> None:
    document = GOOD[source]
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(list(places(document))))
        document = replaced(document, path, data.draw(ANYTHING))
    refused = ""
    try:
        cases_of(source, document)
    except InputError as error:
        refused = str(error)
    assert "\n" not in refused


@pytest.mark.parametrize("source", sorted(IMPORTERS))
def test_the_good_documents_are_good(source: str) -> None:
    assert cases_of(source, GOOD[source]) >= 1
