"""What each trajectory adds to each rate, as JSON: the column ``shares`` of verdicts.

Unweighted, ``{rate: [hits, of, unseen]}``, rates to which it adds nothing left out. Trajectories are
alike in this far more often than not: a text is made once for all that are.
"""

from collections.abc import Iterator

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.scoring.rates.columns import Codes, Columns, integers, numbered
from toolverdict.scoring.rates.definitions import (
    CALL_RATE_DEFINITIONS,
    PASS_RATE,
    SAFETY_COMPLIANCE,
)
from toolverdict.scoring.rates.over_calls import CallBases

_SHARES = "shares"


def with_shares(verdicts: pa.Table, calls: pa.Table) -> pa.Table:
    """The verdicts with whole ``shares``: to what stands there, the scores of cases, all others.

    Args:
        verdicts: one row a trajectory; ``shares`` holds those of its case, or null.
        calls: their calls, in any order.
    """
    counts = _Counts(verdicts, calls)
    shares = pa.DictionaryArray.from_arrays(
        pa.array(counts.alike, pa.int32()), pa.array(counts.texts(), pa.string())
    )
    if verdicts[_SHARES].null_count < verdicts.num_rows:
        texts = shares.cast(pa.string())
        of_cases = verdicts[_SHARES].cast(pa.string()).combine_chunks()
        opened, closed = pc.utf8_slice_codeunits(texts, 0, -1), pc.utf8_slice_codeunits(of_cases, 1)
        both = pc.binary_join_element_wise(opened, closed, ",")  # type: ignore[call-overload]
        shares = pc.coalesce(both, texts).dictionary_encode()
    place = verdicts.column_names.index(_SHARES)
    return verdicts.set_column(place, verdicts.schema.field(place), shares)


class _Counts:
    """What is counted in each trajectory; those that are alike in all of it have one number."""

    def __init__(self, verdicts: pa.Table, calls: pa.Table) -> None:
        self._rows = verdicts.num_rows
        self._found: dict[str, tuple[Codes, Codes, Codes]] = {}
        self._over_calls(verdicts, Columns(calls))
        self._over_trajectories(Columns(verdicts))
        self.alike = np.zeros(self._rows, np.int64)
        for counts in self._found.values():
            for count in counts:
                if count.any():
                    wide = self.alike * (int(count.max()) + 1) + count
                    self.alike, _ = numbered(wide)

    def _over_calls(self, verdicts: pa.Table, calls: Columns) -> None:
        whose = pc.index_in(calls.column("trajectory_id"), value_set=verdicts["trajectory_id"])
        row = integers(whose, -1)
        bases = CallBases(calls, np.ones(calls.rows, np.bool_))
        of = {name: self._count(row[mask]) for name, mask in bases.of.items()}
        unseen = {name: self._count(row[rows]) for name, rows in bases.unseen.items()}
        for name, marked in bases.marked(calls).items():
            rate = CALL_RATE_DEFINITIONS[name]
            count = self._count(row[marked])
            hits = of[rate.base] - count if rate.misses else count
            self._found[name] = hits, of[rate.base], unseen[rate.base]

    def _over_trajectories(self, verdicts: Columns) -> None:
        safety, decided = verdicts.numbers("safety")
        for name, hit, known in (
            (PASS_RATE, verdicts.is_true("passed"), verdicts.is_known("passed")),
            (SAFETY_COMPLIANCE, safety == 1, decided),
        ):
            columns = (hit & known, known, ~known)
            hits, of, unseen = (one.astype(np.int64) for one in columns)
            self._found[name] = hits, of, unseen

    def _count(self, rows: Codes) -> Codes:
        return np.bincount(rows, minlength=self._rows)

    def texts(self) -> Iterator[str]:
        """The JSON of each number."""
        example = np.zeros(int(self.alike.max(initial=-1)) + 1, np.int64)
        example[self.alike] = np.arange(self._rows)
        names = sorted(self._found)
        table = np.array([self._found[name] for name in names])[:, :, example]
        for counts in table.transpose(2, 0, 1).tolist():
            yield orjson.dumps(
                {n: c for n, c in zip(names, counts, strict=True) if c[1] or c[2]}
            ).decode()
