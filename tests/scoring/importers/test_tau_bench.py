"""Tasks of tau-bench (Python, results) and of tau2-bench (JSON)."""

from collections.abc import Callable
from typing import Any

import pytest

from toolverdict.scoring.errors import InputError
from toolverdict.scoring.importers import Imported
from toolverdict.scoring.testing import call

MODULE = """
from tau_bench.types import Action, Task

TASKS = [
    Task(
        user_id="mia_1",
        instruction="Cancel reservation R1, "
        "and tell me what I get back.",
        actions=[
            Action(name="cancel", kwargs={"reservation": "R1", "notify": [True, None, -1.5]}),
        ],
        outputs=["120"],
    ),
    Task(user_id="li_2", instruction="Only look", actions=[], outputs=[]),
]
"""
CANCEL = {"tool": "cancel", "args": {"reservation": "R1", "notify": [True, None, -1.5]}}


def test_a_module_is_read_and_not_run(imported: Callable[..., Imported]) -> None:
    made = imported("tau-bench", MODULE + "\nraise SystemExit('was run')\n", "tasks_test.py")
    extra = {"default": "allow", "penalise": ["cancel"]}
    assert made.cases == (
        {
            "id": "tasks_test_0",
            "input": "Cancel reservation R1, and tell me what I get back.",
            "expected_tool_calls": [CANCEL],
            "order": "any",
            "extra": extra,
        },
        {
            "id": "tasks_test_1",
            "input": "Only look",
            "expected_tool_calls": [],
            "order": "any",
            "extra": extra,
        },
    )
    assert made.losses == (
        "tasks_test.py: the data base afterwards is not compared, only the calls are",
        "tasks_test.py: 0.outputs: what the agent has to tell the user is not compared",
    )


def test_looking_is_free_and_writing_is_not(
    imported: Callable[..., Imported], passes: Callable[..., bool]
) -> None:
    writes, nothing = imported("tau-bench", MODULE, "tasks_test.py").cases
    cancel, look = call("cancel", CANCEL["args"]), call("get_user", {"id": "mia_1"})
    assert passes(writes, look, cancel, look)
    assert not passes(writes, look)
    assert not passes(writes, cancel, cancel)
    assert not passes(writes, call("cancel", {"reservation": "R2"}))
    assert passes(nothing, look)
    assert not passes(nothing, look, cancel)


def run(trial: int, kwargs: dict[str, Any]) -> dict[str, Any]:
    task = {
        "user_id": "mia_1",
        "instruction": "Cancel",
        "actions": [
            {"name": "cancel", "kwargs": kwargs},
            {"name": "respond", "kwargs": {"content": "Done"}},
        ],
        "outputs": [],
    }
    return {"task_id": 4, "trial": trial, "reward": 1.0, "info": {"task": task}, "traj": []}


def test_runs_of_one_task_are_one_case(imported: Callable[..., Imported]) -> None:
    made = imported("tau-bench", [run(0, {"id": 1}), run(1, {"id": 1}), run(2, {"id": 2})])
    assert [(c["id"], c["expected_tool_calls"]) for c in made.cases] == [
        ("4", [{"tool": "cancel", "args": {"id": 1}}]),
        ("4~2", [{"tool": "cancel", "args": {"id": 2}}]),
    ]
    assert "cases.json: 2.info.task: the id '4' stands for another case, too: this is '4~2'" in (
        made.losses
    )
    assert any("an answer to the user is no tool call" in loss for loss in made.losses)


TAU2 = {
    "id": "7",
    "user_scenario": {
        "instructions": {
            "reason_for_call": "No signal.",
            "known_info": "You are Li.",
            "task_instructions": "Be patient.",
        }
    },
    "evaluation_criteria": {
        "actions": [
            {"action_id": "a", "name": "get_line", "arguments": {"id": "L1"}, "info": None},
            {
                "action_id": "b",
                "requestor": "assistant",
                "name": "refuel",
                "arguments": {"id": "L1", "gb": 2, "note": "as asked"},
                "compare_args": ["id", "gb"],
            },
            {"action_id": "c", "name": "close", "arguments": {"note": "x"}, "compare_args": []},
            {"action_id": "d", "requestor": "user", "name": "toggle_data", "arguments": {}},
        ],
        "communicate_info": ["2 GB"],
        "nl_assertions": ["The agent is kind."],
        "env_assertions": [{"func_name": "assert_data", "arguments": {}}],
        "reward_basis": ["DB"],
    },
}


@pytest.mark.parametrize("document", [TAU2, [TAU2], {"tasks": [TAU2]}], ids=["one", "list", "set"])
def test_tasks_of_tau2(imported: Callable[..., Imported], document: Any) -> None:
    made = imported("tau-bench", document)
    (case,) = made.cases
    assert case["id"] == "7"
    assert case["input"] == "No signal.\nYou are Li.\nBe patient."
    assert case["expected_tool_calls"] == [
        {"tool": "get_line", "args": {"id": "L1"}},
        {"tool": "refuel", "args_subset": {"id": "L1", "gb": 2}},
        {"tool": "close"},
    ]
    assert [loss.rsplit(": ", 1)[1] for loss in made.losses] == [
        "the data base afterwards is not compared, only the calls are",
        "what the agent has to tell the user is not compared",
        "assertions in natural language need a judge and are not compared",
        "assertions about the state of the environment are not compared",
        "a call that the user makes is not the agent's and left out",
    ]


def test_a_task_without_criteria_is_said(imported: Callable[..., Imported]) -> None:
    made = imported("tau-bench", {"id": "1", "user_scenario": {"instructions": "Say hello"}})
    assert made.cases == (
        {"id": "1", "input": "Say hello", "expected_tool_calls": [], "order": "any"},
    )
    assert made.losses[1] == "cases.json: names no actions, which is taken for none"


@pytest.mark.parametrize(
    ("content", "name", "why"),
    [
        ("TASKS = [Task(actions=make())]", "t.py", "t.py: holds no case|expected"),
        ("TASKS = [Task(\n  actions=[a + 1])]", "t.py", "t.py:2: cannot be read as literals"),
        ("TASKS = [Task(Action())]", "t.py", "t.py:1: cannot be read as literals"),
        ("TASKS = [", "t.py", "t.py:1: cannot be read as literals"),
        ("x = 1", "t.py", "holds no case of tau-bench"),
        ('[{"actions": [{"kwargs": {}}]}]', "t.json", "0.actions.0: expected the key 'name'"),
        ('[{"info": {}}]', "t.json", "0.info: expected the key 'task'"),
    ],
)
def test_a_file_of_something_else_is_one_line(
    imported: Callable[..., Imported], content: str, name: str, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        imported("tau-bench", content, name)
