"""The plain traces of a table scored: rows of calls, findings and verdicts.

Trajectories that have a form (see :mod:`alike`) are judged once for all of that form, the others one
by one, by the same judge.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from toolverdict.instrument.catalogue.definitions import Catalogue
from toolverdict.instrument.policy import Policy
from toolverdict.scoring.columns.alike import CallClass, CallClasses, Forms, class_of
from toolverdict.scoring.columns.arrays import NONE, Column, Flags, Rows, among, taken
from toolverdict.scoring.columns.calls import call_columns, numbers
from toolverdict.scoring.columns.kinds import Kind
from toolverdict.scoring.columns.materialise import trajectories
from toolverdict.scoring.columns.read import PlainTraces
from toolverdict.scoring.columns.stamping import Found, Stamp, stamped_findings, stamped_verdicts
from toolverdict.scoring.known_tools import tools_under
from toolverdict.scoring.model import Trajectory
from toolverdict.scoring.per_call import found_of
from toolverdict.scoring.tables import CALLS, findings_table, verdicts_table
from toolverdict.scoring.verdicts import Judged

Judge: TypeAlias = Callable[[Trajectory], Judged | None]
"""Judges a trajectory; None for one that neither called a tool nor played a case."""


@dataclass(frozen=True, slots=True)
class PlainScore:
    """Rows of the plain trajectories of a table; ``judged`` are those that were looked at singly."""

    calls: pa.Table
    findings: pa.Table
    verdicts: pa.Table
    judged: Sequence[Judged]


_MOST_KNOWN: Final = 100_000


@dataclass(slots=True)
class _Known:
    """What is known of the calls of a class; ``found`` is what the judge finds of a quiet one."""

    about: CallClass
    found: Found | None = None


class PlainScorer:
    """Scores the plain traces of one table after the other, by the same rules."""

    def __init__(
        self,
        judge: Judge,
        policy: Policy | None = None,
        catalogue: Catalogue | None = None,
        cased: Collection[str] = frozenset(),
    ) -> None:
        """Begin.

        Args:
            judge: of every trajectory.
            policy: by which the judge decides the calls.
            catalogue: by which it knows the tools.
            cased: ids of traces and conversations that played a case without saying so.
        """
        self._judge = judge
        self._policy = policy
        self._tools = tools_under(policy, catalogue)
        self._cased = cased
        # By the identity of the kind, which is kept in what is known of it.
        self._known: dict[tuple[int, str | None], _Known] = {}
        self.stamps: Final[dict[tuple[int, str | None, int, bool], Stamp]] = {}
        """What stands for the trajectories of each form.

        By the call that did not end well, if one did not (its kind and agent), by what came next,
        and by whether every other call was decided.
        """

    def score(self, plain: PlainTraces) -> PlainScore:
        """Rows of all trajectories of the plain traces, each once."""
        if len(self._known) > _MOST_KNOWN:  # only hostile traffic has as many kinds of calls
            self._known.clear()
            self.stamps.clear()
        return _Scoring(self, plain).result()

    def known(self, kind: Kind, agent: str | None) -> _Known:
        """What is known of the calls of one kind by one agent."""
        key = id(kind), agent
        if key not in self._known:
            self._known[key] = _Known(class_of(kind, agent, self._policy, self._tools))
        return self._known[key]

    def is_cased(self, plain: PlainTraces) -> Flags:
        """Which trajectories played a case without saying so."""
        if not self._cased:
            return np.zeros(len(plain.traces.number), np.bool_)
        conversations = plain.traces.conversation.array()
        return among(plain.trace_ids, self._cased) | among(conversations, self._cased)

    def judged(self, plain: PlainTraces, spans: dict[str, Column], entries: Rows) -> list[Judged]:
        """These trajectories, judged one by one."""
        found = (self._judge(one) for one in trajectories(plain, spans, entries))
        return [one for one in found if one is not None]


class _Scoring:
    """One table on its way."""

    def __init__(self, scorer: PlainScorer, plain: PlainTraces) -> None:
        self._scorer = scorer
        self._plain = plain
        self._spans = call_columns(plain)
        classes = CallClasses(plain)
        self._of_call = classes.of_call
        self._known = [
            scorer.known(*key) for key in zip(classes.kinds, classes.agents, strict=True)
        ]
        self._forms = Forms(plain, classes, [one.about for one in self._known])
        self._is_cased = scorer.is_cased(plain)
        self._alike = self._forms.has_one & ~self._is_cased
        self._learn_calls()
        self._stamp_of, self._stamps = self._learn_forms()

    def result(self) -> PlainScore:
        plain, entries = self._plain, np.flatnonzero(self._alike)
        singly = self._scorer.judged(plain, self._spans, np.flatnonzero(self._to_judge()))
        stamp_of = self._stamp_of[entries]
        calls = _calls(self._spans, self._sources(singly))
        return PlainScore(
            calls=calls,
            findings=pa.concat_tables(
                [
                    stamped_findings(plain, calls, entries, self._forms, stamp_of, self._stamps),
                    findings_table(singly),
                ]
            ),
            verdicts=pa.concat_tables(
                [stamped_verdicts(plain, entries, stamp_of, self._stamps), verdicts_table(singly)]
            ),
            judged=singly,
        )

    def _to_judge(self) -> Flags:
        """Trajectories without a form; a trace without a call is none, unless it played a case."""
        plain = self._plain
        there = (plain.traces.case.codes >= 0) | self._is_cased
        there[plain.calls.trace] = True
        return there & ~self._alike

    # --- what one of each stands for ------------------------------------------------------------

    def _examples(self, entries: Rows) -> dict[int, Judged]:
        chosen = np.unique(entries)
        judged = self._scorer.judged(self._plain, self._spans, chosen)
        return dict(zip(chosen.tolist(), judged, strict=True))

    def _learn_calls(self) -> None:
        """Judge a trajectory with a quiet call of each class of which nothing is known."""
        calls = self._plain.calls
        unknown = np.array([k.about.is_quiet and k.found is None for k in self._known], np.bool_)
        call = np.flatnonzero(self._alike[calls.trace] & unknown[self._of_call])
        numbers, first = np.unique(self._of_call[call], return_index=True)
        examples = self._examples(calls.trace[call[first]])
        for number, one in zip(numbers.tolist(), call[first].tolist(), strict=True):
            judged = examples[int(calls.trace[one])]
            self._known[number].found = list(found_of(judged))[int(calls.index[one])]

    def _learn_forms(self) -> tuple[Rows, list[Stamp]]:
        """The stamp of each trajectory that has a form; those that none can stand for lose it."""
        calls, forms = self._plain.calls, self._forms
        is_decided = np.array(
            [bool(k.found and k.found["compliant"]) for k in self._known], np.bool_
        )[self._of_call]
        is_mild = np.zeros(len(calls.row), np.bool_)
        is_mild[forms.mild[self._alike & (forms.mild >= 0)]] = True
        decided = np.ones(len(self._alike), np.bool_)
        decided[calls.trace[~is_decided & ~is_mild]] = False
        mild_class = np.full(len(self._alike), NONE)
        mild_class[forms.mild >= 0] = self._of_call[forms.mild[forms.mild >= 0]]
        forms_of = np.stack([mild_class, forms.next, decided.astype(np.int64)], axis=1)
        entries = np.flatnonzero(self._alike)
        keys, first, of_entry = np.unique(
            forms_of[entries], axis=0, return_index=True, return_inverse=True
        )
        names = [self._name(*key) for key in keys.tolist()]
        known = self._scorer.stamps
        new = [number for number, name in enumerate(names) if name not in known]
        examples = self._examples(entries[first[new]])
        for number in new:
            entry = int(entries[first[number]])
            mild = int(forms.mild[entry])
            index = int(calls.index[mild]) if mild >= 0 else None
            known[names[number]] = Stamp.of(examples[entry], index)
        stamps = [known[name] for name in names]
        stamp_of = np.full(len(self._alike), NONE)
        stamp_of[entries] = of_entry.reshape(-1)
        stands = np.array([one.stands for one in stamps], np.bool_)
        self._alike[entries[~stands[stamp_of[entries]]]] = False
        return stamp_of, stamps

    def _name(self, mild: int, following: int, decided: int) -> tuple[int, str | None, int, bool]:
        if mild == NONE:
            return NONE, None, NONE, bool(decided)
        about = self._known[mild].about
        return id(about.kind), about.agent, following, bool(decided)

    # --- rows -----------------------------------------------------------------------------------

    def _sources(self, singly: Sequence[Judged]) -> "_Sources":
        """Where what was found of each call is: of its class, of its form, or of itself."""
        plain, forms = self._plain, self._forms
        alike = self._alike[plain.calls.trace]
        found = [one.found or {} for one in self._known]
        place = self._of_call.copy()
        mild = np.flatnonzero(self._alike & (forms.mild >= 0))
        place[forms.mild[mild]] = len(found) + self._stamp_of[mild]
        found += [one.found or {} for one in self._stamps]
        rest = np.flatnonzero(~alike)
        place[rest] = len(found) + np.arange(len(rest))
        found += [one for judged in singly for one in found_of(judged)]
        attempt, retry_of = np.ones(len(place), np.int64), np.full(len(place), NONE)
        placed = [one for judged in singly for one in judged.trajectory.calls]
        attempt[rest] = [one.attempt for one in placed]
        retry_of[rest] = [NONE if one.retry_of is None else one.retry_of for one in placed]
        return _Sources(place, found, attempt, retry_of)


@dataclass(frozen=True, slots=True)
class _Sources:
    """For each call the place of what was found of it, and its attempt."""

    place: Rows
    found: Sequence[Found]
    attempt: Rows
    retry_of: Rows


def _calls(spans: dict[str, Column], sources: _Sources) -> pa.Table:
    """The rows of all calls: what their spans say, and what the judge found of them."""
    names = dict.fromkeys(name for one in sources.found for name in one)
    columns = {
        **spans,
        "attempt": numbers(sources.attempt),
        "retry_of": numbers(sources.retry_of),
        **{
            name: taken(
                pa.array([one.get(name) for one in sources.found], CALLS.field(name).type),
                sources.place,
            )
            for name in names
        },
    }
    size = len(sources.place)
    return pa.table(
        [
            columns[f.name].cast(f.type) if f.name in columns else pa.nulls(size, f.type)
            for f in CALLS
        ],
        schema=CALLS,
    )
