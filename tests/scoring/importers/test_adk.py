"""Eval sets of Google ADK, in each of the forms that it reads."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolverdict.scoring.errors import InputError
from toolverdict.scoring.importers import Imported, import_cases
from toolverdict.scoring.testing import call

CORPUS = Path(__file__).parents[4] / "shared" / "corpora" / "otel_real"


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": text}]}


TURNS = [
    {
        "invocation_id": "1",
        "user_content": said("Roll a die with six sides, twice"),
        "final_response": {"role": "model", "parts": [{"text": "3 and 5"}]},
        "intermediate_data": {
            "tool_uses": [
                {"id": "a", "name": "roll", "args": {"sides": 6}},
                {"id": "b", "name": "roll", "args": {"sides": 6}},
            ],
            "tool_responses": [{"id": "a", "name": "roll", "response": {"result": 3}}],
            "intermediate_responses": [],
        },
    },
    {"user_content": said("Thank you"), "intermediate_data": {"tool_uses": []}},
]
SET = {"eval_set_id": "dice", "eval_cases": [{"eval_id": "two_dice", "conversation": TURNS}]}


def test_each_turn_is_a_case(
    imported: Callable[..., Imported], passes: Callable[..., bool]
) -> None:
    first, second = imported("adk", SET, "dice.evalset.json").cases
    roll = {"tool": "roll", "args": {"sides": 6}}
    assert first == {
        "id": "two_dice#0",
        "input": "Roll a die with six sides, twice",
        "expected_tool_calls": [roll, roll],
    }
    assert second == {"id": "two_dice#1", "input": "Thank you", "expected_tool_calls": []}
    assert passes(first, call("roll", {"sides": 6}), call("roll", {"sides": 6}))
    assert not passes(first, call("roll", {"sides": 6}))
    assert not passes(first, call("roll", {"sides": 6}), call("roll", {"sides": 8}))
    assert passes(second)
    assert not passes(second, call("roll", {"sides": 6}))


def test_camel_case_and_events(imported: Callable[..., Imported]) -> None:
    events = [
        {"author": "a", "content": {"parts": [{"functionCall": {"name": "roll", "args": None}}]}},
        {"author": "b", "content": {"parts": [{"functionResponse": {"name": "roll"}}]}},
        {"author": "b", "content": {"parts": [{"text": "on it"}]}},
        {"author": "b", "content": None},
    ]
    turn = {"userContent": said("Roll"), "intermediateData": {"invocationEvents": events}}
    made = imported("adk", {"eval_cases": [{"evalId": "e", "conversation": [turn]}]})
    assert made.cases == (
        {"id": "e", "input": "Roll", "expected_tool_calls": [{"tool": "roll", "args": {}}]},
    )
    assert [loss.rsplit(": ", 1)[1] for loss in made.losses] == [
        "what a tool returned is not compared",
        "what agents said in between is not compared",
    ]


OLDER = [
    {
        "query": "Roll it",
        "expected_tool_use": [
            {"tool_name": "roll", "tool_input": {"sides": 17}, "mock_tool_output": 3}
        ],
        "expected_intermediate_agent_responses": [{"author": "a", "text": "rolling"}],
        "reference": "I rolled a 3.",
    }
]


@pytest.mark.parametrize(
    ("document", "name"),
    [([{"name": "older", "data": OLDER, "initial_session": {"state": {"a": 1}}}], "older"),
     (OLDER, "cases_0")],
    ids=["cases", "turns"],
)  # fmt: skip
def test_older_files(imported: Callable[..., Imported], document: Any, name: str) -> None:
    made = imported("adk", document)
    assert made.cases == (
        {
            "id": name,
            "input": "Roll it",
            "expected_tool_calls": [{"tool": "roll", "args": {"sides": 17}}],
        },
    )
    assert {loss.rsplit(": ", 1)[1] for loss in made.losses} >= {
        "the final response is not compared",
        "what agents said in between is not compared",
        "the output to play for a tool is not carried over",
    }


def test_everything_that_is_not_a_call_is_a_loss(imported: Callable[..., Imported]) -> None:
    scenario = {"eval_id": "s", "conversation_scenario": {"starting_prompt": "Hi"}}
    case = {
        "eval_id": "r",
        "conversation": [{"user_content": said("Hi"), "rubrics": [{"rubric_id": "r"}]}],
        "session_input": {"app_name": "a", "user_id": "u"},
        "final_session_state": {"k": 1},
    }
    made = imported("adk", {"eval_cases": [scenario, case]})
    assert [one["id"] for one in made.cases] == ["r"]
    assert made.losses == (
        "cases.json: eval_cases.0: a conversation scenario says no expected calls: no case was made",
        "cases.json: eval_cases.1.final_session_state: the state of the session afterwards is not "
        "compared",
        "cases.json: eval_cases.1.session_input: whoever plays the case has to set up the session",
        "cases.json: eval_cases.1.conversation.0.rubrics: rubrics need a judge and are not compared",
        "cases.json: eval_cases.1.conversation.0: says nothing of tool calls, which ADK takes for "
        "none",
    )


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"cases": []}, "is no eval set: expected the key 'eval_cases'"),
        ({"eval_cases": [{"conversation": []}]}, "eval_cases.0: expected the key 'eval_id'"),
        ({"eval_cases": [{"eval_id": 7}]}, "eval_cases.0.eval_id: expected a text, got a int"),
        ({"eval_cases": 3}, "eval_cases: expected a list, got a int"),
        ([{"name": "n"}], "0: expected the key 'data'"),
        ([7], "0: expected an object, got a int"),
    ],
)
def test_a_file_of_something_else_is_one_line(
    imported: Callable[..., Imported], document: Any, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        imported("adk", document)


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus of real eval sets is not here")
def test_real_eval_sets() -> None:
    """The cases that were made of the same files by other means are the same."""
    known: dict[str, list[Any]] = {}
    for line in (CORPUS / "cases.jsonl").read_text().splitlines():
        case = json.loads(line)
        name = case["meta"]["source"].rsplit("/", 1)[1]
        known.setdefault(name, []).append(case["expected_tool_calls"])
    files = sorted((CORPUS / "original").glob("eval*.json"))
    assert len(files) == 3
    for file in files:
        made = [case["expected_tool_calls"] for case in import_cases(file, "adk").cases]
        assert made == known[file.name]


def test_adk_reads_the_same_calls(tmp_path: Path) -> None:
    """ADK's own reader, of what we read."""
    managers = pytest.importorskip("google.adk.evaluation.local_eval_sets_manager")
    from google.adk.evaluation.eval_case import get_all_tool_calls

    file = tmp_path / "dice.evalset.json"
    file.write_text(json.dumps(SET))
    theirs = managers.load_eval_set_from_file(str(file), "dice").eval_cases[0].conversation
    ours = import_cases(file, "adk").cases
    assert [
        [{"tool": use.name, "args": use.args} for use in get_all_tool_calls(turn.intermediate_data)]
        for turn in theirs
    ] == [case["expected_tool_calls"] for case in ours]
