"""The pytest plugin, in real runs of pytest: as a user's suite sees it."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from toolverdict.collector.testing import running_collector
from toolverdict.scoring import pytest_plugin
from toolverdict.scoring.assertions import assert_case
from toolverdict.scoring.errors import InputError

PLUGIN = "toolverdict.scoring.pytest_plugin"

AGENT = """
from toolverdict.instrument import tool, trajectory


@tool
def get_order(order_id):
    return {"id": order_id, "total": 120}


@tool
def refund(order_id, amount):
    return {"refunded": amount}


@tool(labels=["payment"])
def issue_credit(user_id):
    return {"credited": user_id}


def agent(order_id="A123", amount=120, first=get_order):
    with trajectory(agent="refund-bot"):
        first(order_id)
        refund(order_id, amount)
"""

CASES = """
- id: refund
  input: Please refund order A123
  expected_tool_calls:
    - {tool: get_order, args: {order_id: A123}}
    - {tool: refund, args: {order_id: A123, amount: 120}}
  forbidden_tool_calls: [{tool: issue_credit, reason: not asked for}]
- case_id: of_format_a
  expected_calls: [{tool: get_order}, {tool: refund, args_match: {amount: 120}}]
  forbidden_calls: [delete_user]
"""

POLICY = """
version: 1
id: no-credit
rules:
  - {id: no-credit, effect: deny, tools: [issue_credit], reason: nobody asked}
"""


OTHER = """
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor


