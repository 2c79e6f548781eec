"""What ``OUT`` holds of failures: which trajectories failed and why, and the rows of a few of them.

Two passes. The first reads a few columns of everything, filtered as they are read; the second reads
whole rows, of the drawn trajectories alone. What is in memory follows the number of failures, not
that of trajectories.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from toolverdict.scoring.errors import InputError
from toolverdict.scoring.model import Category, Severity
from toolverdict.scoring.results import KINDS
from toolverdict.scoring.tables import VERSION

_VERSION_KEY: Final = b"toolverdict.results.version"
_NONE: Final = "-"


@dataclass(frozen=True, slots=True)
class Failure:
    """One trajectory that failed, or of which an error stands that nobody put right."""

    trajectory_id: str
    trace_id: str
    judged: bool
    """Whether it failed by a policy or a case; else it could not be judged, and something failed."""
    weight: float | None
    tool: str
    error: str
    category: str


class Outcome:
    """The results in a folder.

    Raises:
        InputError: it holds none, or those of a newer version.
    """

    def __init__(self, out: Path) -> None:
        self._sets: dict[str, ds.Dataset] = {}
        for kind in KINDS:
            folder = out / kind
            if not folder.is_dir():
                raise InputError(f"{out}: holds no results; name the --out of `toolverdict score`")
            try:
                found = ds.dataset(folder, format="parquet")
            except (pa.ArrowException, OSError) as error:
                raise InputError(f"{folder}: cannot be read; score again") from error
            version = (found.schema.metadata or {}).get(_VERSION_KEY)
            if version is not None and (not version.isdigit() or int(version) > VERSION):
                raise InputError(f"{folder}: is of a newer version; upgrade toolverdict")
            self._sets[kind] = found

    def failures(self) -> list[Failure]:
        """Every trajectory that failed, or that could not be judged and holds what failed."""
        causes = self._causes()
        nowhere: tuple[str | None, str] = (None, _NONE)
        unjudged = pc.field("passed").is_null() & _is_one_of("trajectory_id", causes)
        verdicts = self.read(
            "verdicts",
            ("trajectory_id", "trace_id", "passed", "weight"),
            (pc.field("passed") == False) | unjudged,  # noqa: E712 - an expression
        )
        rows = verdicts.to_pylist()
        spans = {causes[row["trajectory_id"]][0] for row in rows if row["trajectory_id"] in causes}
        calls = self._calls_at(spans)
        found = []
        for row in rows:
            span_id, category = causes.get(row["trajectory_id"], nowhere)
            at = (row["trace_id"], span_id)
            tool, error = calls.get(at, (_NONE, _NONE))
            judged = row["passed"] is False
            found.append(
                Failure(
                    row["trajectory_id"],
                    row["trace_id"],
                    judged,
                    row["weight"],
                    tool,
                    error,
                    category,
                )
            )
        return found

    def rows(
        self, kind: str, columns: Sequence[str], trajectories: Sequence[str]
    ) -> dict[str, list[dict[str, Any]]]:
        """The rows of these trajectories, by the id of each; a column of a later version is null."""
        known = self.columns(kind)
        named = ("trajectory_id", *(name for name in columns if name in known))
        table = self.read(kind, named, _is_one_of("trajectory_id", trajectories))
        found: dict[str, list[dict[str, Any]]] = {one: [] for one in trajectories}
        for row in table.to_pylist():
            found[row["trajectory_id"]].append(row)
        return found

    def _causes(self) -> dict[str, tuple[str, str]]:
        """Span and category of the first evidence of each: the highest ranked, else the earliest."""
        failing = pc.field("severity").isin([Severity.FAILURE.value, Severity.VIOLATION.value])
        standing = failing | (pc.field("category") == Category.CALL_FAILED.value)
        unranked = pc.field("rank").is_null() & standing & ~pc.field("repaired")
        columns = ("trajectory_id", "rank", "call_index", "category", "span_id")
        table = self.read("findings", columns, (pc.field("rank") == 1) | unranked)
        table = table.set_column(3, "category", table["category"].cast(pa.string()))
        # Nulls sort last: what is ranked comes before what is not.
        table = table.sort_by([(name, "ascending") for name in columns])
        causes: dict[str, tuple[str, str]] = {}
        named = (table[name].to_pylist() for name in ("trajectory_id", "span_id", "category"))
        for trajectory_id, span_id, category in zip(*named, strict=True):
            causes.setdefault(trajectory_id, (span_id, category))
        return causes

    def _calls_at(self, spans: Iterable[str]) -> dict[tuple[str, str | None], tuple[str, str]]:
        """Tool and error code of the calls at these spans, by trace and span."""
        columns = ("trace_id", "span_id", "tool", "error_type", "error_kind")
        return {
            (row["trace_id"], row["span_id"]): (
                row["tool"],
                row["error_type"] or row["error_kind"] or _NONE,
            )
            for row in self.read("calls", columns, _is_one_of("span_id", spans)).to_pylist()
        }

    def columns(self, kind: str) -> list[str]:
        """The names of the columns that there are."""
        return list(self._sets[kind].schema.names)

    def count(self, kind: str, filter_: pc.Expression | None = None) -> int:
        """How many rows there are, or fit."""
        try:
            return int(self._sets[kind].count_rows(filter=filter_))
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{kind}: the results cannot be read; score again") from error

    def read(self, kind: str, columns: Sequence[str], filter_: pc.Expression) -> pa.Table:
        """These columns of the rows that fit."""
        try:
            return self._sets[kind].to_table(
                columns=list(columns),
                filter=filter_,
                # What is read ahead is held in memory, whole, before it is filtered.
                fragment_readahead=1,
                batch_readahead=2,
                use_threads=False,
            )
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{kind}: the results cannot be read; score again") from error


def _is_one_of(column: str, texts: Iterable[str]) -> pc.Expression:
    return pc.field(column).isin(pa.array(list(texts), pa.string()))
