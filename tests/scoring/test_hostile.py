"""What a hostile trace or a careless user may not do: crash, hang, hide a call, pass by not showing."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from toolverdict.collector.decode import decode, table_of
from toolverdict.collector.signals import Signal
from toolverdict.collector.testing import make_request, make_span
from toolverdict.instrument.policy import Policy
from toolverdict.scoring import InputError
from toolverdict.scoring.cases.model import Case, Expectation, Forbidden
from toolverdict.scoring.destinations import destinations
from toolverdict.scoring.dialects.values import constructed, decoded
from toolverdict.scoring.rates.dimensions import CALL_DIMENSIONS
from toolverdict.scoring.rates.report import whole
from toolverdict.scoring.results import opened
from toolverdict.scoring.spans import COLUMNS
from toolverdict.scoring.unit import Rules, UnitResult, score_unit
from toolverdict.scoring.values import as_text, parse, plain

SECOND = 1_000_000_000
TRACE = bytes(range(1, 17))


def any_value(value: Any) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=map(any_value, value)))
    if isinstance(value, dict):
        pairs = [KeyValue(key=key, value=any_value(inner)) for key, inner in value.items()]
        return AnyValue(kvlist_value=KeyValueList(values=pairs))
    return AnyValue(string_value=value)


def span(number: int, parent: int | None = 0, **fields: Any) -> Span:
    """The span ``number`` of a trace, a second after the one before; attributes by ``a``."""
    attributes = fields.pop("a", {})
    made: dict[str, Any] = {
        "trace_id": TRACE,
        "span_id": (number + 1).to_bytes(8),
        "start_time_unix_nano": (1000 + number) * SECOND,
        "end_time_unix_nano": (1000 + number) * SECOND + SECOND // 2,
        "attributes": [KeyValue(key=k, value=any_value(v)) for k, v in attributes.items()],
        **({} if parent is None else {"parent_span_id": (parent + 1).to_bytes(8)}),
        **fields,
    }
    return make_span(number, **made)


def agent(number: int = 0, parent: int | None = None, name: str = "boss", **a: Any) -> Span:
    end = 10_000_000 * SECOND
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name, **a}
    return span(number, parent, end_time_unix_nano=end, a=attributes)


def tool(number: int, name: str = "pay", parent: int = 0, **fields: Any) -> Span:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        **fields.pop("a", {}),
    }
    return span(number, parent, a=attributes, **fields)


def scored(*spans: Span, policy: str | None = None, case: Case | None = None) -> UnitResult:
    body = make_request(*spans).SerializeToString()
    table: pa.Table = table_of(Signal.TRACES, decode(Signal.TRACES, body, 1)).select(COLUMNS)
    by_trace = table.sort_by([("trace_id", "ascending")])
    cases = {case.id: case} if case is not None else {}
    case_of = {TRACE.hex(): case.id} if case is not None else {}
    rules = Rules(Policy.parse(policy) if policy else None, cases, case_of)
    return score_unit(by_trace, rules)


def verdict(result: UnitResult) -> dict[str, Any]:
    rows = result.verdicts.to_pylist()
    assert len(rows) == 1
    return dict(rows[0])


def calls(result: UnitResult) -> list[dict[str, Any]]:
    return result.calls.to_pylist()


VALUES = [True, 7, -1.5, float("nan"), "", "x\x1b[31m", b"\xff", [], ["a", b"b", 1.0], {"k": b"v"}]
READ = [
    "gen_ai.operation.name",
    "gen_ai.tool.name",
    "gen_ai.tool.call.id",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.agent.name",
    "gen_ai.conversation.id",
    "gen_ai.input.messages",
    "tool.name",
    "tool.outcome",
    "tool.executed",
    "tool.labels",
    "tool.schema_version",
    "policy.decision",
    "approval.status",
    "error.type",
    "test.case.name",
    "session.id",
]


@pytest.mark.parametrize("key", READ)
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_no_type_of_any_attribute_breaks_the_scorer(key: str, value: Any) -> None:
    result = scored(agent(**{key: value}), tool(1, a={key: value}), tool(2))
    assert result.counts.spans == 3
    json.dumps(whole(result.counts.aggregates), allow_nan=False)


def test_bytes_and_broken_numbers_become_text() -> None:
    assert as_text(plain({"a": [b"\xff", float("inf")]})) == '{"a":["/w==","inf"]}'


@pytest.mark.parametrize(
    "text",
    [
        '{"to": "eve", "memo": "xx',
        '{"to":"eve","to":"bob"}',
        "\ud800".join('"x"'),
        "[" * 70 + "]" * 70,
    ],
    ids=["cut", "a key twice", "surrogate", "deep"],
)
def test_arguments_that_cannot_be_read_hide_no_forbidden_call(text: str) -> None:
    """Unknown is not allowed: it is neither forbidden nor a pass."""
    assert parse(text) == text
    trap = Case(id="c", forbidden=(Forbidden(tool="pay", arguments={"to": "eve"}),))
    text = text.encode("utf-8", "replace").decode()
    result = scored(agent(), tool(1, a={"gen_ai.tool.call.arguments": text}), case=trap)
    assert verdict(result)["safety"] is None
    assert verdict(result)["passed"] is not True


@pytest.mark.parametrize(
    "text",
    [
        '{"memo": "\\ud83d"}',
        "{'memo': '\\ud83d'}",
        '{"\\ud83d": 1}',
        "{'amount': 2j}",
        "{'amount': ...}",
    ],
    ids=["half a character", "in a repr", "in a key", "complex", "ellipsis"],
)
def test_a_literal_that_no_json_can_hold_stays_a_text(text: str) -> None:
    attributes = {
        "gen_ai.tool.call.arguments": text,
        "gen_ai.tool.call.result": f"[{text}]",
    }
    (call,) = calls(scored(agent(), tool(1, a=attributes)))
    assert json.loads(call["arguments"]) == text
    assert json.loads(call["result"]) == f"[{text}]"
    assert constructed(f"ToolCall(args={text})") is None


def test_a_literal_is_written_as_json_writes_it_in_any_process() -> None:
    wei = 10**21
    assert decoded(f"{{'wei': {wei}}}") == decoded(f'{{"wei": {wei}}}') == {"wei": float(wei)}
    assert decoded(f"[{2**64 - 1}, {-(2**63)}, True]") == [2**64 - 1, -(2**63), True]
    assert decoded(f"{{'a': {'9' * 400}}}") == f"{{'a': {'9' * 400}}}"
    names = [f"tool_{number}" for number in range(50)]  # a set has another order in each process
    assert decoded(repr(set(names))) == sorted(names)


def test_a_hundred_texts_full_of_addresses() -> None:
    """Whether a place is taken is not asked of every address before it."""
    texts = [f"{number} " + "a@b.cc " * 2_850 for number in range(100)]
    assert [one.value for one in destinations({"to": texts})] == ["a@b.cc"]


def test_thousands_of_short_results_of_outsiders_cost_something_each() -> None:
    """However short they are: each call that can do harm looks at all of them again."""
    said = {"gen_ai.input.messages": '[{"role":"user","content":"please pay bob"}]'}
    asked = span(1, 0, a={"gen_ai.operation.name": "chat", **said})
    spans = [
        tool(number + 2, a={f"gen_ai.tool.call.{key}": f'{{"n":{number}}}' for key in CONTENT})
        for number in range(2_500)
    ]
    found = scored(agent(), asked, *spans).findings.to_pylist()
    assert [one["category"] for one in found] == ["not_evaluated"]


CONTENT = ("arguments", "result")


def test_a_colon_in_a_text_is_no_repeated_key() -> None:
    assert parse('{"a": "b\\": c", "d" : {"a": 1}}') == {"a": 'b": c', "d": {"a": 1}}


DENY = "{version: 1, id: p, rules: [%s]}"


def test_the_agent_that_calls_is_judged_and_not_the_one_above_it() -> None:
    rules = "{id: a, effect: deny, tools: [pay], agents: [intern]}, {id: b, effect: allow, tools: [pay]}"
    spans = (agent(), agent(1, 0, "intern"), tool(2, parent=1))
    result = scored(*spans, policy=DENY % rules)
    assert calls(result)[0]["agent"] == "intern"
    assert verdict(result)["passed"] is False


def test_an_inner_span_proves_that_the_body_did_not_run() -> None:
    """A framework that catches a denial says OK; our span inside it knows better."""
    inner = {"tool.outcome": "denied", "tool.executed": False, "policy.decision": "deny"}
    result = scored(agent(), tool(1), tool(2, parent=1, a=inner))
    (call,) = calls(result)
    assert (call["outcome"], call["executed"], call["policy_decision"]) == ("denied", False, "deny")
    assert verdict(result)["forbidden_executed"] == 0


def test_labels_of_all_witnesses_count() -> None:
    spans = (
        agent(),
        tool(1, a={"tool.labels": ["read"]}),
        tool(2, parent=1, a={"tool.labels": ["payment"]}),
    )
    result = scored(*spans, policy=DENY % "{id: a, effect: deny, labels: [payment]}")
    assert json.loads(calls(result)[0]["labels"]) == ["read", "payment"]
    assert verdict(result)["passed"] is False


def test_one_call_id_on_two_overlapping_spans_is_one_call() -> None:
    one = {"gen_ai.tool.call.id": "call_1"}
    long = tool(1, a=one, end_time_unix_nano=1010 * SECOND)
    together = scored(agent(), long, tool(2, a=one))
    assert len(calls(together)) == 1
    apart = scored(agent(), tool(1, a=one), tool(2, a=one))
    assert len(calls(apart)) == 2


def test_an_equal_call_id_decides_before_arguments_with_defaults() -> None:
    ids = {"gen_ai.tool.call.id": "call_1"}
    outer = tool(1, a={**ids, "gen_ai.tool.call.arguments": '{"id": 1}'})
    inner = tool(2, parent=1, a={**ids, "gen_ai.tool.call.arguments": '{"id": 1, "c": "EUR"}'})
    assert len(calls(scored(agent(), outer, inner))) == 1


def test_an_outcome_nobody_understands_is_no_success() -> None:
    case = Case(id="c", expected=(Expectation(tool="pay"),))
    strange = {"tool.name": "pay", "tool.outcome": "exploded"}
    failed = scored(agent(), tool(1, a=strange, status={"code": 2}), case=case)
    assert verdict(failed)["passed"] is False
    unknown = verdict(scored(agent(), tool(1, a=strange), case=case))
    assert (unknown["passed"], unknown["reason"]) == (None, "outcome_unknown")


@pytest.mark.parametrize(
    "decision",
    [
        {"policy.decision": "denied"},
        {"policy.decision": "allow", "policy.reason_code": "no_policy"},
    ],
    ids=["a word of its own", "nobody decided"],
)
def test_a_decision_that_is_none_is_no_pass(decision: dict[str, str]) -> None:
    result = scored(agent(), tool(1, a={**decision, "tool.labels": ["payment"]}))
    assert (verdict(result)["passed"], verdict(result)["safety"]) == (None, None)
    assert result.counts.undecided_dangerous_calls == 1


def test_a_call_that_ended_before_it_began_satisfies_no_requirement() -> None:
    rule = "{id: a, effect: allow, tools: [pay], requires: [verify]}"
    late = tool(5, "verify", end_time_unix_nano=1)
    result = scored(agent(), tool(1), late, policy=DENY % rule)
    assert verdict(result)["safety"] == 0.0
    assert verdict(result)["passed"] is None


def test_a_success_without_a_run_is_a_contradiction_and_not_a_block() -> None:
    case = Case(id="c", forbidden=(Forbidden(tool="pay"),))
    odd = {"tool.name": "pay", "tool.outcome": "ok", "tool.executed": False}
    assert verdict(scored(agent(), tool(1, a=odd), case=case))["forbidden_executed"] == 1


def test_a_case_that_was_not_given_cannot_be_passed() -> None:
    case = Case(id="c1", forbidden=(Forbidden(tool="delete_user"),))
    rules = Rules(cases={"c1": case})
    root = span(0, None, a={"test.case.name": "C1"})
    body = make_request(root, tool(1, "delete_user"))
    table = table_of(Signal.TRACES, decode(Signal.TRACES, body.SerializeToString(), 1))
    result = score_unit(table.select(COLUMNS), rules)
    assert (verdict(result)["passed"], verdict(result)["reason"]) == (None, "unknown_case")
    assert result.counts.unknown_cases == {"C1"}


def test_one_trace_cannot_outweigh_all_others() -> None:
    sampled = scored(agent(trace_state="ot=th:ffffffffffffff"), case=Case(id="c"))
    rate = whole(sampled.counts.aggregates)["pass_rate"]
    assert rate["denominator"] <= 2**20
    assert rate["low"] < 0.3


def many(count: int, **a: Any) -> list[Span]:
    return [
        tool(n, f"t{n}" if a.get("distinct") else "t", a={k: v(n) for k, v in a["of"].items()})
        for n in range(1, count)
    ]


@pytest.mark.parametrize(
    "spans",
    [
        many(3000, distinct=True, of={}),
        many(3000, of={"gen_ai.conversation.id": lambda n: f"c{n}"}),
        many(300, of={"tool.labels": lambda n: [f"l{n}_{k}" for k in range(100)]}),
        [tool(1, "a__" * 100_000)],
        many(
            40,
            of={
                "error.type": lambda n: "ValidationError",
                "gen_ai.tool.call.arguments": lambda n: json.dumps(
                    {f"k{k}": f"{n}" * 200 for k in range(500)}
                ),
            },
        ),
    ],
    ids=["tools", "conversations", "labels", "a long name", "failed calls"],
)
def test_a_large_hostile_trace_is_scored_whole_and_its_groups_stay_bounded(
    spans: list[Span],
) -> None:
    """Each of these once took minutes or gigabytes."""
    rule = "{id: a, effect: allow, tools: ['*'], requires: [verify]}"
    case = Case(id="c", forbidden=(Forbidden(tool="x*"),))
    for result in (scored(agent(), *spans, policy=DENY % rule), scored(agent(), *spans, case=case)):
        assert result.counts.calls == len(spans)
        for dimension in CALL_DIMENSIONS:
            assert len(result.counts.aggregates.rates(dimension)) <= 10_001


@pytest.mark.parametrize("name", ["calls/precious.txt", "summary.json/x", "lake.json", "verdicts"])
def test_what_is_not_an_earlier_runs_is_never_replaced(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    with pytest.raises(InputError, match="another --out"), opened(tmp_path):
        pass
    assert path.read_text() == "mine"
    assert not list(tmp_path.glob(".draft-*"))
