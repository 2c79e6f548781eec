"""Reading whole traces as columns gives the rows that reading them span by span gives."""

import importlib.util
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolverdict.collector import schema
from toolverdict.instrument.policy import Policy
from toolverdict.scoring.columns.read import PlainTraces
from toolverdict.scoring.columns.score import PlainScorer
from toolverdict.scoring.conversations import trajectories_of
from toolverdict.scoring.model import Trajectory
from toolverdict.scoring.spans import COLUMNS, traces
from toolverdict.scoring.tables import calls_table, findings_table, verdicts_table
from toolverdict.scoring.unit import Rules, judge
from toolverdict.scoring.verdicts import Judged

POLICY = Policy.parse("""
version: 1
id: shop
rules:
  - {id: never, effect: deny, tools: [drop]}
  - {id: first, effect: allow, tools: [pay], requires: [look]}
  - {id: ask, effect: require_approval, labels: [permission]}
  - {id: rest, effect: allow, tools: [look, find, mail]}
""")

_RESOURCES = [{"service.name": "shop", "service.version": "3"}, {"service.name": "shop"}]


def _judge(rules: Rules) -> Callable[[Trajectory], Judged | None]:
    return lambda trajectory: judge(trajectory, rules)


def _by_span(table: pa.Table, rules: Rules) -> list[Judged]:
    found = (judge(one, rules) for one in trajectories_of(traces(table)))
    return [one for one in found if one is not None]


def _sorted(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: orjson.dumps(row, default=str))


def check(table: pa.Table, rules: Rules) -> PlainTraces:
    """Both ways to score the plain traces of a table agree in every column of every row."""
    plain = PlainTraces(table)
    scored = PlainScorer(_judge(rules), rules.policy).score(plain)
    judged = _by_span(plain.table.filter(pa.array(plain.plain)), rules)
    assert _sorted(scored.calls) == _sorted(calls_table(judged))
    assert _sorted(scored.verdicts) == _sorted(verdicts_table(judged))
    assert _sorted(scored.findings) == _sorted(findings_table(judged))
    return plain


# --- recordings -----------------------------------------------------------------------------------


def _scorecard() -> Any:
    path = Path(__file__).parents[2] / "dialects" / "scorecard.py"
    spec = importlib.util.spec_from_file_location("scorecard_for_columns", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_SCORECARD = _scorecard()


@pytest.mark.parametrize("name", _SCORECARD.names())
@pytest.mark.parametrize("policy", [None, POLICY])
def test_recordings(name: str, policy: Policy | None) -> None:
    spans, _ = _SCORECARD.tables(_SCORECARD.requests(name))
    check(spans, Rules(policy=policy))


def test_recordings_together_and_some_of_them_are_plain() -> None:
    tables = [_SCORECARD.tables(_SCORECARD.requests(name))[0] for name in _SCORECARD.names()]
    together = pa.concat_tables(tables).unify_dictionaries()
    plain = check(_in_order(together), Rules())
    assert len(plain.traces.number) > 0


def _in_order(table: pa.Table) -> pa.Table:
    keys = ("trace_id", "start_time_unix_nano", "span_id")
    return table.sort_by([(key, "ascending") for key in keys])


# --- traces of any form ---------------------------------------------------------------------------

_TOOLS = ["look", "find", "pay", "drop", "mail"]
_HASHES = ["hmac-sha256:aa", "hmac-sha256:bb", "hmac-sha256:cc", None, ""]


def _ours(draw: Any, odd: bool) -> dict[str, Any]:
    tool = draw(st.sampled_from(_TOOLS))
    outcome = draw(
        st.sampled_from(
            ["ok"] * 4
            + ["error", "empty", "timeout", "invalid_arguments", "denied", "pending_approval", "?"]
        )
    )
    labels = {"pay": ["payment"], "drop": ["write", "permission"], "find": ["untrusted"]}
    executed = outcome not in ("denied", "pending_approval")
    attributes: dict[str, Any] = {
        "tool.labels": labels.get(tool, []),
        "tool.executed": draw(st.sampled_from([executed, executed, executed, not executed])),
    }
    atoms = st.lists(st.sampled_from(["a1", "b2", "c3"]))
    if draw(st.booleans()):
        name = "taint.result_atoms" if tool == "find" else "taint.argument_atoms"
        attributes |= {name: draw(atoms), "taint.atoms.key_id": draw(st.sampled_from(["k", "l"]))}
    if odd and draw(st.booleans()):
        # What looks like one of those keys, and is a key or a text of somebody else.
        attributes[draw(st.sampled_from([',"taint.x_atoms', "x"]))] = draw(
            st.sampled_from(["a", '{"gen_ai.usage.x":5', ["b"], 7, {"gen_ai.response.id": "y"}])
        )
    return {
        "name": f"tool.call {tool}",
        "attributes": attributes,
        "tool.name": tool,
        "tool.outcome": outcome,
        "tool.args_hash": draw(st.sampled_from(_HASHES)),
        "tool.schema_version": draw(st.sampled_from(["1", "1", "2", None])),
        "policy.decision": draw(st.sampled_from(["allow", "allow", "deny", None])),
        "policy.reason_code": draw(st.sampled_from(["rule", "no_policy", None])),
        "approval.status": draw(st.sampled_from([None] * 6 + ["approved", "rejected"])),
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": draw(
            st.sampled_from([tool, f"mcp__shop__{tool}"] if odd else [tool, f"shop.{tool}"])
        ),
        "error.type": None if outcome == "ok" else draw(st.sampled_from(["ValueError", None])),
        **_captured(draw, odd),
    }