def openinference(exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("other")
    with tracer.start_as_current_span("run") as run:
        run.set_attribute("openinference.span.kind", "AGENT")
        with tracer.start_as_current_span("get_order") as span:
            span.set_attributes({
                "openinference.span.kind": "TOOL", "tool.name": "get_order",
                "input.value": '{"order_id": "A123"}', "input.mime_type": "application/json",
                "output.value": '{"id": "A123"}', "output.mime_type": "application/json",
            })
"""

SUITE = """
import json, pathlib, pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from other import openinference
from shop import *
from toolverdict.instrument.testing import capture_spans
from toolverdict.scoring.assertions import assert_case, assert_no_forbidden
from toolverdict.scoring.cases.load import load_cases

HERE = pathlib.Path(__file__).parent
FULL = {"id": "f", "order": "any", "extra": "forbid",
        "expected_tool_calls": [{"tool": "refund", "count": 1}, {"tool": "get_order"}]}

@pytest.mark.parametrize("case, case_id", [
    ("cases.yaml", "refund"),
    ("cases.yaml", "of_format_a"),
    (HERE / "cases.yaml", "refund"),
    (load_cases(HERE / "cases.yaml").cases["refund"], None),
    ({"expected_calls": [{"tool": "get_order"}, {"tool": "refund"}]}, None),
    ({"id": "b", "expected_tool_calls": [{"tool": "get_order"}, {"tool": "refund"}]}, None),
    (FULL, None),
    (["get_order", {"tool": "refund", "args": {"order_id": "A123", "amount": {"$number": 120}}}],
     None),
], ids=range(8))
def test_case(toolverdict_agent, case, case_id):
    agent()
    toolverdict_agent.assert_case(case, case_id=case_id)
    toolverdict_agent.assert_no_forbidden("policy.yaml")

def test_wrong(toolverdict_agent):
    with trajectory():
        get_order("A124")
        issue_credit("u_1")
    toolverdict_agent.assert_case("cases.yaml", case_id="refund")

@tool
def book(passengers):
    return "ok"

def test_diff(toolverdict_agent):
    book([{"name": "Mia", "born": "1990-04-05"}, {"name": "Li", "born": "1991-01-01"}])
    toolverdict_agent.assert_case([{"tool": "book", "args": {"passengers": [
        {"name": "Mia", "born": "1990-04-05"}]}}])

def test_rule(toolverdict_agent):
    issue_credit("u_1")
    toolverdict_agent.assert_no_forbidden("policy.yaml")

def test_rule_of_a_case(toolverdict_agent):
    issue_credit("u_1")
    toolverdict_agent.assert_case(["issue_credit"], policy="policy.yaml")

def test_rule_unknown():
    with capture_spans() as spans:
        agent()
    assert_no_forbidden(spans, "arguments.yaml")

def test_without_arguments():
    with capture_spans() as spans:
        agent()
    assert_case(spans, "cases.yaml", case_id="refund")

def test_without_spans(toolverdict_agent):
    toolverdict_agent.assert_case({"id": "silent", "expected_tool_calls": []})

def test_without_spans_or_rules(toolverdict_agent):
    toolverdict_agent.assert_no_forbidden("policy.yaml")

def test_two_runs(toolverdict_agent):
    agent(), agent()
    toolverdict_agent.assert_case(["get_order", "refund"])

def test_silence(toolverdict_agent):
    with trajectory(agent="talker"):
        pass
    toolverdict_agent.assert_case({"id": "silent", "expected_tool_calls": []})

def test_no_silence(toolverdict_agent):
    get_order("A1")
    toolverdict_agent.assert_case({"id": "silent", "expected_tool_calls": []})

def test_file(toolverdict_agent):
    toolverdict_agent.assert_case("nowhere.yaml")

def test_policy_file(toolverdict_agent):
    toolverdict_agent.assert_no_forbidden("nowhere.yaml")

def test_several(toolverdict_agent):
    toolverdict_agent.assert_case("cases.yaml")

def test_id(toolverdict_agent):
    toolverdict_agent.assert_case("cases.yaml", case_id="refnud")

def test_id_of_no_file(toolverdict_agent):
    toolverdict_agent.assert_case(["refund"], case_id="refund")

def test_key(toolverdict_agent):
    toolverdict_agent.assert_case({"expected_tool_calls": [{"tol": "refund"}]})

def test_note(toolverdict_agent):
    agent()
    case = {"expected_tool_calls": [{"tool": "get_order"}, {"tool": "refund"}], "owner": "me"}
    with pytest.warns(UserWarning, match="owner"):
        toolverdict_agent.assert_case(case)

def test_bytes():
    assert_case(b"no spans", ["refund"])

CASE = [{"tool": "get_order", "args": {"order_id": "A123"}}]

def test_in_memory():
    exporter = InMemorySpanExporter()
    openinference(exporter)
    assert_case(exporter.get_finished_spans(), CASE)

def test_request():
    exporter = InMemorySpanExporter()
    openinference(exporter)
    assert_case(encode_spans(exporter.get_finished_spans()).SerializeToString(), CASE)

def test_fixture_as_exporter(toolverdict_agent):
    openinference(toolverdict_agent.spans)
    toolverdict_agent.assert_case(CASE)
"""

PARALLEL = """
import asyncio, pytest
from shop import *

@tool
async def look(n):
    await asyncio.sleep(0)
    return {"n": n}

@pytest.mark.asyncio
async def test_look(toolverdict_agent):
    with trajectory():
        await asyncio.gather(look(1), look(2))
    toolverdict_agent.assert_case([[{"tool": "look", "args": {"n": 2}},
                                    {"tool": "look", "args": {"n": 1}}]])

@pytest.mark.parametrize("n", range(12))
def test_refund(toolverdict_agent, n):
    agent(order_id=f"A{n}", amount=n)
    wanted = n if n != 7 else 70
    toolverdict_agent.assert_case(
        ["get_order", {"tool": "refund", "args": {"order_id": f"A{n}", "amount": wanted}}])
"""

ARGUMENTS = """
version: 1
id: not-five
rules:
  - {id: not-five, effect: deny, tools: [refund], args: {amount: {equals: 5}}}
"""


ASYNCIO = ("-p", "pytest_asyncio.plugin", "-o", "asyncio_default_fixture_loop_scope=function")


class Outcome(NamedTuple):
    """What became of a test: ``error`` is what its assertion said, ``printed`` with the traceback."""

    passed: bool
    error: str
    printed: str


def run(folder: Path, tests: str, *options: str) -> dict[str, Outcome]:
    """A real run of pytest, with our plugin and without those that are installed."""
    (folder / "shop.py").write_text(AGENT)
    (folder / "other.py").write_text(OTHER)
    (folder / "cases.yaml").write_text(CASES)
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "arguments.yaml").write_text(ARGUMENTS)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (folder / "test_agent.py").write_text(tests)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", *options),
            *("--junitxml=report.xml", "test_agent.py"),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {case.attrib["name"]: _outcome(case) for case in _cases(folder / "report.xml")}


def _cases(report: Path) -> list[ElementTree.Element]:
    return list(ElementTree.parse(report).getroot().iter("testcase"))


def _outcome(case: ElementTree.Element) -> Outcome:
    failure = case.find("failure")
    if failure is None:
        return Outcome(not list(case), "", "")
    printed = failure.text or ""
    said = [line[1:].strip() for line in printed.split("\n") if line.startswith("E ")]
    return Outcome(False, "\n".join(said), printed)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return run(tmp_path_factory.mktemp("suite"), SUITE)


@pytest.mark.parametrize("number", range(8))
def test_every_way_to_say_a_case(suite: dict[str, Outcome], number: int) -> None:
    assert suite[f"test_case[{number}]"].passed, suite[f"test_case[{number}]"].printed


def test_a_failure_says_what_was_expected_what_happened_and_where(
    suite: dict[str, Outcome],
) -> None:
    said = [line.strip() for line in suite["test_wrong"].error.split("\n")]
    assert said[:6] == [
        "AssertionError: refund failed: forbidden_tool_called",
        "expected:",
        '1. get_order {"order_id": "A123"}',
        '2. refund {"order_id": "A123", "amount": 120}',
        "never issue_credit (not asked for)",
        "happened:",
    ]
    assert said[6].startswith('1. get_order {"order_id": "A124"}: ok, span ')
    assert said[7].startswith('2. issue_credit {"user_id": "u_1"}: ok, span ')
    order, credit = said[6].split()[-1], said[7].split()[-1]
    assert set(said[9:12]) == {
        f"forbidden_call at span {credit}: issue_credit is forbidden by this case and was executed"
        ": not asked for",
        f"argument_mismatch at span {order}: get_order: argument order_id is 'A124', "
        "expected 'A123' (compared as id, as its form suggests)",
        f"wrong_tool at span {credit}: issue_credit was called where refund was expected",
    }
    assert said[8] == "because:"
    assert said[12:] == ["scores: selection 1/3, arguments 0/1"]


def test_a_failure_is_shown_at_the_test(suite: dict[str, Outcome]) -> None:
    assert "assertions.py" not in suite["test_wrong"].printed
    assert "test_agent.py" in suite["test_wrong"].printed


def test_long_arguments_are_shown_as_a_diff(suite: dict[str, Outcome]) -> None:
    said = suite["test_diff"].error
    assert "argument passengers has 2 items, expected 1" in said
    assert '+     "born": "1991-01-01",' in said.split("\n")
    assert '"born": "1990-04-05",' in said.split("\n")


def test_a_broken_rule_is_told(suite: dict[str, Outcome]) -> None:
    said = suite["test_rule"].error
    assert said.startswith("AssertionError: calls broke the policy:")
    assert "issue_credit is forbidden by the policy and was executed" in said
    assert '1. issue_credit {"user_id": "u_1"}: ok, executed, span ' in said
    assert "issue_credit is forbidden by the policy" in suite["test_rule_of_a_case"].error


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("test_rule_unknown", "undecided at span "),
        ("test_without_arguments", "arguments were not captured: capture_spans(capture='full')"),
        ("test_without_spans", "no span was captured, so nothing shows that the agent ran"),
        ("test_without_spans_or_rules", "no span was captured"),
        ("test_two_runs", "the spans are of 2 runs, and none names the case"),
        ("test_no_silence", "get_order was called and is not expected in this case"),
    ],
)
def test_what_is_not_known_is_no_pass(suite: dict[str, Outcome], name: str, why: str) -> None:
    assert suite[name].error.startswith("AssertionError: "), suite[name]
    assert why in suite[name].error


def test_silence_passes_where_the_run_has_a_span(suite: dict[str, Outcome]) -> None:
    assert suite["test_silence"].passed, suite["test_silence"].printed


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("test_file", "nowhere.yaml: no such case file or folder"),
        ("test_policy_file", "nowhere.yaml: cannot be read"),
        ("test_several", "holds 2 cases; choose one by case_id"),
        ("test_id", "holds no case 'refnud'; it has refund, of_format_a"),
        ("test_id_of_no_file", "case_id chooses a case of a file"),
        ("test_key", "the case: expected_tool_calls.0.tol: unknown key 'tol'; did you mean"),
        ("test_bytes", "these are no spans: "),
    ],
)
def test_a_mistake_is_one_line_at_the_test(suite: dict[str, Outcome], name: str, why: str) -> None:
    said = suite[name]
    assert why in said.error
    assert said.error.count("\n") == 0
    assert "toolverdict/scoring/" not in said.printed


def test_a_note_in_a_case_is_a_warning(suite: dict[str, Outcome]) -> None:
    assert suite["test_note"].passed, suite["test_note"].printed


@pytest.mark.parametrize("name", ["test_in_memory", "test_request", "test_fixture_as_exporter"])
def test_spans_of_another_instrumentation(suite: dict[str, Outcome], name: str) -> None:
    assert suite[name].passed, suite[name].printed


def test_spans_of_another_process(tmp_path: Path) -> None:
    """An agent that only speaks OTLP, and the lake of the collector that it speaks to."""
    tracing = (
        "from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter\n"
        "from other import openinference\n"
        "openinference(OTLPSpanExporter())\n"
    )
    (tmp_path / "other.py").write_text(OTHER)
    with running_collector(tmp_path / "lake") as collector:
        subprocess.run(
            [sys.executable, "-c", tracing],
            cwd=tmp_path,
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.http},
            check=True,
        )
        collector.terminate()
    assert_case(tmp_path / "lake", [{"tool": "get_order", "args": {"order_id": "A123"}}])
    with pytest.raises(AssertionError, match="A124"):
        assert_case(tmp_path / "lake", [{"tool": "get_order", "args": {"order_id": "A124"}}])
    with pytest.raises(InputError, match="these are no spans: "):
        assert_case(tmp_path / "nowhere", ["get_order"])


def test_the_example_of_the_readme(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "scoring" / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^## In a test suite\n.*?^```python\n(.*?)^```", page, re.S | re.M)
    outcomes = run(tmp_path, example)
    assert [outcome.passed for outcome in outcomes.values()] == [True, True], outcomes


def test_parallel_processes_and_asynchronous_tests(tmp_path: Path) -> None:
    outcomes = run(tmp_path, PARALLEL, "-p", "xdist", "-n", "2", *ASYNCIO)
    assert len(outcomes) == 13
    assert [name for name, outcome in outcomes.items() if not outcome.passed] == [
        "test_refund[7]"
    ], outcomes
    assert "argument amount is 7, expected 70" in outcomes["test_refund[7]"].error


def test_loading_the_plugin_imports_nothing_but_itself() -> None:
    code = (
        "import sys, pytest, toolverdict.scoring; before = set(sys.modules); "
        f"import {PLUGIN}; print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"[{PLUGIN!r}]"


def test_the_plugin_adds_one_fixture_and_nothing_else() -> None:
    # Names with @ are those that pytest puts into what it rewrites assertions of.
    public = {name for name in vars(pytest_plugin) if not name.startswith(("_", "@"))}
    assert public == {"Iterator", "TYPE_CHECKING", "pytest", "toolverdict_agent"}
