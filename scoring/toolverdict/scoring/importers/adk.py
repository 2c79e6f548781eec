"""Google ADK: eval sets (``*.evalset.json``) and the older test files (``*.test.json``).

A conversation of several turns becomes a case per turn, ``eval_id#0`` and on, as ADK compares turn
by turn and begins a trace for each. By default as its ``tool_trajectory_avg_score``: these calls,
in this order, with these arguments, and no others.

Source: https://github.com/google/adk-python, ``google/adk/evaluation/eval_case.py``.
"""

from collections.abc import Iterator
from typing import Any

from toolverdict.scoring.cases.files import Place
from toolverdict.scoring.importers.expecting import arguments_of, expected_call
from toolverdict.scoring.importers.imported import CaseDict, Losses
from toolverdict.scoring.importers.nodes import Node

_CASE_LOSSES = {
    "rubrics": "rubrics need a judge and are not compared",
    "final_session_state": "the state of the session afterwards is not compared",
    "session_input": "whoever plays the case has to set up the session",
    "initial_session": "whoever plays the case has to set up the session",
}
_TURN_LOSSES = {
    "rubrics": "rubrics need a judge and are not compared",
    "final_response": "the final response is not compared",
    "reference": "the final response is not compared",
    "expected_intermediate_agent_responses": "what agents said in between is not compared",
}


def read_adk(document: Node, losses: Losses) -> Iterator[tuple[Place, CaseDict]]:
    """The cases of a document: an eval set, a list of older eval cases, or a list of their turns."""
    if isinstance(document.data, dict):
        if document.get("eval_cases") is None:
            raise document.error("is no eval set: expected the key 'eval_cases'")
        for case in document.need("eval_cases").items():
            yield from _eval_case(case, losses)
        return
    cases = list(document.items())
    if cases and isinstance(cases[0].data, dict) and "query" in cases[0].data:
        yield from _turns(None, cases, losses)
        return
    for case in cases:
        _note(case, _CASE_LOSSES, losses)
        yield from _turns(case.need("name").text(), list(case.need("data").items()), losses)


def _eval_case(case: Node, losses: Losses) -> Iterator[tuple[Place, CaseDict]]:
    name = case.need("eval_id").text()
    _note(case, _CASE_LOSSES, losses)
    conversation = case.get("conversation")
    if conversation is None:
        losses.add(case.place, "a conversation scenario says no expected calls: no case was made")
        return
    yield from _turns(name, list(conversation.items()), losses)


def _turns(name: str | None, turns: list[Node], losses: Losses) -> Iterator[tuple[Place, CaseDict]]:
    for number, turn in enumerate(turns):
        made: CaseDict = {}
        if name is not None:
            made["id"] = name if len(turns) == 1 else f"{name}#{number}"
        asked = _asked(turn)
        if asked:
            made["input"] = asked
        _note(turn, _TURN_LOSSES, losses)
        made["expected_tool_calls"] = _calls(turn, losses)
        yield turn.place, made


def _asked(turn: Node) -> str | None:
    query = turn.get("query")
    if query is not None:
        return query.text()
    content = turn.get("user_content")
    parts = content.get("parts") if content is not None else None
    texts = [part.get("text") for part in parts.items()] if parts is not None else []
    return "\n".join(str(text.data) for text in texts if text is not None) or None


def _calls(turn: Node, losses: Losses) -> list[dict[str, Any]]:
    older = turn.get("expected_tool_use")
    if older is not None:
        return [_older_call(call, losses) for call in older.items()]
    steps = turn.get("intermediate_data")
    if steps is None:
        if turn.get("query") is None:
            losses.add(turn.place, "says nothing of tool calls, which ADK takes for none")
        return []
    if steps.has("intermediate_responses"):
        losses.add(steps.place, "what agents said in between is not compared")
    if steps.has("tool_responses"):
        losses.add(steps.place, "what a tool returned is not compared")
    events = steps.get("invocation_events")
    if events is not None:
        return [_call(call) for event in events.items() for call in _function_calls(event, losses)]
    uses = steps.get("tool_uses")
    return [_call(call) for call in uses.items()] if uses is not None else []


def _call(call: Node) -> dict[str, Any]:
    return expected_call(call.need("name").text(), arguments_of(call.get("args")))


def _older_call(call: Node, losses: Losses) -> dict[str, Any]:
    if call.has("mock_tool_output"):
        losses.add(call.place, "the output to play for a tool is not carried over")
    return expected_call(call.need("tool_name").text(), arguments_of(call.get("tool_input")))


def _function_calls(event: Node, losses: Losses) -> Iterator[Node]:
    content = event.get("content")
    parts = content.get("parts") if content is not None else None
    for part in parts.items() if parts is not None else ():
        call = part.get("function_call")
        if call is not None:
            yield call
        elif part.has("function_response"):
            losses.add(part.place, "what a tool returned is not compared")
        else:
            losses.add(part.place, "what agents said in between is not compared")


def _note(node: Node, kinds: dict[str, str], losses: Losses) -> None:
    for key, what in kinds.items():
        if node.has(key):
            losses.add(node.place.at(key), what)