def _genai(draw: Any, odd: bool) -> dict[str, Any]:
    tool = draw(st.sampled_from(_TOOLS))
    return {
        "name": f"execute_tool {tool}",
        "attributes": {},
        "gen_ai.operation.name": draw(st.sampled_from(["execute_tool", "execute_tool", None])),
        "gen_ai.tool.name": tool,
        "error.type": draw(st.sampled_from([None, None, "TimeoutError", "tool_error"])),
        "events": draw(
            st.sampled_from(
                [
                    None,
                    None,
                    [{"name": "exception", "attributes": {"exception.type": "KeyError"}}],
                    [{"name": "gen_ai.choice", "attributes": {"message": "{}"}}],
                ]
            )
        ),
        **_captured(draw, odd),
    }


def _captured(draw: Any, odd: bool) -> dict[str, Any]:
    return {
        "gen_ai.tool.call.id": draw(
            st.sampled_from(["c1", "c2", "look__c3", '"q"'] if odd else [None])
        ),
        "gen_ai.tool.call.arguments": draw(
            st.sampled_from([None] * 4 + ['{"b":1, "a":"x"}', "{'a': 1}", "no", "__REDACTED__"])
        ),
        "gen_ai.tool.call.result": draw(
            st.sampled_from([None] * 4 + ["", "{}", '{"error":"x"}', '{"tool_call_id":"z"}'])
        ),
    }


def _inside(draw: Any, odd: bool) -> dict[str, Any]:
    tool = draw(st.sampled_from(_TOOLS))
    named = draw(st.sampled_from([None, tool]))
    return {"name": f"execute_tool {tool}", "attributes": {}, "gen_ai.tool.name": named}


def _agent(draw: Any, odd: bool) -> dict[str, Any]:
    name = draw(st.sampled_from(["desk", "shop", None]))
    return {
        "name": f"invoke_agent {name}",
        "attributes": draw(
            st.sampled_from(
                [
                    {},
                    {"gen_ai.agent.version": "7"},
                    {"taint.user_atoms": ["a1"], "taint.atoms.key_id": "k"},
                    {"taint.user_atoms": ["b2"], "taint.atoms.key_id": "k"},
                ]
            )
        ),
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": name,
        "gen_ai.conversation.id": draw(
            st.sampled_from([None, "k1", "k2"] if odd else [None, "k1"])
        ),
    }


