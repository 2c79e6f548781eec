"""CPU seconds to score cases, beside peers on the same cases, and the largest assignment.

    python tests/bench/cases.py [--peers PYTHON] [--cases 10000]

``PYTHON`` is the interpreter of an environment of its own with ``agentevals`` and ``ragas``; without
it only ours is measured. Half of the trajectories are as expected, the others have two calls swapped,
one argument wrong or one call missing. Ours gives the whole verdict with its findings; a peer gives
its one number.
"""

import argparse
import json
import random
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from toolverdict.scoring.cases.files import Place
from toolverdict.scoring.cases.formats import read_case
from toolverdict.scoring.cases.judge import judge
from toolverdict.scoring.cases.model import Case, Expectation
from toolverdict.scoring.model import Thresholds
from toolverdict.scoring.rates.testing import aggregates_of
from toolverdict.scoring.testing import call, trajectory_of
from toolverdict.scoring.verdicts import judge_trajectory

CALLS = 10


def made(count: int) -> list[dict[str, Any]]:
    """Cases with the calls that were made, the same in every run."""
    rng = random.Random(1)
    cases = []
    for number in range(count):
        expected: list[dict[str, Any]] = [
            {
                "tool": f"tool_{rng.randrange(6)}",
                "args": {
                    "order_id": f"o_{rng.randrange(99)}",
                    "amount": rng.randrange(99) / 4,
                    "note": "late",
                },
            }
            for _ in range(CALLS)
        ]
        actual: list[dict[str, Any]] = [
            {"tool": e["tool"], "args": dict(e["args"])} for e in expected
        ]
        fault = number % 6
        if fault == 3:
            actual[2], actual[3] = actual[3], actual[2]
        elif fault == 4:
            actual[5]["args"]["amount"] = -1
        elif fault == 5:
            del actual[7]
        cases.append({"id": f"case_{number}", "expected": expected, "actual": actual})
    return cases


def ours(cases: list[dict[str, Any]]) -> tuple[float, float, int]:
    """CPU seconds to read the cases, and to judge and count every trajectory; how many passed."""
    began = time.process_time()
    read = [
        read_case(Place("bench"), {"id": c["id"], "expected_tool_calls": c["expected"]}).case
        for c in cases
    ]
    reading = time.process_time() - began
    trajectories = [
        trajectory_of(*(call(a["tool"], a["args"]) for a in c["actual"]), trajectory_id=c["id"])
        for c in cases
    ]
    thresholds = Thresholds()
    began = time.process_time()
    rates = aggregates_of(
        *(
            judge_trajectory(trajectory, None, case, thresholds)
            for case, trajectory in zip(read, trajectories, strict=True)
        )
    ).rates()[""]
    return reading, time.process_time() - began, int(rates["pass_rate"].hits)


def largest() -> float:
    """CPU seconds to pair 200 expected with 200 actual calls of one tool."""
    size = 200
    expected = tuple(
        Expectation(tool="f", arguments={"x": i % 7, "y": i % 5, "z": i}) for i in range(size)
    )
    trajectory = trajectory_of(
        *(call("f", {"x": i % 7, "y": i % 3, "z": (i * 7) % size}) for i in range(size))
    )
    began = time.process_time()
    scores = judge(trajectory, Case(id="c", expected=expected)).scores
    took = time.process_time() - began
    if scores.pairs != size:
        raise SystemExit(f"only {scores.pairs} of {size} calls were paired")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peers", metavar="PYTHON")
    parser.add_argument("--cases", type=int, default=10_000)
    options = parser.parse_args()
    cases = made(options.cases)
    reading, scoring, passed = ours(cases)
    print(f"{len(cases)} cases of {CALLS} calls, CPU seconds")
    print(f"  toolverdict  read {reading:.1f}, judge and count {scoring:.1f}; {passed} passed")
    if options.peers:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(cases, file)
            file.flush()
            worker = Path(__file__).with_name("cases_peers.py")
            for peer in ("agentevals", "ragas"):
                command = [options.peers, str(worker), peer, file.name]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                last = (done.stdout or done.stderr).strip().splitlines()[-1:]
                print(f"  {peer:<12} {last[0] if last else 'nothing came back'}")
    print(f"200 x 200 calls of one tool: {largest():.2f} CPU s")


if __name__ == "__main__":
    main()
