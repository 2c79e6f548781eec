"""How far verdicts agree with benchmarks' own, on runs that nobody here wrote.

    python tests/bench/agreement.py [CORPORA]

``CORPORA`` holds ``tau_airline_gpt4o`` and ``agentdojo_scripted`` (spans, cases, truth); it is not
part of a clone. Everything goes the whole road: OTLP to a collector, its lake, ``score``.

- airline: "the writes are the reference's and no others" against the benchmark's reward, as Cohen's
  kappa. Reads are not judged, nor are writes that failed. The reward also judges what was said,
  which calls cannot show, and is 0 where the benchmark cut a run off and judged nothing of it.
- attacks: "a forbidden call was executed, with the attacker's arguments" against the benchmark's own
  check of whether the attack succeeded, as the share that agrees.
"""

import gzip
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from toolverdict.collector.testing import post, running_collector
from toolverdict.scoring import Inputs, score
from toolverdict.scoring.cases.load import CaseSet, load_cases
from toolverdict.scoring.cases.model import Case, Extra

CORPORA = Path(__file__).parents[3] / "shared" / "corpora"


def verdicts(corpus: Path, cases: CaseSet, work: Path) -> dict[str, dict[str, Any]]:
    """Verdicts by trace id of every run of a corpus, through a collector and its lake."""
    lake, out = work / f"{corpus.name}-lake", work / f"{corpus.name}-out"
    with running_collector(lake) as collector, gzip.open(corpus / "spans.jsonl.gz") as requests:
        for body in requests:
            answer = post(f"{collector.http}/v1/traces", body, "application/json")
            if answer.status != 200:
                raise SystemExit(f"{corpus.name}: the collector answered {answer.status}")
    score(Inputs(lake, cases=cases), out)
    return {row["trace_id"]: row for row in pq.read_table(out / "verdicts").to_pylist()}


def truth(corpus: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (corpus / "truth.jsonl").read_text().splitlines()]


def kappa(pairs: Counter[tuple[bool, bool]]) -> float:
    """Cohen's kappa of two judges that say yes or no (Educ. Psychol. Meas. 20 (1960) 37-46)."""
    total = pairs.total()
    agreed = (pairs[True, True] + pairs[False, False]) / total
    yes = [(pairs[True, True] + pairs[pair]) / total for pair in ((True, False), (False, True))]
    by_chance = yes[0] * yes[1] + (1 - yes[0]) * (1 - yes[1])
    return (agreed - by_chance) / (1 - by_chance)


def writes_alone(case: Case, writes: frozenset[str]) -> Case:
    """The case with only its writes, in any order; every other tool may be called at will."""
    return case.model_copy(
        update={
            "before": ((),) * len(case.expected),
            # A write that failed has written nothing.
            "extra": Extra(default="allow", penalise=tuple(sorted(writes)), failed="allow"),
        }
    )


def airline(corpus: Path, work: Path) -> None:
    """Writes exactly as the reference, none extra, against the reward."""
    loaded = load_cases(corpus / "cases_writes_only.jsonl")
    writes = frozenset(e.tool for case in loaded.cases.values() for e in case.expected)
    cases = {name: writes_alone(case, writes) for name, case in loaded.cases.items()}
    found = verdicts(corpus, CaseSet(cases, loaded.digest), work)
    every: Counter[tuple[bool, bool]] = Counter()
    judged: Counter[tuple[bool, bool]] = Counter()
    for run in truth(corpus):
        verdict = found[run["trace_id"]]
        exact = verdict["selection"] in (None, 1.0) and verdict["arguments"] in (None, 1.0)
        pair = run["reward"] == 1.0, exact
        every[pair] += 1
        if run["r_actions"] is not None or run["r_outputs"] is not None:
            judged[pair] += 1
    unjudged = sum(verdict["passed"] is None for verdict in found.values())
    print(f"airline: {len(found)} runs, {len(cases)} cases, {unjudged} not evaluable")
    for what, pairs in (("all runs", every), ("runs that it did not cut off unjudged", judged)):
        print(
            f"  {what}: rewarded and exact {pairs[True, True]}, neither {pairs[False, False]}, "
            f"rewarded only {pairs[True, False]}, exact only {pairs[False, True]}; "
            f"Cohen's kappa {kappa(pairs):.3f}"
        )


def attacks(corpus: Path, work: Path) -> None:
    """Forbidden calls with their arguments, against the benchmark's check of the attack."""
    found = verdicts(corpus, load_cases(corpus / "cases.jsonl"), work)
    pairs: Counter[tuple[bool, bool]] = Counter()
    for run in truth(corpus):
        if run["attack_succeeded"] is not None:
            executed = found[run["trace_id"]]["forbidden_executed"] > 0
            pairs[run["attack_succeeded"], executed] += 1
    agreed = (pairs[True, True] + pairs[False, False]) / pairs.total()
    print(f"attacks: {pairs.total()} runs")
    print(
        f"  succeeded and seen {pairs[True, True]}, neither {pairs[False, False]}, "
        f"missed {pairs[True, False]}, seen only here {pairs[False, True]}"
    )
    print(f"  agreement {agreed:.3f}, Cohen's kappa {kappa(pairs):.3f}")


def main() -> None:
    corpora = Path(sys.argv[1]) if len(sys.argv) > 1 else CORPORA
    with tempfile.TemporaryDirectory() as work:
        for name, measure in (("tau_airline_gpt4o", airline), ("agentdojo_scripted", attacks)):
            if (corpora / name).is_dir():
                measure(corpora / name, Path(work))
            else:
                print(f"{name}: is not in {corpora}; skipped")


if __name__ == "__main__":
    main()
