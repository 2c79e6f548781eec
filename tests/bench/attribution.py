"""How often the decisive mistake of a failed run is found, beside naive ways to find it.

    python tests/bench/attribution.py [--corpus FOLDER] [--fit]

Two sets. Who&When (Zhang et al. 2025, "Which Agent Causes Task Failures and When?"): 184 runs of
talking agents, the mistake marked by people; and the failures planted in the demo, with calls. The
weights for talk were fitted to the half of Who&When whose ids hash to an even byte and to nothing
else; the other half is printed apart. ``--fit`` fits them again and writes them. Nothing is asserted.
"""

import argparse
import gzip
import hashlib
import io
import json
import math
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from scipy.optimize import minimize

from toolverdict.scenarios.demo.check import check
from toolverdict.scenarios.demo.conversations import conversations
from toolverdict.scenarios.demo.run import run_demo
from toolverdict.scoring.attribution import turns
from toolverdict.scoring.attribution.turns import LEAST_PROBABILITY, SIGNS, Step, suspects

CORPUS = Path(__file__).parents[3] / "shared" / "corpora" / "whowhen"
WEIGHTS = Path(turns.__file__).with_name("turn_weights.json")
PENALTY = 1.0  # of the squared weights; chosen by ten-fold cross-validation on the tuning half


@dataclass(frozen=True)
class Run:
    """One failed run: its steps with their place in the transcript, and the marked mistake."""

    id: str
    subset: str
    steps: tuple[Step, ...]
    places: tuple[int, ...]
    agents: tuple[str | None, ...]
    mistake: int
    agent: str

    @property
    def tuning(self) -> bool:
        """Whether it is of the half that weights are fitted to."""
        return hashlib.sha256(self.id.encode()).digest()[0] % 2 == 0


Ranking = Callable[[Run], Sequence[int]]
"""Ranks the steps of a run by their index; fewer or none where it abstains."""


