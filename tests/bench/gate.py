"""How well the gate's statistics keep their word: simulations. Run it: python tests/bench/gate.py.

Prints the coverage of nominal 95 % intervals, false alarms and power of comparisons, and what
reading and gating large results costs.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from toolverdict.scoring.compare.comparison import compare_rates, is_worse
from toolverdict.scoring.compare.differences import live_difference
from toolverdict.scoring.compare.waste_path import waste_path
from toolverdict.scoring.gate.evidence import Scored, read_results
from toolverdict.scoring.gate.gate_file import load_gate
from toolverdict.scoring.gate.gated import GATED
from toolverdict.scoring.gate.repeats import pass_hat
from toolverdict.scoring.gate.report import run_gate
from toolverdict.scoring.gate.testing import played, scored, write_out
from toolverdict.scoring.intervals import Moments
from toolverdict.scoring.model import Share
from toolverdict.scoring.rates import wilson

SIMULATIONS = 2000
PASSES = tuple(one for one in GATED if one.rate == "pass_rate")

_Ints = NDArray[np.int64]


@contextmanager
def metered(what: str) -> Iterator[None]:
    """Print the CPU time of all threads of this process."""
    start = time.process_time()
    yield
    print(f"{what:<60} {time.process_time() - start:8.2f} CPU s")


def sample(rng: np.random.Generator, clusters: int, p: float, icc: float) -> tuple[_Ints, _Ints]:
    """Hits and calls of trajectories with heavy-tailed sizes whose calls fail together."""
    sizes = np.minimum(np.ceil(rng.pareto(1.5, clusters) * 3) + 1, 100).astype(np.int64)
    shape = (1 - icc) / icc
    return rng.binomial(sizes, rng.beta(p * shape, (1 - p) * shape, clusters)), sizes


def moments(hits: _Ints, sizes: _Ints) -> Moments:
    """The same sums as the gate's, for whole arrays at once."""
    h, m = hits.astype(float), sizes.astype(float)
    return Moments(
        clusters=len(h),
        hits=h.sum(),
        of=m.sum(),
        hits_squared=(h * h).sum(),
        cross=(h * m).sum(),
        of_squared=(m * m).sum(),
        unit_squares=m.sum(),
        hit_clusters=int((h > 0).sum()),
        miss_clusters=int((h < m).sum()),
    )


def interval_coverage() -> None:
    """Per-call rates: the gate's interval beside one that takes calls for independent."""
    print("Coverage of 95 % intervals for a rate over calls (trajectories as clusters)")
    print("clusters     p   icc   naive Wilson   gate   width of gate")
    for clusters, p, icc in (
        *((50, 0.005, 0.1), (50, 0.05, 0.4), (200, 0.005, 0.4), (200, 0.05, 0.1)),
        *((1000, 0.005, 0.4), (1000, 0.05, 0.4), (1000, 0.2, 0.1)),
    ):
        rng = np.random.default_rng(1)
        naive = gate = 0
        widths = []
        for _ in range(SIMULATIONS):
            found = moments(*sample(rng, clusters, p, icc))
            low, high = wilson(found.hits, found.of)
            naive += low <= p <= high
            low, high = found.interval()
            gate += low <= p <= high
            widths.append(high - low)
        print(
            f"{clusters:8d} {p:5.3f} {icc:5.1f} {naive / SIMULATIONS:14.3f}"
            f" {gate / SIMULATIONS:6.3f} {np.mean(widths):15.4f}"
        )


def trajectory_coverage() -> None:
    """Per-trajectory rates: Wilson, and the one-sided bound where nothing was seen."""
    print("\nCoverage of 95 % intervals for a rate over trajectories")
    for count in (10, 50, 300):
        for p in (0.01, 0.1, 0.5, 0.97):
            rng = np.random.default_rng(2)
            held = 0
            for hits in rng.binomial(count, p, SIMULATIONS):
                outcomes = (np.arange(count) < hits).astype(np.int64)
                low, high = moments(outcomes, np.ones(count, np.int64)).interval()
                held += low <= p <= high
            print(f"  n={count:4d} p={p:.2f}  {held / SIMULATIONS:.3f}")


def live_coverage() -> None:
    """Differences of two samples of traffic."""
    print("\nDifference of two samples of traffic: coverage of 95 %, false alarms (two-sided 5 %)")
    for clusters, p, icc in ((50, 0.05, 0.1), (200, 0.02, 0.4), (200, 0.3, 0.2), (1000, 0.05, 0.4)):
        rng = np.random.default_rng(3)
        held = alarms = 0
        for _ in range(SIMULATIONS):
            base, new = (moments(*sample(rng, clusters, p, icc)) for _ in range(2))
            found = live_difference("rate", base, new, 0.95)
            assert found.low is not None
            assert found.high is not None
            assert found.p is not None
            held += found.low <= 0 <= found.high
            alarms += found.p < 0.05
        print(
            f"  {clusters:5d} clusters, p={p:.2f}, icc={icc:.1f}: "
            f"{held / SIMULATIONS:.3f}  {alarms / SIMULATIONS:.3f}"
        )


