"""The failure report: what is drawn, what is told of it, and what is left out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from toolverdict.scoring.errors import InputError
from toolverdict.scoring.failures.document import VERSION, as_document
from toolverdict.scoring.failures.markdown import as_markdown
from toolverdict.scoring.failures.outcome import Outcome
from toolverdict.scoring.failures.report import report
from toolverdict.scoring.model import ToolCall, Trajectory
from toolverdict.scoring.testing import call, trajectory_of

WriteOut = Callable[[Sequence[Sequence[Trajectory]]], Path]

SECRET = "dana@example.com"


def trajectory(number: int, *calls: ToolCall, **fields: Any) -> Trajectory:
    name = f"{number:032x}"
    spans = [
        replace(one, trace_id=name, span_id=f"{number:08x}{i:08x}") for i, one in enumerate(calls)
    ]
    return trajectory_of(*spans, trajectory_id=name, trace_id=name, **fields)


def forbidden(number: int, **fields: Any) -> Trajectory:
    denied = call("delete_user", {"mail": SECRET}, outcome="denied", error_type="ToolDenied")
    return trajectory(number, call("find", {"mail": SECRET}), denied, **fields)


def crashed(number: int) -> Trajectory:
    broken = call("pay", {"to": SECRET}, outcome="timeout", error_type="ReadTimeout")
    return trajectory(number, broken, root_failed=True)


def good(number: int) -> Trajectory:
    return trajectory(number, call("find", {"mail": SECRET}))


def test_failures_are_drawn_by_tool_error_and_category(write_out: WriteOut) -> None:
    out = write_out([[forbidden(1), good(2), crashed(3)], [forbidden(4)]])
    found = report(Outcome(out), sample=2, seed=0)
    assert found.failures == 3
    assert [(stratum.key, stratum.size) for stratum in found.strata] == [
        (("delete_user", "ToolDenied", "forbidden_call"), 2),
        (("pay", "ReadTimeout", "call_failed"), 1),
    ]
    assert [one.weight for one in found.drawn] == [2.0, 1.0]
    first = found.drawn[0]
    assert first.cause is not None
    assert (first.cause.category, first.reason) == ("forbidden_call", "forbidden_tool_called")
    assert [event.tool for event in first.timeline] == ["find", "delete_user"]
    assert [event.error for event in first.timeline] == [None, "ToolDenied"]
    assert first.others_call_it["AgentRx"] == "Guardrails Triggered"


def test_the_same_seed_draws_the_same_from_units_in_any_order(write_out: WriteOut) -> None:
    many = [forbidden(number) for number in range(30)]
    one = report(Outcome(write_out([many])), sample=5, seed=3)
    other = report(Outcome(write_out([many[20:][::-1], many[:20]])), sample=5, seed=3)
    assert as_document(one, "v") == as_document(other, "v")
    assert as_document(one, "v") != as_document(
        report(Outcome(write_out([many])), sample=5, seed=4), "v"
    )


def test_an_error_that_stands_is_told_though_nothing_could_be_judged(write_out: WriteOut) -> None:
    gaps = ("1 spans whose parent is missing",)
    broken = call("pay", {}, outcome="timeout")
    out = write_out([[trajectory(1, broken, gaps=gaps), trajectory(2, call("pay", {}), gaps=gaps)]])
    found = report(Outcome(out), sample=5, seed=0)
    (one,) = found.drawn
    assert (one.failure.judged, one.failure.category, one.failure.error) == (
        False,
        "call_failed",
        "timeout",
    )
    assert "could not be judged" in as_markdown(found)


def test_an_error_that_was_put_right_is_no_failure(write_out: WriteOut) -> None:
    again = trajectory(1, call("pay", {"a": 1}, outcome="timeout"), call("pay", {"a": 1}))
    assert report(Outcome(write_out([[again]])), sample=5, seed=0).failures == 0


@pytest.mark.parametrize("with_arguments", [False, True])
def test_values_are_told_only_where_they_were_asked_for(
    write_out: WriteOut, with_arguments: bool
) -> None:
    out = write_out([[forbidden(1, user=[SECRET]), crashed(2)]])
    found = report(Outcome(out), sample=5, seed=0, with_arguments=with_arguments)
    texts = (as_markdown(found), orjson.dumps(as_document(found, "v")).decode())
    assert all((SECRET in text.replace("\\", "")) is with_arguments for text in texts)


def test_a_long_timeline_is_cut_in_the_middle_and_says_so(write_out: WriteOut) -> None:
    calls = [call("find", {"n": n}) for n in range(500)]
    out = write_out([[trajectory(1, *calls, root_failed=True)]])
    (one,) = report(Outcome(out), sample=1, seed=0).drawn
    assert (len(one.timeline), one.calls_left_out) == (200, 300)
    assert [event.index for event in one.timeline[99:101]] == [99, 400]


def test_the_document_has_a_version_and_plain_values(write_out: WriteOut) -> None:
    document = as_document(report(Outcome(write_out([[crashed(1)]])), sample=5, seed=0), "1.2")
    assert (document["version"], document["toolverdict"]) == (VERSION, "1.2")
    assert orjson.loads(orjson.dumps(document))["strata"] == [
        {
            "tool": "pay",
            "error": "ReadTimeout",
            "category": "call_failed",
            "failures": 1,
            "weight": 1.0,
            "drawn": 1,
            "each_stands_for": 1.0,
        }
    ]


def test_by_fewer_dimensions_there_are_fewer_strata(write_out: WriteOut) -> None:
    out = write_out([[forbidden(1), crashed(2)]])
    found = report(Outcome(out), sample=5, seed=0, by=("category",))
    assert [stratum.key for stratum in found.strata] == [("call_failed",), ("forbidden_call",)]


def test_what_repeats_cost_and_what_came_after_unusable_results(write_out: WriteOut) -> None:
    timed_out = call("pay", {"a": 1}, outcome="timeout")
    again = trajectory(1, timed_out, call("pay", {"a": 1}, lasts=2.0), weight=4.0)
    unseen = trajectory(2, call("pay"), call("find", {}, outcome="empty"))
    out = write_out([[again], [unseen]])
    found = report(Outcome(out), sample=5, seed=0)
    cost = found.overview.repeats["transient_retry"]
    assert (cost.calls, cost.weight, cost.seconds, cost.timed) == (1, 1.0, 2.0, 1)
    assert (cost.tokens, cost.counted) == (0, 0)
    assert (found.overview.calls, found.overview.unseen) == (4, 1)
    assert [(one.outcome, one.reaction, one.calls) for one in found.overview.reactions] == [
        ("empty", "end", 1),
        ("timeout", "retry_same", 1),
    ]
    text = as_markdown(found)
    assert "- transient retry: 1 call (25.0%), 2.000 s" in text
    assert "- after timeout: made the same call again 1" in text


def test_nothing_failed(write_out: WriteOut) -> None:
    found = report(Outcome(write_out([[good(1)]])), sample=5, seed=0)
    assert (found.failures, found.strata, found.drawn) == (0, (), ())
    assert "0 trajectories failed" in as_markdown(found)


def test_a_folder_without_results_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no results"):
        Outcome(tmp_path)
