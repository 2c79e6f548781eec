"""Of one ``OUT``, the summary, ``toolverdict rates`` and the gate give the same rates."""

from pathlib import Path

import orjson
import pytest

from toolverdict.collector.testing import make_request, make_span, post, running_collector
from toolverdict.scoring import Inputs, score
from toolverdict.scoring.gate.evidence import read_results
from toolverdict.scoring.rates.reading import read_aggregates
from toolverdict.scoring.rates.report import GROUPS, grouped, whole

START = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
ENDINGS = ("ok", "timeout", "ok", "denied", "ok", "invalid_arguments", "ok", "empty")


def attributes(**values: str | bool) -> list[dict[str, object]]:
    return [
        {
            "key": key.replace("__", "."),
            "value": {"bool_value": v} if isinstance(v, bool) else {"string_value": v},
        }
        for key, v in values.items()
    ]


def request(number: int) -> bytes:
    """A trajectory of some calls, an hour after the one before."""
    trace = {"trace_id": bytes([number + 1] * 16)}
    root = make_span(
        1,
        **trace,
        start_time_unix_nano=START + number * 3600 * SECOND,
        end_time_unix_nano=START + number * 3600 * SECOND + 100 * SECOND,
        attributes=attributes(
            gen_ai__operation__name="invoke_agent", gen_ai__agent__name=f"agent {number % 2}"
        ),
    )
    calls = [
        make_span(
            2 + index,
            **trace,
            parent_span_id=root.span_id,
            start_time_unix_nano=START + (number * 3600 + 1 + index) * SECOND,
            end_time_unix_nano=START + (number * 3600 + 1 + index) * SECOND + 1_000_000 * index,
            attributes=attributes(
                gen_ai__operation__name="execute_tool",
                gen_ai__tool__name=f"tool {index % 3}",
                tool__name=f"tool {index % 3}",
                tool__outcome=ending,
                tool__executed=ending != "denied",
                tool__schema_version=f"{number % 3}",
                policy__decision="deny" if ending == "denied" else "allow",
                **({"approval__status": "approved"} if index == 2 else {}),
                **({"error__type": "E"} if ending not in ("ok", "empty") else {}),
            ),
        )
        for index, ending in enumerate(ENDINGS[: 3 + number])
    ]
    return make_request(root, *calls).SerializeToString()


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rates")
    with running_collector(folder / "lake") as collector:
        for number in range(6):
            assert post(f"{collector.http}/v1/traces", request(number)).status == 200
    score(Inputs(folder / "lake"), folder / "out")
    return folder / "out"


def test_rates_of_the_tables_are_those_of_the_summary(out: Path) -> None:
    summary = orjson.loads((out / "summary.json").read_bytes())
    aggregates = read_aggregates(out)
    assert whole(aggregates) == summary["rates"]
    for name, dimension in GROUPS.items():
        assert grouped(aggregates, dimension) == summary[name]
    assert len(summary["by_time"]) == 6
    assert set(summary["by_agent"]) == {"agent 0", "agent 1"}


def test_outcomes_have_rates_of_their_own(out: Path) -> None:
    """S25, S26: refusals, time-outs, arguments, permissions, approvals apart."""
    rates = orjson.loads((out / "summary.json").read_bytes())["rates"]
    calls = sum(3 + number for number in range(6))
    counted = {name: (rate["numerator"], rate["denominator"]) for name, rate in rates.items()}
    assert counted["timeout_rate"] == (6, calls)
    assert counted["invalid_arguments_rate"] == (3, calls)
    assert counted["policy_denial_rate"] == (5, calls)
    assert counted["permission_denied_rate"] == (0, calls)
    assert counted["approval_asked_rate"] == (6, calls)
    assert counted["approval_granted_rate"] == (6, 6)
    assert counted["failure_rate"] == (14, calls)


def test_errors_and_latency_are_told(out: Path) -> None:
    summary = orjson.loads((out / "summary.json").read_bytes())
    (timeout,) = (one for one in summary["errors"] if one["kind"] == "timeout")
    assert (timeout["tool"], timeout["code"], timeout["numerator"]) == ("tool 1", "E", 6)
    assert summary["latency"]["by_tool"]["tool 1"]["p50"] == pytest.approx(0.001, rel=0.011)
    assert summary["latency"]["by_agent"].keys() == {"agent 0", "agent 1"}


def test_the_gate_counts_the_same(out: Path) -> None:
    results = read_results(out)
    for name, rate in orjson.loads((out / "summary.json").read_bytes())["rates"].items():
        moments = results.moments(name)
        assert (moments.hits, moments.of) == (rate["numerator"], rate["denominator"]), name