def _trials(
    rng: np.random.Generator, truth: NDArray[np.float64], trials: int, name: str
) -> list[Scored]:
    outcomes = rng.random((len(truth), trials)) < truth[:, None]
    return [
        scored(
            f"{name}{case}.{trial}",
            {"pass_rate": Share(int(outcome), 1)},
            case=str(case),
            passed=bool(outcome),
        )
        for case, row in enumerate(outcomes)
        for trial, outcome in enumerate(row)
    ]


def paired_errors() -> None:
    """The same cases twice: how often a change is seen that is there, or is not."""
    print("\nThe same cases twice, some harder than others: 'worse' seen when success drops by")
    print("  cases trials      0     5 %    10 %")
    for cases, trials in ((20, 1), (100, 1), (100, 4), (400, 1)):
        seen = []
        for drop in (0.0, 0.05, 0.10):
            rng = np.random.default_rng(4)
            worse = 0
            for number in range(400):
                truth = rng.beta(4, 1, cases)
                base = _trials(rng, truth, trials, "b")
                new = _trials(rng, np.maximum(truth - drop, 0), trials, "n")
                (found,) = compare_rates(base, new, PASSES, True, 0.95, number)
                worse += is_worse(found, 0.95)
            seen.append(worse / 400)
        print(f"  {cases:5d} {trials:6d}  " + "  ".join(f"{one:6.3f}" for one in seen))


def repeat_coverage() -> None:
    """pass^k: bias and coverage."""
    print("\npass^4 of 8 trials, success of a case from Beta(2, 1): truth 0.3333")
    for cases in (30, 100):
        rng = np.random.default_rng(5)
        values, held = [], 0
        for number in range(300):
            found = pass_hat(_trials(rng, rng.beta(2, 1, cases), 8, "t"), 4, seed=number)
            assert found.value is not None
            assert found.low is not None
            assert found.high is not None
            values.append(found.value)
            held += found.low <= 1 / 3 <= found.high
        print(f"  {cases:4d} cases: mean {np.mean(values):.4f}, coverage {held / 300:.3f}")


def waste_power() -> None:
    """More calls and no more success: shown when it is so, and when it is not."""
    print("\nCalls more, succeeds no more, live: how often shown (margins 10 % calls, 2 points)")
    print("  trajectories   +10 % calls, equal   +30 %, equal   +50 %, 1 point less")
    for count in (300, 1000, 3000):
        shown = []
        for growth, gain in ((1.1, 0.0), (1.3, 0.0), (1.5, -0.01)):
            rng = np.random.default_rng(6)
            hits = 0
            for _ in range(200):
                sides = []
                for mean, success in ((4.0, 0.8), (4.0 * growth, 0.8 + gain)):
                    calls = 1 + rng.poisson(mean - 1, count)
                    passed = rng.random(count) < success
                    sides.append(
                        [
                            scored(str(n), {"pass_rate": Share(int(ok), 1)}, calls=int(c))
                            for n, (c, ok) in enumerate(zip(calls, passed, strict=True))
                        ]
                    )
                hits += waste_path(*sides, paired=False).shown is True
            shown.append(hits / 200)
        print(f"  {count:12d} {shown[0]:20.3f} {shown[1]:14.3f} {shown[2]:20.3f}")


def cost() -> None:
    """Reading and gating many trajectories."""
    print()
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(7)
        sizes = rng.integers(1, 20, 20_000)
        out = write_out(
            Path(folder) / "out",
            (
                played(f"c{n}", passed=bool(n % 20), calls=[{}] * int(size))
                for n, size in enumerate(sizes)
            ),
        )
        limits = {one.key: 0.9 if one.higher_is_better else 0.01 for one in GATED}
        path = Path(folder) / "gate.yaml"
        path.write_text(yaml.safe_dump({"tool_call_gate": limits}))
        with metered(f"read {len(sizes)} trajectories, {sizes.sum()} calls"):
            results = read_results(out)
        with metered("gate them by every rate"):
            run_gate(load_gate(path), results)
        with metered("the same against a baseline"):
            run_gate(load_gate(path), results, baseline=results)


if __name__ == "__main__":
    interval_coverage()
    trajectory_coverage()
    live_coverage()
    paired_errors()
    repeat_coverage()
    waste_power()
    cost()
