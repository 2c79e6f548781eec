"""What it costs to judge one call, and which step of the judge it goes to.

    python tests/bench/judge.py [TRAJECTORIES]

Trajectories as our own agents leave them by default: eight calls of which only hashes are known, one
of them failed. CPU time of this process, the best of three; nothing is asserted.
"""

import cProfile
import pstats
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.attempts import repaired
from toolverdict.scoring.checks.grounding import ungrounded_findings
from toolverdict.scoring.checks.results import result_handling
from toolverdict.scoring.checks.waste import waste, waste_findings
from toolverdict.scoring.model import Captured, Thresholds, Trajectory
from toolverdict.scoring.testing import call, placed, trajectory_of
from toolverdict.scoring.verdicts import judge_trajectory

CALLS = 8
TOOLS = ("search", "get_order", "get_customer", "refund_payment")


def trajectories(count: int, outcome: str, *, again: bool = False) -> list[Trajectory]:
    """Alike but for their ids: ``again`` repeats the failed call, successfully."""
    hashed: dict[str, Any] = {"arguments_state": Captured.HASHED}
    made = []
    for number in range(count):
        calls = []
        for index in range(CALLS):
            failed = index == 3
            of = 3 if again and index == 4 else index
            calls.append(
                call(
                    TOOLS[of % len(TOOLS)],
                    outcome=outcome if failed else "ok",
                    args_hash=f"{number}-{of}",
                    error_type="TimeoutError" if failed and outcome != "ok" else None,
                    labels=("payment",) if of % len(TOOLS) == 3 else (),
                    **hashed,
                    policy_decision="deny" if failed and outcome == "denied" else "allow",
                )
            )
        base = trajectory_of(trajectory_id=f"{number:032x}")
        made.append(replace(base, calls=placed(*calls)))
    return made


def per_call(work: Callable[[Trajectory], object], sample: list[Trajectory]) -> float:
    """CPU microseconds a call, the best of three."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        for trajectory in sample:
            work(trajectory)
        best = min(best, time.process_time() - start)
    return best / len(sample) / CALLS * 1e6


def judge(trajectory: Trajectory) -> object:
    """What a unit does with a trajectory that plays no case, under no policy file."""
    return judge_trajectory(trajectory, None, None, Thresholds())


def handle(trajectory: Trajectory) -> object:
    """The check of results with what it needs."""
    return result_handling(trajectory, repaired(trajectory.calls))


def main(count: int) -> None:
    """Print microseconds a call, whole and by step."""
    kinds = {
        "all well": trajectories(count, "ok"),
        "one failed": trajectories(count, Outcome.TIMEOUT.value),
        "one failed, retried": trajectories(count, Outcome.TIMEOUT.value, again=True),
        "one refused, retried": trajectories(count, Outcome.INVALID_ARGUMENTS.value, again=True),
        "one denied": trajectories(count, Outcome.DENIED.value),
    }
    steps: dict[str, Callable[[Trajectory], object]] = {
        "judge_trajectory": judge,
        "  waste": lambda t: list(waste_findings(t.calls, waste(t))),
        "  result_handling": handle,
        "  ungrounded": lambda t: list(ungrounded_findings(t)),
    }
    print(f"CPU microseconds a call, {count} trajectories of {CALLS} calls, hashes only")
    print(f"{'':22}" + "".join(f"{kind:>22}" for kind in kinds))
    for name, work in steps.items():
        print(f"{name:22}" + "".join(f"{per_call(work, s):22.2f}" for s in kinds.values()))
    profile = cProfile.Profile()
    profile.enable()
    for trajectory in kinds["one failed"]:
        judge(trajectory)
    profile.disable()
    print("\nWhere it goes, one failed call:")
    pstats.Stats(profile).sort_stats("tottime").print_stats(15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000)
