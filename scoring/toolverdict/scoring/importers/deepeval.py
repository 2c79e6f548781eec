"""deepeval: ``LLMTestCase`` and goldens with ``expected_tools``, as its data sets are saved.

By default as its tool correctness does: in any order, and further calls count nothing, unless no
call is expected. Input parameters that a file states are compared, which its metric does when asked.

Source: https://github.com/confident-ai/deepeval, ``deepeval/test_case/llm_test_case.py``.
"""

from collections.abc import Iterator
from typing import Any

from toolverdict.scoring.cases.files import Place
from toolverdict.scoring.importers.expecting import arguments_of, expected_call
from toolverdict.scoring.importers.imported import CaseDict, Losses
from toolverdict.scoring.importers.nodes import Node

_CASE_LOSSES = {
    "expected_output": "the expected output is not compared",
    "expected_outcome": "the expected outcome is not compared",
    "expectations": "expectations need a judge and are not compared",
    "expected_labels": "labels are not compared",
}
_TOOL_LOSSES = {
    "output": "what a tool is expected to return is not compared",
    "reasoning": "the reasoning before a call is not compared",
}


def read_deepeval(document: Node, losses: Losses) -> Iterator[tuple[Place, CaseDict]]:
    """The cases of a document: one test case, or a list of them."""
    if isinstance(document.data, dict):
        document = document.get("test_cases", "goldens") or document
    for case in document.each():
        if case.get("expected_tools") is None:
            what = "names no expected tools: no case was made"
            losses.add(case.place, what)
        else:
            yield case.place, _case(case, losses)


def _case(node: Node, losses: Losses) -> CaseDict:
    case: CaseDict = {}
    named, asked = node.get("name"), node.get("input")
    if named is not None:
        case["id"] = named.text()
    if asked is not None:
        case["input"] = asked.text()
    for key, what in _CASE_LOSSES.items():
        if node.has(key):
            losses.add(node.place.at(key), what)
    calls = [_call(tool, losses) for tool in node.need("expected_tools").items()]
    case["expected_tool_calls"] = calls
    case["order"] = "any"
    if calls:
        case["extra"] = "allow"
    return case


def _call(tool: Node, losses: Losses) -> dict[str, Any]:
    for key, what in _TOOL_LOSSES.items():
        if tool.has(key):
            losses.add(tool.place.at(key), what)
    stated = tool.get("input_parameters")
    return expected_call(
        tool.need("name").text(), arguments_of(stated) if stated is not None else None
    )
