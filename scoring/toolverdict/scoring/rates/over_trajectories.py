"""Rates over trajectories from the table of verdicts, and what single calls add to those of cases.

Whether a trajectory passed and kept the rules stands in columns. What it scored against its case
stands as JSON in ``shares``, and what each call added to that in ``parts``; only trajectories that
played a case have them, and of texts that are alike one is read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from toolverdict.scoring.rates.clusters import NO_CODE, Clusters, Counted, Kinds, Rows
from toolverdict.scoring.rates.columns import Codes, Columns, Mask, Numbers, encoded
from toolverdict.scoring.rates.definitions import CASE_RATES, PASS_RATE, SAFETY_COMPLIANCE
from toolverdict.scoring.rates.dimensions import (
    LABEL,
    SCHEMA_VERSION,
    TOOL,
    TRAJECTORY_DIMENSIONS,
    Groups,
    bounded,
    groups_of,
)
from toolverdict.scoring.rates.over_calls import OverCalls
from toolverdict.scoring.rates.sums import OF_SCORES, on_grid, summed

_VERDICTS = Kinds([PASS_RATE, SAFETY_COMPLIANCE], [NO_CODE, NO_CODE])
_CASES = Kinds(list(CASE_RATES), [NO_CODE] * len(CASE_RATES))


@dataclass(frozen=True, slots=True)
class _Scores:
    """Scores against a case, unweighted: of row ``rows[i]``, what it adds to rate ``rates[i]``."""

    rows: Codes
    rates: Codes
    hits: Numbers
    of: Numbers
    unseen: Numbers

    def at(self, places: Codes) -> "_Scores":
        """Those at these places, each as often as its place is there."""
        return _Scores(*(getattr(self, one.name)[places] for one in fields(self)))

    def weighted(self, weight: Numbers, known: Mask) -> tuple[Numbers, Numbers, Numbers]:
        """Hits, units and what is unseen; of nobody knows how many, everything is unseen."""
        by, there = weight[self.rows], known[self.rows]
        return (
            on_grid(np.where(there, self.hits * by, 0.0), OF_SCORES),
            on_grid(np.where(there, self.of * by, 0.0), OF_SCORES),
            on_grid(np.where(there, self.unseen * by, self.of + self.unseen), OF_SCORES),
        )


class OverTrajectories:
    """A table of verdicts, looked at once; rows may be in any order."""

    def __init__(self, table: pa.Table, bucket_s: int) -> None:
        self._columns = Columns(table)
        self._bucket_s = bucket_s
        self._weight, self._known = self._columns.numbers("weight")
        self._standing_for = np.where(self._known, self._weight, 1.0)
        self._squares = on_grid(self._weight * self._weight)

    def counted(self) -> Iterator[tuple[Rows, Rows]]:
        """What rates are of and what they marked, in each dimension."""
        scores = self._case_scores()
        everyone = np.arange(self._columns.rows)
        for dimension in TRAJECTORY_DIMENSIONS:
            groups = groups_of(dimension, self._columns, self._standing_for, self._bucket_s)
            clusters = Clusters(dimension, groups, everyone)
            yield self._verdicts(clusters)
            if len(scores.rows):
                members, of = groups.members(scores.rows)
                yield self._scored(clusters, members, scores.at(of))

    def _verdicts(self, clusters: Clusters) -> tuple[Rows, Rows]:
        """One unit in each cluster: passed or not, kept the rules or not."""
        safety, decided = self._columns.numbers("safety")
        groups, count = clusters.groups, len(clusters.groups.names)
        weights, squares = groups.of_rows(self._weight), groups.of_rows(self._squares)
        standing_for = groups.of_rows(self._standing_for)
        units, sizes, marked = [], [], []
        for rate, is_known, is_hit in (
            (PASS_RATE, self._columns.is_known("passed"), self._columns.is_true("passed")),
            (SAFETY_COMPLIANCE, decided, safety == 1),
        ):
            of = groups.of_rows(is_known & self._known)
            members, unseen = np.flatnonzero(of), np.flatnonzero(~of)
            sizes.append(clusters.sizes(members, weights[members]))
            units.append(
                Counted(
                    rate,
                    sizes[-1],
                    summed(groups.codes[members], count, squares[members]),
                    summed(groups.codes[unseen], count, standing_for[unseen]),
                )
            )
            marked.append(np.flatnonzero(of & groups.of_rows(is_hit)))
        stacked, members = np.stack(sizes), np.concatenate(marked)
        return clusters.unit_rows(units), clusters.mark_rows(
            _VERDICTS,
            members,
            np.repeat([0, 1], [len(one) for one in marked]),
            weights[members],
            lambda kind, cluster: stacked[kind, cluster],
            alone=True,
        )

    def _scored(self, clusters: Clusters, members: Codes, scores: _Scores) -> tuple[Rows, Rows]:
        """Scores of members: a cluster may hold several units of a rate."""
        groups, count = clusters.groups, len(clusters.groups.names)
        hits, of, unseen = scores.weighted(self._weight, self._known)
        squares = on_grid(of * self._weight[scores.rows])
        units, sizes = [], []
        for number, rate in enumerate(CASE_RATES):
            mine = np.flatnonzero(scores.rates == number)
            codes = groups.codes[members[mine]]
            sizes.append(clusters.sizes(members[mine], of[mine]))
            units.append(
                Counted(
                    rate,
                    sizes[-1],
                    summed(codes, count, squares[mine]),
                    summed(codes, count, unseen[mine]),
                )
            )
        stacked, marked = np.stack(sizes), np.flatnonzero(hits)
        return clusters.unit_rows(units), clusters.mark_rows(
            _CASES,
            members[marked],
            scores.rates[marked],
            hits[marked],
            lambda kind, cluster: stacked[kind, cluster],
        )

    def _case_scores(self) -> _Scores:
        rows, texts, documents = self._read("shares")
        scores, _ = _exploded(
            rows,
            texts,
            [[(rate, 0, *counts) for rate, counts in one.items()] for one in documents],
        )
        return scores

    def parts(self, calls: OverCalls) -> Iterator[tuple[Rows, Rows]]:
        """What single calls add to the scores of cases, by tool, label and definition.

        A call that was expected and never made counts for its tool alone.
        """
        rows, texts, documents = self._read("parts")
        tools: dict[str, int] = {}
        lists = [
            [
                (rate, (tools.setdefault(tool, len(tools)), -1 if at is None else at), *counts)
                for rate, tool, at, *counts in one
            ]
            for one in documents
        ]
        scores, places = _exploded(rows, texts, lists, width=2)
        if not len(scores.rows):
            return
        everything = np.arange(len(scores.rows))
        by_tool = bounded(
            Groups(list(tools), everything, places[:, 0]), self._standing_for[scores.rows]
        )
        yield self._scored(Clusters(TOOL, by_tool, scores.rows), everything, scores)
        ids = self._columns.column("trajectory_id").take(scores.rows)
        made = calls.rows_at(calls.trajectories_named(ids), places[:, 1])
        seen = np.flatnonzero(made >= 0)
        for dimension in (LABEL, SCHEMA_VERSION):
            groups = calls.groups(dimension)
            members, of = groups.members(made[seen])
            part = seen[of]
            mine = Groups(groups.names, part, groups.codes[members])
            yield self._scored(
                Clusters(dimension, mine, scores.rows),
                np.arange(len(part)),
                scores.at(part),
            )

    def _read(self, column: str) -> tuple[Codes, Codes, list[Any]]:
        """The rows that played a case, the text of each, and the JSON that the texts hold."""
        rows = np.flatnonzero(self._columns.is_known("parts") & self._columns.is_known(column))
        codes, texts = encoded(self._columns.column(column).take(rows))
        return rows, codes, [orjson.loads(text) for text in texts]


def _exploded(
    rows: Codes, texts: Codes, lists: Sequence[Sequence[Any]], width: int = 1
) -> tuple[_Scores, Codes]:
    """Scores of rows that hold lists of (rate, place, hits, of, unseen), and the places."""
    number = {rate: place for place, rate in enumerate(CASE_RATES)}
    kept = [[one for one in entries if one[0] in number] for entries in lists]
    flat = [one for entries in kept for one in entries]
    many = np.array([*(len(entries) for entries in kept), 0])
    first = np.cumsum(many) - many
    often = many[texts]
    within = np.arange(int(often.sum())) - np.repeat(np.cumsum(often) - often, often)
    chosen = np.repeat(first[texts], often) + within
    counts = np.array([one[2:] for one in flat], np.float64).reshape(-1, 3)[chosen]
    rates = np.array([number[one[0]] for one in flat], np.int64)[chosen]
    places = np.array([one[1] for one in flat], np.int64).reshape(-1, width)[chosen]
    return _Scores(np.repeat(rows, often), rates, *counts.T), places
