"""The road of the scorer, top-down: lake, units, rows and rates, ``OUT``.

Reads nothing but the lake, the policy and the cases; leaves behind what ``results`` writes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolverdict.collector import Lake
from toolverdict.instrument.policy import Policy
from toolverdict.scoring.cases.load import CaseSet
from toolverdict.scoring.conversations import Conversations
from toolverdict.scoring.counts import Counts
from toolverdict.scoring.errors import EmptyLakeError
from toolverdict.scoring.model import Thresholds
from toolverdict.scoring.results import ResultWriter
from toolverdict.scoring.spans import COLUMNS, LOG_COLUMNS
from toolverdict.scoring.summary import Summary, summarise
from toolverdict.scoring.unit import Rules, score_rest, score_unit


@dataclass(frozen=True, slots=True)
class Inputs:
    """What to score and by what."""

    lake: Path | str
    """A folder, or the URL of an object store as text."""
    policy: Policy | None = None
    cases: CaseSet | None = None
    case_of: Mapping[str, str] = field(default_factory=dict)
    thresholds: Thresholds = field(default_factory=Thresholds)


def score(inputs: Inputs, out: Path, progress: Callable[[int, int], None] | None = None) -> Summary:
    """Scores a lake and writes ``OUT``: calls, findings, verdicts and ``summary.json``.

    Args:
        inputs: the lake, and the policy and cases to judge by.
        out: the folder to write; what an earlier run left there is replaced.
        progress: told (units done, units in all) after each unit.

    Raises:
        EmptyLakeError: the lake holds no span. ``OUT`` is written all the same: rates None (n=0).
        LakeError: the folder is missing, is no lake, or is of a newer version.
        InputError: ``OUT`` cannot be written.
    """
    lake = Lake.open(inputs.lake)
    rules = Rules(
        policy=inputs.policy,
        cases=inputs.cases.cases if inputs.cases is not None else {},
        case_of=inputs.case_of,
        thresholds=inputs.thresholds,
    )
    counts = Counts()
    # A conversation's traces may lie in several buckets; with one there is nobody to wait for.
    across = Conversations() if lake.buckets > 1 else None
    with ResultWriter(out) as writer:
        for bucket in range(lake.buckets):
            spans, logs = lake.read_spans(bucket, COLUMNS), lake.read_logs(bucket, LOG_COLUMNS)
            result = score_unit(spans, rules, logs, across)
            writer.write(f"{bucket:03d}", result)
            counts.add(result.counts)
            if progress is not None:
                progress(bucket + 1, lake.buckets)
        if across is not None:
            result = score_rest(across, rules)
            writer.write("across", result)
            counts.add(result.counts)
        summary = summarise(inputs.lake, inputs.policy, inputs.cases, counts)
        writer.finish(summary)
    if not counts.spans:
        raise EmptyLakeError(
            f"{inputs.lake}: the lake holds no span, so every rate is None (n=0); send spans to "
            "the collector of this folder, or wait for its next flush"
        )
    return summary
