"""Aggregates: what they count, and that parts, order and sampling change nothing."""

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.errors import InputError
from toolverdict.scoring.intervals import Moments, cluster_moments
from toolverdict.scoring.intervals import total as total_of_moments
from toolverdict.scoring.model import Share
from toolverdict.scoring.rates import dimensions
from toolverdict.scoring.rates.aggregate import CALL_COLUMNS, VERDICT_COLUMNS, Aggregates, total
from toolverdict.scoring.rates.shares import with_shares
from toolverdict.scoring.rates.testing import live_traffic

WEIGHTS = st.sampled_from([None, 1.0, 10.0, 3.3333330154418945, 1024.5])
few = settings(max_examples=settings().max_examples // 4)
Row = dict[str, Any]
Share3 = tuple[float, float, float]


def with_weights(table: pa.Table, weight_of: dict[str, float | None]) -> pa.Table:
    weights = [weight_of[str(one)] for one in table["trajectory_id"].to_pylist()]
    place = table.column_names.index("weight")
    return table.set_column(place, "weight", pa.array(weights, pa.float64()))


@st.composite
def traffic(draw: st.DrawFn) -> tuple[pa.Table, pa.Table]:
    """Weighted calls and verdicts; some tools' policy decided nothing."""
    calls, verdicts = live_traffic(draw(st.integers(0, 12)), draw(st.integers(0, 10_000)))
    ids = verdicts["trajectory_id"].to_pylist()
    weight_of = {one: draw(WEIGHTS) for one in ids}
    if draw(st.booleans()):
        undecided = pc.equal(calls["agent"].cast(pa.string()), pa.scalar("desk"))
        for column, value in (("compliant", None), ("policy_decision", None)):
            place = calls.column_names.index(column)
            kept = pc.if_else(
                undecided, pa.scalar(value, pa.string()), pc.cast(calls[column], pa.string())
            )
            calls = calls.set_column(place, column, kept.cast(calls.schema.field(column).type))
    return with_weights(calls, weight_of), with_weights(verdicts, weight_of)


def of_call(row: Row) -> Iterator[tuple[str, Share3]]:
    """What a call adds to each rate, read row by row, as the rates are described."""
    forbidden, compliant = row["forbidden"], row["compliant"]
    attempted = forbidden in ("executed", "blocked", "unknown")
    undecided = forbidden == "undecided"
    yield "forbidden_attempt_rate", share(None if undecided else attempted)
    yield (
        "forbidden_call_rate",
        share(None if undecided else attempted and forbidden != "blocked"),
    )
    yield "call_compliance", share(compliant)
    if row["needs_approval"]:
        yield "approval_rate", share(not row["approval_missing"])
    outcome = Outcome(row["outcome"])
    for one in Outcome:
        if one is not Outcome.OK:
            yield f"{one.value}_rate", share(outcome is one)
    is_open = outcome in (Outcome.UNKNOWN, Outcome.PENDING_APPROVAL)
    yield "failure_rate", share(None if is_open else outcome.failed)
    for kind, rate in (
        ("retry_waste", "retry_waste_rate"),
        ("transient_retry", "transient_retry_rate"),
        ("duplicate", "duplicate_call_rate"),
        ("loop", "loop_rate"),
        ("polling", "polling_rate"),
    ):
        yield rate, share(row["repeat"] == kind)
    decision = row["policy_decision"]
    yield "policy_denial_rate", share(None if decision is None else decision == "deny")
    status = row["approval_status"]
    yield "approval_asked_rate", share(status is not None)
    if status is not None:
        for word, rate in (
            ("approved", "granted"),
            ("rejected", "refused"),
            ("expired", "expired"),
        ):
            yield f"approval_{rate}_rate", share(status == word)
    if row["handling"] is not None:
        well = {"well": True, "badly": False, "undecided": None}[row["handling"]]
        yield "result_handling", share(well)


def of_verdict(row: Row) -> Iterator[tuple[str, Share3]]:
    yield "pass_rate", share(row["passed"])
    yield "safety_compliance", share(None if row["safety"] is None else row["safety"] == 1)


def share(hit: bool | None) -> Share3:
    return (0, 0, 1) if hit is None else (float(hit), 1, 0)


def groups(dimension: str, row: Row) -> list[str]:
    if dimension == "whole":
        return [""]
    if dimension == "label":
        return list(dict.fromkeys(orjson.loads(row["labels"])))
    if dimension == "schema_version":
        return [f"{row['tool']}@{row['schema_version']}"] if row["schema_version"] else []
    if dimension == "time":
        return [row["start_time"].strftime("%Y-%m-%dT%H:00:00Z")]
    return [row[dimension]] if row[dimension] is not None else []


def row_by_row(calls: pa.Table, verdicts: pa.Table, dimension: str) -> Any:
    """The moments of each rate by group, with nothing but loops."""
    clusters: dict[tuple[str, str, str], list[tuple[Share, float]]] = defaultdict(list)
    for table, shares in ((calls, of_call), (verdicts, of_verdict)):
        if table is verdicts and dimension not in dimensions.TRAJECTORY_DIMENSIONS:
            continue
        for row in table.to_pylist():
            for group in groups(dimension, row):
                for rate, (hits, of, unseen) in shares(row):
                    one = Share(hits, of, unseen)
                    member = (
                        (one.times(None), 1.0) if row["weight"] is None else (one, row["weight"])
                    )
                    clusters[group, rate, row["trajectory_id"]].append(member)
    found: dict[str, dict[str, list[Moments]]] = defaultdict(lambda: defaultdict(list))
    for (group, rate, _), members in clusters.items():
        found[group][rate].append(cluster_moments(members))
    return {
        group: {rate: total_of_moments(parts) for rate, parts in rates.items()}
        for group, rates in found.items()
    }


@few
@given(traffic())
def test_every_rate_of_every_group_is_what_reading_row_by_row_gives(
    tables: tuple[pa.Table, pa.Table],
) -> None:
    aggregates = Aggregates.of(*tables)
    for dimension in dimensions.CALL_DIMENSIONS:
        expected = row_by_row(*tables, dimension)
        found = aggregates.rates(dimension)
        assert found.keys() == expected.keys()
        for group, rates in expected.items():
            assert found[group].keys() == rates.keys()
            for rate, moments in rates.items():
                one = found[group][rate]
                assert vars_of(one) == pytest.approx(vars_of(moments), rel=1e-9, abs=1e-5), rate
                assert (one.hits, one.of, one.unseen) == (moments.hits, moments.of, moments.unseen)


def vars_of(moments: Moments) -> dict[str, float]:
    return {name: getattr(moments, name) for name in Moments.__slots__}


@few
@given(traffic(), st.data())
def test_parts_add_up_to_the_whole_in_any_order(
    tables: tuple[pa.Table, pa.Table], data: st.DataObject
) -> None:
    """Bit for bit, however trajectories are dealt out and rows are shuffled."""
    calls, verdicts = tables
    whole = Aggregates.of(calls, verdicts)
    part_of = {one: data.draw(st.integers(0, 2)) for one in verdicts["trajectory_id"].to_pylist()}
    random = np.random.default_rng(data.draw(st.integers(0, 1000)))
    parts = []
    for part in data.draw(st.permutations(range(3))):
        shuffled = []
        for table in (calls, verdicts):
            rows = [
                i
                for i, one in enumerate(table["trajectory_id"].to_pylist())
                if part_of[one] == part
            ]
            shuffled.append(table.take(pa.array(random.permutation(rows), pa.int64())))
        parts.append(Aggregates.of(shuffled[0], shuffled[1]))
    assert parts[0] + (parts[1] + parts[2]) == whole
    assert total(parts) == whole
    assert whole + Aggregates.nothing() == whole


def test_labels_count_a_call_in_each_of_them_once() -> None:
    calls, verdicts = live_traffic(50)
    labels = pa.array(['["payment","write","payment"]', "[]", '["write"]'] * calls.num_rows)
    calls = replaced(calls, "labels", labels.slice(0, calls.num_rows))
    by_label = Aggregates.of(calls, verdicts).rates("label")
    size = {label: rates["retry_waste_rate"].of for label, rates in by_label.items()}
    thirds = [len(range(first, calls.num_rows, 3)) for first in range(3)]
    assert size == {"payment": thirds[0], "write": thirds[0] + thirds[2]}


def test_hostile_names_are_one_group_past_the_largest() -> None:
    """The tools that are really used keep their rates, whatever names are made up beside them."""
    calls, verdicts = live_traffic(6_000)
    many = pa.array([f"made up {number}" for number in range(calls.num_rows)])
    real = pa.array(np.arange(calls.num_rows) % 3 == 0)
    named = replaced(calls, "tool", pc.if_else(real, "real", many).dictionary_encode())
    hostile = replaced(named, "error_type", many.dictionary_encode())
    parts = [Aggregates.of(hostile, verdicts), Aggregates.of(calls, verdicts)]
    for aggregates in (parts[0], total(parts)):
        by_tool = aggregates.rates("tool")
        assert len(by_tool) == dimensions.MOST_GROUPS + 1
        assert by_tool["real"]["retry_waste_rate"].of == real.sum().as_py()
        whole = aggregates.rates()[""]["retry_waste_rate"]
        assert sum(rates["retry_waste_rate"].of for rates in by_tool.values()) == whole.of
        assert aggregates.marks.num_rows < 40_000
        codes = aggregates.errors()[""]
        assert (
            sum(one.hits for one in codes.values()) == aggregates.rates()[""]["failure_rate"].hits
        )


def test_errors_are_told_by_kind_and_code_of_the_calls_of_the_tool() -> None:
    calls, verdicts = live_traffic(500)
    found = Aggregates.of(calls, verdicts).errors("tool")
    for tool, rows in by(calls.to_pylist(), "tool").items():
        failed: dict[tuple[str, str], int] = defaultdict(int)
        for row in rows:
            if Outcome(row["outcome"]).failed:
                failed[row["outcome"], row["error_type"] or "(none)"] += 1
        got = {key: (moments.hits, moments.of) for key, moments in found.get(tool, {}).items()}
        assert got == {key: (count, len(rows)) for key, count in failed.items()}


def test_calls_of_one_trajectory_are_no_independent_evidence() -> None:
    """Twenty calls that fail together say as little as one."""
    calls, verdicts = live_traffic(200, calls_each=20)
    first = pc.index_in(calls["trajectory_id"], value_set=verdicts["trajectory_id"].slice(0, 20))
    together = pc.if_else(pc.is_valid(first), "timeout", "ok").combine_chunks().dictionary_encode()
    rate = Aggregates.of(replaced(calls, "outcome", together), verdicts).rates()[""]["timeout_rate"]
    low, high = rate.interval()
    assert rate.effective < 400 < calls.num_rows
    assert high - low > 0.05


def test_what_nobody_knows_the_weight_of_is_unseen() -> None:
    calls, verdicts = live_traffic(20)
    weightless = (
        replaced(table, "weight", pa.nulls(table.num_rows, pa.float64()))
        for table in (calls, verdicts)
    )
    unknown = Aggregates.of(next(weightless), next(weightless))
    rates = unknown.rates()[""]
    assert (rates["timeout_rate"].of, rates["timeout_rate"].unseen) == (0, calls.num_rows)
    assert rates["pass_rate"].rate().value is None
    assert unknown.latency() == {}


def test_sampled_traffic_gives_the_rates_of_all_of_it() -> None:
    """Keeping failed trajectories and a fifth of the others is unbiased once weighted."""
    calls, verdicts = live_traffic(1_500, seed=3)
    truth = Aggregates.of(calls, verdicts).rates()[""]
    broken = pc.equal(calls["outcome"].cast(pa.string()), pa.scalar("error"))
    failed = set(calls.filter(broken)["trajectory_id"].to_pylist())
    random = np.random.default_rng(5)
    draws: dict[str, list[float]] = defaultdict(list)
    for _ in range(60):
        weight_of: dict[str, float | None] = {
            str(one): 1.0 if one in failed else 5.0
            for one in verdicts["trajectory_id"].to_pylist()
            if one in failed or random.random() < 0.2
        }
        ids = pa.array(list(weight_of))
        of_calls, of_verdicts = (
            with_weights(table.filter(pc.is_in(table["trajectory_id"], value_set=ids)), weight_of)
            for table in (calls, verdicts)
        )
        rates = Aggregates.of(of_calls, of_verdicts).rates()[""]
        for name in ("error_rate", "timeout_rate", "retry_waste_rate", "pass_rate"):
            draws[name].append(rates[name].value or 0.0)
    for name, values in draws.items():
        off = np.mean(values) - (truth[name].value or 0.0)
        assert abs(off) < 4 * np.std(values) / np.sqrt(len(values)) + 1e-4, name


def test_the_shares_of_trajectories_add_up_to_the_rates() -> None:
    calls, verdicts = live_traffic(300, seed=9)
    shares = with_shares(verdicts, calls)["shares"].to_pylist()
    rates = Aggregates.of(calls, verdicts).rates()[""]
    for name, moments in rates.items():
        parts = [orjson.loads(str(text)).get(name, (0, 0, 0)) for text in shares]
        sums = tuple(sum(part) for part in zip(*parts, strict=True))
        assert sums == (moments.hits, moments.of, moments.unseen), name


def test_scores_of_cases_stand_beside_the_shares_of_calls() -> None:
    calls, verdicts = live_traffic(3)
    scores = pa.array([None, '{"selection_accuracy":[1,2,0]}', None]).dictionary_encode()
    texts = with_shares(replaced(verdicts, "shares", scores), calls)["shares"].to_pylist()
    shares = [orjson.loads(str(text)) for text in texts]
    assert shares[1]["selection_accuracy"] == [1, 2, 0]
    assert all("timeout_rate" in one for one in shares)
    assert "selection_accuracy" not in shares[0]


def test_allowed_since_nobody_decided_is_no_decision_of_a_policy() -> None:
    calls, verdicts = live_traffic(20)
    nobody = pa.array(["no_policy"] * calls.num_rows).dictionary_encode()
    rates = Aggregates.of(replaced(calls, "policy_reason_code", nobody), verdicts).rates()[""]
    assert rates["policy_denial_rate"].rate().value is None
    assert rates["policy_denial_rate"].unseen == calls.num_rows


def test_times_are_groups_as_long_as_wanted() -> None:
    calls, verdicts = live_traffic(200)
    by_day = Aggregates.of(calls, verdicts, 86_400)
    assert len(by_day.rates("time")) <= 2
    with pytest.raises(ValueError, match="seconds do not add up"):
        by_day + Aggregates.of(calls, verdicts)


def test_latency_is_as_near_as_it_says() -> None:
    calls, verdicts = live_traffic(2_000)
    lasted = pc.subtract(calls["end_time_unix_nano"], calls["start_time_unix_nano"])
    ran = np.sort(lasted.filter(calls["executed"]).to_numpy()) / 1e9
    latency = Aggregates.of(calls, verdicts).latency()[""]
    assert latency.calls == len(ran)
    for value, rank in ((latency.p50, 0.5), (latency.p90, 0.9), (latency.p99, 0.99)):
        exact = ran[ceil(Fraction(rank).limit_denominator(100) * len(ran)) - 1]
        assert value == pytest.approx(exact, rel=0.0101)


def test_only_what_is_needed_is_read_and_what_is_missing_is_named() -> None:
    calls, verdicts = live_traffic(10)
    narrow = calls.select(CALL_COLUMNS), verdicts.select(VERDICT_COLUMNS)
    assert Aggregates.of(*narrow) == Aggregates.of(calls, verdicts)
    with pytest.raises(InputError, match="the column forbidden is missing"):
        Aggregates.of(calls.drop_columns("forbidden"), verdicts)


def replaced(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


def by(rows: list[Row], key: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[key]].append(row)
    return found


def test_two_tools_whose_versions_read_the_same_are_one_group_from_the_start() -> None:
    """``a@b`` at ``c`` and ``a`` at ``b@c``: one name is one row, before anything is added up."""
    calls, verdicts = live_traffic(4)
    for name, words in (("tool", ["a@b", "a"]), ("schema_version", ["c", "b@c"])):
        column = pa.array([words[row % 2] for row in range(calls.num_rows)])
        place = calls.column_names.index(name)
        calls = calls.set_column(place, name, column.cast(calls.schema.field(name).type))
    once = Aggregates.of(calls, verdicts)
    of = once.rates("schema_version")["a@b@c"]["failure_rate"]
    assert of.of + of.unseen == calls.num_rows
    assert once.rates("schema_version") == total([once]).rates("schema_version")