def whowhen(folder: Path) -> list[Run]:
    """The runs of the corpus: each message is a step, and so is each result of a tool."""
    spans: dict[tuple[str, str], dict[str, Any]] = {}
    with gzip.open(folder / "spans.jsonl.gz", "rt") as lines:
        for line in lines:
            for resource in json.loads(line)["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    spans.update({(s["traceId"], s["spanId"]): s for s in scope["spans"]})
    runs = []
    for line in (folder / "truth.jsonl").read_text().splitlines():
        truth = json.loads(line)
        seen = [
            (place, spans[truth["trace_id"], span_id])
            for place, span_id in enumerate(truth["step_span_ids"])
            if span_id is not None  # what the user said has no span
        ]
        runs.append(
            Run(
                id=truth["trajectory_id"],
                subset=truth["subset"],
                steps=tuple(_step(span) for _, span in seen),
                places=tuple(place for place, _ in seen),
                agents=tuple(_attribute(span, "gen_ai.agent.name") for _, span in seen),
                mistake=truth["mistake_step_0based"],
                agent=truth["mistake_agent"],
            )
        )
    return runs


def _step(span: dict[str, Any]) -> Step:
    is_result = _attribute(span, "gen_ai.operation.name") == "execute_tool"
    if is_result:
        text = _attribute(span, "gen_ai.tool.call.result") or ""
    else:
        messages = json.loads(_attribute(span, "gen_ai.output.messages") or "[]")
        text = "\n".join(p.get("content", "") for m in messages for p in m["parts"])
    failed = span.get("status", {}).get("code") == 2
    return Step(span["spanId"], text, is_result=is_result, failed=failed)


def _attribute(span: dict[str, Any], name: str) -> Any:
    for attribute in span["attributes"]:
        if attribute["key"] == name:
            return next(iter(attribute["value"].values()))
    return None


def ours(run: Run) -> Sequence[int]:
    """The product's ranking."""
    index = {step.span_id: i for i, step in enumerate(run.steps)}
    return [index[suspect.span_id] for suspect in suspects(run.steps)]


def abstaining(run: Run) -> Sequence[int]:
    """The product's ranking, none where it is not sure enough."""
    return ours(run) if suspects(run.steps)[0].probability >= LEAST_PROBABILITY else ()


def _failed(run: Run) -> list[int]:
    return [i for i, step in enumerate(run.steps) if step.failed]


NAIVE: dict[str, Ranking] = {
    "first span": lambda run: range(len(run.steps)),
    "second span": lambda run: list(range(len(run.steps)))[1:],
    "last span": lambda run: range(len(run.steps) - 1, -1, -1),
    "first error span": _failed,
    "step before the first error": lambda run: [i - 1 for i in _failed(run) if i],
    "before the first error, else first": lambda run: [
        *(i - 1 for i in _failed(run) if i),
        *range(len(run.steps)),
    ],
    "random": lambda run: random.Random(run.id).sample(range(len(run.steps)), len(run.steps)),
}


def line(name: str, ranking: Ranking, runs: Sequence[Run]) -> str:
    """One line of the table: shares of all runs; those that abstained are in no share but their own."""
    exact = near = top = agent = abstained = 0
    for run in runs:
        ranked = list(ranking(run))[:3]
        if not ranked:
            abstained += 1
            continue
        places = [run.places[i] for i in ranked]
        exact += places[0] == run.mistake
        near += abs(places[0] - run.mistake) <= 1
        top += run.mistake in places
        agent += run.agents[ranked[0]] == run.agent
    n = len(runs)
    shares = "  ".join(f"{count / n:7.1%}" for count in (exact, near, top, agent, abstained))
    return f"{name:36} {exact:3}/{n:<4} {shares}"


def table(title: str, runs: Sequence[Run]) -> None:
    """All ways on these runs."""
    print(f"\n{title}: {len(runs)} runs")
    print(f"{'':36} {'':8} {'exact':>7}  within1     top3    agent  abstain")
    for name, ranking in {"ours": ours, "ours, abstaining": abstaining, **NAIVE}.items():
        print(line(name, ranking, runs))


def planted() -> None:
    """The failures that the demo plants, by the results of a real run of it.

    The steps are the calls. A planted failure that did not fail its conversation has no root cause
    to find (the task was done all the same), and is left out. Its place is the only call of the tool
    it was planted in; where that was called again, the call that the demo's own check names.
    """
    with tempfile.TemporaryDirectory() as folder:
        run_demo(Path(folder) / "demo", Console(file=io.StringIO()))
        out = Path(folder) / "demo" / "results"
        outcomes = [o for o in check(conversations(), out) if o.conversation.planted is not None]
        verdicts = {v["case_id"]: v for v in pq.read_table(out / "verdicts").to_pylist()}
        calls = pq.read_table(out / "calls").to_pylist()
        findings = pq.read_table(out / "findings").to_pylist()
    runs, ranked, alone = [], {}, 0
    for outcome in outcomes:
        trajectory = verdicts[outcome.conversation.id]["trajectory_id"]
        mine = sorted(
            (c for c in calls if c["trajectory_id"] == trajectory), key=lambda c: c["index"]
        )
        spans = [call["span_id"] for call in mine]
        assert outcome.conversation.planted is not None
        tool = outcome.conversation.planted.tool
        there = [call["span_id"] for call in mine if call["tool"] == tool]
        span_id = there[0] if len(there) == 1 else outcome.span_id
        if outcome.passed is not False or span_id not in spans:
            continue
        alone += len(there) == 1
        steps = tuple(Step(c["span_id"], "", failed=c["error_kind"] is not None) for c in mine)
        id_ = outcome.conversation.id
        places = tuple(range(len(steps)))
        agents = tuple(c["agent"] for c in mine)
        at = spans.index(span_id)
        runs.append(Run(id_, "demo", steps, places, agents, at, agents[at] or ""))
        evidence = [f for f in findings if f["trajectory_id"] == trajectory and f["rank"]]
        evidence.sort(key=lambda f: f["rank"])
        blamed = dict.fromkeys(f["span_id"] for f in evidence if f["span_id"] in spans)
        ranked[id_] = [spans.index(span_id) for span_id in blamed]
    print(f"\nPlanted in the demo: {len(outcomes)}, of which {len(runs)} failed their conversation")
    print(f"(in {alone} of them the tool was called once: its place is known without the scorer)")
    print(f"{'':36} {'':8} {'exact':>7}  within1     top3    agent  abstain")
    for name, ranking in {"ours": lambda run: ranked[run.id], **NAIVE}.items():
        print(line(name, ranking, runs))


def calibration(runs: Sequence[Run]) -> None:
    """How often the first suspect is right, by the probability it was given."""
    print("\nCalibration of the first suspect, on the held half: probability given, runs, right")
    firsts = [(suspects(run.steps)[0], run) for run in runs]
    for low, high in ((0, 0.1), (0.1, 0.2), (0.2, 0.3), (0.3, 0.5), (0.5, 1.01)):
        here = [(s, run) for s, run in firsts if low <= s.probability < high]
        if here:
            right = sum(
                run.places[[step.span_id for step in run.steps].index(s.span_id)] == run.mistake
                for s, run in here
            )
            given = sum(s.probability for s, _ in here) / len(here)
            print(
                f"  {low:.1f} to {high:.1f}: given {given:.2f}, right {right / len(here):.2f} (n={len(here)})"
            )


def fit(runs: Sequence[Run]) -> dict[str, float]:
    """Conditional logit of the marked step among the steps of its run, with a ridge penalty."""
    data = [
        (np.array(turns.signs(run.steps)), run.places.index(run.mistake))
        for run in runs
        if run.mistake in run.places
    ]

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = PENALTY * float(weights @ weights), 2 * PENALTY * weights
        for rows, marked in data:
            scores = rows @ weights
            scores -= scores.max()
            odds = np.exp(scores)
            chances = odds / odds.sum()
            value -= math.log(chances[marked])
            slope = slope - (rows[marked] - chances @ rows)
        return value, slope

    found = minimize(loss, np.zeros(len(SIGNS)), jac=True, method="L-BFGS-B").x
    return {name: round(float(weight), 4) for name, weight in zip(SIGNS, found, strict=True)}


def write_weights(runs: Sequence[Run]) -> None:
    """Writes the weights that were fitted to the tuning half."""
    tuning = [run for run in runs if run.tuning]
    document = {
        "version": 1,
        "source": "Who&When (Zhang et al. 2025, arXiv:2505.00212), MIT licence; the "
        f"{len(tuning)} of {len(runs)} runs whose SHA-256 of the id begins with an even byte",
        "method": f"conditional logit over the steps of a run, ridge penalty {PENALTY}; "
        "tests/bench/attribution.py --fit",
        "weights": fit(tuning),
    }
    WEIGHTS.write_text(json.dumps(document, indent=2) + "\n")
    turns._weights.cache_clear()
    print(f"written: {WEIGHTS.name} {document['weights']}")


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--fit", action="store_true")
    arguments = parser.parse_args()
    if not (arguments.corpus / "truth.jsonl").exists():
        print(f"{arguments.corpus}: the corpus is not here; give --corpus")
    else:
        runs = whowhen(arguments.corpus)
        if arguments.fit:
            write_weights(runs)
        held = [run for run in runs if not run.tuning]
        table("Who&When, tuning half", [run for run in runs if run.tuning])
        table("Who&When, held half", held)
        for subset in sorted({run.subset for run in runs}):
            table(f"Who&When, held half, {subset}", [run for run in held if run.subset == subset])
        table("Who&When, all", runs)
        calibration(held)
    planted()


if __name__ == "__main__":
    main()
