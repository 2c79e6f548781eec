"""What counting rates costs, and what sampling does to them, on tables made up column by column.

    python tests/bench/rates.py [TRAJECTORIES]

CPU seconds of this process, the best of three; nothing is asserted.
"""

import sys
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from toolverdict.scoring.rates.aggregate import Aggregates, total
from toolverdict.scoring.rates.columns import integers
from toolverdict.scoring.rates.report import grouped, whole
from toolverdict.scoring.rates.shares import with_shares
from toolverdict.scoring.rates.testing import live_traffic

PARTS = 20
DRAWS = 200
KEEP = 0.1


def metered(what: str, run: Callable[[], object]) -> None:
    """Print the CPU time of the fastest of three runs."""
    spent = []
    for _ in range(3):
        start = time.process_time()
        run()
        spent.append(time.process_time() - start)
    print(f"{min(spent):8.3f} CPU s  {what}")


def cost(trajectories: int) -> None:
    """What each step costs."""
    calls, verdicts = live_traffic(trajectories)
    print(f"{calls.num_rows} calls of {verdicts.num_rows} trajectories")
    metered("every rate, by every dimension", lambda: Aggregates.of(calls, verdicts))
    shuffled = calls.take(np.random.default_rng(1).permutation(calls.num_rows))
    metered("the same, rows in any order", lambda: Aggregates.of(shuffled, verdicts))
    undecided = calls.set_column(
        calls.column_names.index("compliant"), "compliant", pa.nulls(calls.num_rows, pa.bool_())
    )
    metered("the same, no policy", lambda: Aggregates.of(undecided, verdicts))
    metered("the shares of each trajectory", lambda: with_shares(verdicts, calls))
    found = Aggregates.of(calls, verdicts)
    metered(f"{PARTS} of them added", lambda: total([found] * PARTS))
    metered(
        "rates of the whole and of tools, with intervals",
        lambda: (whole(found), grouped(found, "tool")),
    )
    sizes = [table.num_rows for table in (found.units, found.marks, found.durations)]
    print(f"         kept: {sizes} rows of units, marks, durations")


def sampling(trajectories: int) -> None:
    """Rates of a tenth of the traffic, the failed ones all kept, over many draws."""
    calls, verdicts = live_traffic(trajectories)
    truth = Aggregates.of(calls, verdicts).rates()[""]
    random = np.random.default_rng(7)
    broken = pc.equal(calls["outcome"].cast(pa.string()), pa.scalar("error"))
    failed = calls.filter(broken)["trajectory_id"].combine_chunks()
    sure = pc.is_in(verdicts["trajectory_id"], value_set=failed).to_numpy()
    names = ("error_rate", "retry_waste_rate", "timeout_rate", "call_compliance")
    means = dict.fromkeys(names, 0.0)
    held = dict.fromkeys(names, 0)
    for _ in range(DRAWS):
        kept = sure | (random.random(verdicts.num_rows) < KEEP)
        weight = np.where(sure, 1.0, 1 / KEEP)
        rates = Aggregates.of(*sampled(calls, verdicts, kept, weight)).rates()[""]
        for name in names:
            low, high = rates[name].interval()
            means[name] += (rates[name].value or 0.0) / DRAWS
            held[name] += low <= (truth[name].value or 0.0) <= high
    print(f"{DRAWS} draws, failed trajectories kept, {KEEP:.0%} of the others")
    for name in names:
        print(
            f"  {name:18} truth {truth[name].value:.5f}  mean of draws {means[name]:.5f}  "
            f"in the 95 % interval {held[name] / DRAWS:.1%}"
        )


def sampled(
    calls: pa.Table, verdicts: pa.Table, kept: NDArray[np.bool_], weight: NDArray[np.float64]
) -> tuple[pa.Table, pa.Table]:
    """The kept trajectories, each standing for ``weight`` of them."""
    of_call = integers(
        pc.index_in(calls["trajectory_id"], value_set=verdicts["trajectory_id"]), null=-1
    )
    return (
        _weighted(calls.filter(pa.array(kept[of_call])), weight[of_call][kept[of_call]]),
        _weighted(verdicts.filter(pa.array(kept)), weight[kept]),
    )


def _weighted(table: pa.Table, weight: NDArray[np.float64]) -> pa.Table:
    return table.set_column(table.column_names.index("weight"), "weight", pa.array(weight))


if __name__ == "__main__":
    cost(int(sys.argv[1]) if len(sys.argv) > 1 else 150_000)
    sampling(2_000)