def _model(draw: Any, odd: bool) -> dict[str, Any]:
    return {
        "name": "chat m",
        "attributes": draw(
            st.sampled_from(
                [
                    {},
                    {"gen_ai.usage.input_tokens": 3, "gen_ai.usage.output_tokens": 4},
                    {"gen_ai.usage.input_tokens": 9, "gen_ai.response.id": "k1"},
                    {"gen_ai.tool.definitions": "[]"},
                ][: 4 if odd else 3]
            )
        ),
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": draw(st.sampled_from(["m", "n", None])),
        "gen_ai.output.messages": draw(st.sampled_from([None] * 6 + ["[]"] if odd else [None])),
    }


def _other(draw: Any, odd: bool) -> dict[str, Any]:
    attributes: dict[str, Any] = draw(
        st.sampled_from(
            [{}, {"http.url": "x"}, {"langfuse.observation.type": "tool"}, {"user.id": "u"}]
        )
    )
    return {
        "name": draw(st.sampled_from(["GET", "agent_run", "tool.call look"])),
        "attributes": attributes,
        "session.id": draw(st.sampled_from([None, None, "s1"])),
        "test.case.name": draw(st.sampled_from([None] * 5 + ["case-1"])),
    }


@st.composite
def tables(draw: Any) -> pa.Table:
    """A few traces of a few spans each, in the order of a lake."""
    rows = []
    for number in range(draw(st.integers(1, 4))):
        ids: list[str] = []
        odd = draw(st.integers(0, 3)) == 0
        for index in range(draw(st.integers(1, 9))):
            others = [_genai, _other] if odd else []
            make = draw(st.sampled_from([_ours, _ours, _ours, _inside, _agent, _model, *others]))
            if not ids and not odd:
                make = _agent
            parent = draw(
                st.sampled_from([*ids[:1] * 20, *ids, *([None, "f" * 16] if odd else [])] or [None])
            )
            span_id = f"{draw(st.integers(1, 255)):02x}{index:02x}{number:012x}"
            start = draw(st.integers(1, 30))
            end = draw(
                st.sampled_from([start + 1, start + 8, start, *([start - 1, 0] if odd else [])])
            )
            rows.append(
                {
                    "trace_id": f"{number + 1:032x}",
                    "span_id": span_id,
                    "parent_span_id": parent,
                    "start_time_unix_nano": start * 1_000_000_000,
                    "end_time_unix_nano": end * 1_000_000_000,
                    "kind": draw(st.sampled_from([1, 1, 2])),
                    "status_code": draw(st.sampled_from([0, 0, 0, 2])),
                    "status_message": "",
                    "trace_state": draw(st.sampled_from(["", "", "ot=th:8", "ot=p:8;r:62"])),
                    "resource_attributes": draw(st.sampled_from(_RESOURCES)),
                    **make(draw, odd),
                }
            )
            ids.append(span_id)
    return _in_order(_table(rows))


def _table(rows: Iterable[dict[str, Any]]) -> pa.Table:
    wanted = pa.schema([schema.SPANS.field(name) for name in COLUMNS])
    return pa.Table.from_pylist([{**row, **_texts(row)} for row in rows], schema=wanted)


def _texts(row: dict[str, Any]) -> dict[str, str]:
    texts = {
        name: orjson.dumps(row[name]).decode() for name in ("attributes", "resource_attributes")
    }
    if row.get("events"):
        events = [
            {"time_unix_nano": 5, "dropped_attributes_count": 0, **event} for event in row["events"]
        ]
        texts["events"] = orjson.dumps(events).decode()
    return texts


@settings(max_examples=300)
@given(tables(), st.sampled_from([None, POLICY]))
def test_traces_of_any_form(table: pa.Table, policy: Policy | None) -> None:
    check(table, Rules(policy=policy))


@given(tables())
def test_every_row_is_read_by_one_of_both(table: pa.Table) -> None:
    plain = PlainTraces(table)
    whole = {row["trace_id"] for row in plain.table.filter(pa.array(plain.plain)).to_pylist()}
    left = {row["trace_id"] for row in plain.table.filter(pa.array(~plain.plain)).to_pylist()}
    assert not whole & left
