"""Scores the cases of ``cases.py`` with a peer; runs in the peer's own environment.

PYTHON tests/bench/cases_peers.py agentevals|ragas CASES.json
"""

import asyncio
import json
import sys
import time
import warnings
from importlib import import_module
from typing import Any

warnings.simplefilter("ignore")


def agentevals(cases: list[dict[str, Any]]) -> tuple[float, int]:
    """Its strict trajectory match with exact arguments."""
    peer = import_module("agentevals.trajectory.match")
    match = peer.create_trajectory_match_evaluator(trajectory_match_mode="strict")

    def messages(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        functions = [{"name": c["tool"], "arguments": json.dumps(c["args"])} for c in calls]
        asked: Any = [{"function": function} for function in functions]
        return [{"role": "assistant", "content": "", "tool_calls": [one]} for one in asked]

    ready = [(messages(c["actual"]), messages(c["expected"])) for c in cases]
    began = time.process_time()
    passed = sum(bool(match(outputs=o, reference_outputs=r)["score"]) for o, r in ready)
    return time.process_time() - began, passed


def ragas(cases: list[dict[str, Any]]) -> tuple[float, int]:
    """Its tool call accuracy."""
    messages, samples = import_module("ragas.messages"), import_module("ragas.dataset_schema")

    def calls(listed: list[dict[str, Any]]) -> list[Any]:
        return [messages.ToolCall(name=c["tool"], args=c["args"]) for c in listed]

    ready = [
        samples.MultiTurnSample(
            user_input=[messages.AIMessage(content="", tool_calls=calls(c["actual"]))],
            reference_tool_calls=calls(c["expected"]),
        )
        for c in cases
    ]
    metric = import_module("ragas.metrics").ToolCallAccuracy()

    async def score() -> int:
        return sum([await metric._multi_turn_ascore(sample, None) == 1.0 for sample in ready])

    began = time.process_time()
    passed = asyncio.run(score())
    return time.process_time() - began, passed


def main() -> None:
    peer = {"agentevals": agentevals, "ragas": ragas}[sys.argv[1]]
    with open(sys.argv[2], encoding="utf-8") as file:
        cases = json.load(file)
    seconds, passed = peer(cases)
    print(f"score {seconds:.1f}; {passed} passed")


if __name__ == "__main__":
    main()
