"""tau-bench and tau2-bench: the reference actions of a task.

Reads the Python modules of tasks (as literals, without running them), the JSON tasks of tau2, and
files of results, whose runs carry their task. The benchmark compares the data base afterwards, so
the order is free and a tool that no reference action of the document uses may be called besides.

Sources: https://github.com/sierra-research/tau-bench, ``tau_bench/types.py``;
https://github.com/sierra-research/tau2-bench, ``src/tau2/data_model/tasks.py``.
"""

from collections.abc import Iterator
from typing import Any

from toolverdict.scoring.cases.files import Place
from toolverdict.scoring.importers.expecting import arguments_of, expected_call
from toolverdict.scoring.importers.imported import CaseDict, Losses
from toolverdict.scoring.importers.nodes import Node

_RESPOND = "respond"  # tau-bench's name for an answer to the user, which is no tool
_CRITERIA_LOSSES = {
    "outputs": "what the agent has to tell the user is not compared",
    "communicate_info": "what the agent has to tell the user is not compared",
    "nl_assertions": "assertions in natural language need a judge and are not compared",
    "env_assertions": "assertions about the state of the environment are not compared",
}


def read_tau_bench(document: Node, losses: Losses) -> Iterator[tuple[Place, CaseDict]]:
    """The cases of a document: tasks, or runs with their tasks."""
    if isinstance(document.data, dict):
        document = document.get("tasks") or document
    tasks = [_task(item) for item in document.each()]
    used = {name for _, task in tasks for name in _names(_criteria(task))}
    if tasks:
        losses.add(document.place, "the data base afterwards is not compared, only the calls are")
    for name, task in tasks:
        yield task.place, _case(name, task, sorted(used), losses)


def _task(item: Node) -> tuple[str | None, Node]:
    """The id of a task and the task, out of a run where it is one."""
    named = item.get("task_id", "id")
    name = str(named.data) if named is not None else None
    info = item.get("info")
    return name, info.need("task") if info is not None else item


def _criteria(task: Node) -> Node:
    """Where the actions stand: in the task, or in what it is judged by."""
    return task.get("evaluation_criteria") or task


def _names(criteria: Node) -> Iterator[str]:
    actions = criteria.get("actions")
    for action in actions.items() if actions is not None else ():
        yield action.need("name").text()


def _case(name: str | None, task: Node, used: list[str], losses: Losses) -> CaseDict:
    case: CaseDict = {} if name is None else {"id": name}
    asked = _asked(task)
    if asked:
        case["input"] = asked
    criteria = _criteria(task)
    if task.get("actions", "evaluation_criteria", "instruction", "user_scenario") is None:
        raise task.error("is no task: expected the key 'actions' or 'evaluation_criteria'")
    for key, what in _CRITERIA_LOSSES.items():
        if criteria.has(key):
            losses.add(criteria.place.at(key), what)
    actions = criteria.get("actions")
    if actions is None:
        losses.add(criteria.place, "names no actions, which is taken for none")
    calls = [
        call
        for action in (actions.items() if actions is not None else ())
        if (call := _call(action, losses)) is not None
    ]
    case["expected_tool_calls"] = calls
    case["order"] = "any"
    if used:
        case["extra"] = {"default": "allow", "penalise": used}
    return case


def _asked(task: Node) -> str | None:
    """What the simulated user wants."""
    instruction = task.get("instruction")
    if instruction is not None:
        return instruction.text()
    scenario = task.get("user_scenario")
    said = scenario.get("instructions") if scenario is not None else None
    if said is None or isinstance(said.data, str):
        return said.data if said is not None else None
    parts = [said.get(key) for key in ("reason_for_call", "known_info", "task_instructions")]
    return "\n".join(str(part.data).strip() for part in parts if part is not None) or None


def _call(action: Node, losses: Losses) -> dict[str, Any] | None:
    name = action.need("name").text()
    requestor = action.get("requestor")
    if requestor is not None and requestor.data != "assistant":
        losses.add(action.place, "a call that the user makes is not the agent's and left out")
        return None
    if name == _RESPOND:
        losses.add(action.place, "an answer to the user is no tool call and left out")
        return None
    arguments = arguments_of(action.get("kwargs", "arguments"))
    compared = action.get("compare_args")
    if compared is None:
        return expected_call(name, arguments)
    wanted = {item.text() for item in compared.items()}
    call = expected_call(name, {k: v for k, v in arguments.items() if k in wanted} or None)
    if "args" in call:
        call["args_subset"] = call.pop("args")
    return call
