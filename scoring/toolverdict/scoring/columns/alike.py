"""Trajectories that are judged alike, told without looking at each.

Of most trajectories of real traffic there is nothing to find, or one failed call that nothing came
of. What the judge says of such a one depends on little: on its *form*. One of each form is judged,
by the judge that judges all others, and stands for them. A trajectory has a form if it is plain (see
:mod:`read`), played no case, its run did not fail, no call may repeat another, and

- it is *quiet*: each of its calls is (see :func:`class_of`); then that is its form; or
- one call did not end well, of a tool that is not called again after it, and all others are quiet
  and can do no harm; then its form is the class of that call and what came next.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import pyarrow.compute as pc

from toolverdict.instrument import semconv
from toolverdict.instrument.decisions import Effect, ReasonCode
from toolverdict.instrument.names import bare_name
from toolverdict.instrument.outcomes import Outcome
from toolverdict.instrument.policy import Policy
from toolverdict.scoring.columns.arrays import (
    NONE,
    Flags,
    Rows,
    column_of,
    equals,
    flags,
    taken,
)
from toolverdict.scoring.columns.kinds import Kind
from toolverdict.scoring.columns.read import PlainTraces
from toolverdict.scoring.columns.texts import distinct, encoded
from toolverdict.scoring.known_tools import KnownTools
from toolverdict.scoring.model import Captured, ToolCall
from toolverdict.scoring.spans import STATUS_ERROR

_PAYMENT: Final = "payment"
_FIRST_TIME: Final = "new"  # of an idempotency key
_TAINT: Final = '"taint.'


class Next(IntEnum):
    """What came after a call that did not end well."""

    CALL = 0
    """A call that began after it had ended."""
    NOTHING = 1
    """Nothing, and no request to the model is seen at all."""
    TURN = 2
    """No call, but a request to the model."""
    END = 3
    """Neither, where others are seen."""


@dataclass(frozen=True, slots=True)
class CallClass:
    """What calls of one kind by one agent are, each by itself."""

    kind: Kind
    agent: str | None
    is_quiet: bool
    is_mild: bool
    """It is quiet but for how it ended."""
    is_notable: bool
    """It can do harm, or returns what outsiders write."""


def class_of(kind: Kind, agent: str | None, policy: Policy | None, tools: KnownTools) -> CallClass:
    """What the calls of one kind by one agent are.

    Of a quiet one nothing can be found, as long as it repeats no other, whatever is around it.
    """
    call = kind.call
    if call is None:
        return CallClass(kind, agent, False, False, False)
    about = tools.of(call)
    notable = about.dangerous or about.untrusted
    is_usual = _is_usual(call, agent, policy, notable)
    well = call.outcome is Outcome.OK and call.executed is True
    return CallClass(kind, agent, is_usual and well, is_usual and not well, notable)


def _is_usual(call: ToolCall, agent: str | None, policy: Policy | None, notable: bool) -> bool:
    """Whether nothing can be found of a call but by how it ended.

    Its content was not captured, nobody was asked about it, a payment has a key, and it is allowed:
    by the policy, whatever else is known of it, else by what is on record if it can do harm.
    """
    if Captured.CAPTURED in (call.arguments_state, call.result_state):
        return False
    if call.approval_status is not None or call.idempotency_status not in (None, _FIRST_TIME):
        return False
    if _PAYMENT in call.labels and call.idempotency_key_hash is None:
        return False
    if policy is not None:
        return policy.allows_by_name(call.known_as, frozenset(call.labels), agent)
    if call.policy_decision in (Effect.DENY, Effect.REQUIRE_APPROVAL):
        return False
    on_record = call.policy_decision == Effect.ALLOW
    return not notable or (on_record and call.policy_reason_code != ReasonCode.NO_POLICY)


class CallClasses:
    """The calls of plain traces by class: ``of_call`` numbers ``kinds`` and ``agents``."""

    def __init__(self, plain: PlainTraces) -> None:
        """Number the classes."""
        calls = plain.calls
        kinds = plain.kinds.of_row[calls.row]
        keys = kinds * (len(calls.agent.texts) + 1) + calls.agent.codes + 1
        _, examples, of_call = np.unique(keys, return_index=True, return_inverse=True)
        self.of_call: Final[Rows] = of_call.reshape(-1)
        self.kinds: Final = [plain.kinds.kinds[kind] for kind in kinds[examples]]
        self.agents: Final = calls.agent.of(calls.agent.codes[examples]).list()


class Forms:
    """The form of each plain trajectory that has one.

    ``has_one`` says which; ``mild`` is the call that did not end well (-1: none, it is quiet) and
    ``next`` what came after it.
    """

    def __init__(self, plain: PlainTraces, classes: CallClasses, of_class: list[CallClass]) -> None:
        """Find the forms.

        Args:
            plain: the trajectories.
            classes: of their calls.
            of_class: what the calls of each class are.
        """
        calls, count = plain.calls, len(plain.traces.number)
        quiet = np.array([one.is_quiet for one in of_class], np.bool_)[classes.of_call]
        mild = np.array([one.is_mild for one in of_class], np.bool_)[classes.of_call]
        notable = np.array([one.is_notable for one in of_class], np.bool_)[classes.of_call]
        others = np.bincount(calls.trace[~quiet], minlength=count)
        self.has_one: Final[Flags] = self._may_have_one(plain)
        self.has_one[calls.trace[~quiet & ~mild]] = False
        self.has_one[others > 1] = False
        self.has_one[calls.trace[notable & _under_taint(plain)[calls.trace]]] = False
        self.mild: Final[Rows] = np.full(count, NONE)
        self.next: Final[Rows] = np.full(count, NONE)
        call = np.flatnonzero(mild & self.has_one[calls.trace])
        of_notable = np.zeros(count, np.bool_)
        of_notable[calls.trace[notable]] = True
        after, is_clear = self._next(plain, classes, call)
        is_clear &= ~of_notable[calls.trace[call]]
        self.has_one[calls.trace[call[~is_clear]]] = False
        self.mild[calls.trace[call[is_clear]]] = call[is_clear]
        self.next[calls.trace[call[is_clear]]] = after[is_clear]

    def _may_have_one(self, plain: PlainTraces) -> Flags:
        """Trajectories with calls, none of which may repeat another, in a run that did not fail."""
        calls, traces = plain.calls, plain.traces
        may = np.zeros(len(traces.number), np.bool_)
        may[calls.trace] = True
        may[_with_repeats(plain)] = False
        failed = equals(column_of(plain.table, "status_code"), STATUS_ERROR)
        may &= ~failed[traces.root] & (traces.case.codes == NONE)
        return may

    def _next(self, plain: PlainTraces, classes: CallClasses, call: Rows) -> tuple[Rows, Flags]:
        """What came after each of these calls, and whether that is clear and another tool's."""
        calls, forest = plain.calls, plain.forest
        end = column_of(plain.table, "end_time_unix_nano").to_numpy()[calls.row]
        start = forest.start[calls.row]
        last = np.searchsorted(calls.trace, calls.trace[call], side="right") - 1
        following = np.minimum(call + 1, len(calls.row) - 1)
        is_last = call == last
        is_clear = is_last | (start[following] >= end[call])
        tools = distinct(
            [None if kind.call is None else bare_name(kind.call.tool) for kind in classes.kinds]
        ).codes[classes.of_call]
        keys = calls.trace * (int(tools.max(initial=0)) + 1) + tools
        order = np.argsort(keys, kind="stable")
        newest = np.ones(len(keys), np.bool_)
        newest[order[:-1]] = np.diff(keys[order]) != 0  # no later call of the tool in the trace
        is_clear &= newest[call]
        models = np.flatnonzero(plain.is_model)
        traces = plain.traces.number[calls.trace[call]]
        begin, stop = (
            np.searchsorted(forest.trace[models], traces, side=side) for side in ("left", "right")
        )
        has_turns = stop > begin
        newest_turn = models[np.maximum(stop - 1, 0)] if len(models) else np.zeros(len(call), int)
        answered = has_turns & (forest.start[newest_turn] >= end[call])
        after = np.where(has_turns, np.where(answered, Next.TURN, Next.END), Next.NOTHING)
        return np.where(is_last, after, Next.CALL), is_clear


def _with_repeats(plain: PlainTraces) -> Rows:
    """Trajectories with two calls that may be the same one again: equal hashes, or none to tell."""
    calls = plain.calls
    hashes = encoded(taken(column_of(plain.table, semconv.TOOL_ARGS_HASH), calls.row))
    size = len(hashes.texts) + 1
    keys = np.sort(calls.trace * size + hashes.codes + 1)
    repeated: Rows = keys[1:][keys[1:] == keys[:-1]] // size
    return repeated


def _under_taint(plain: PlainTraces) -> Flags:
    """Trajectories of which atoms of what the user said are on record."""
    texts = taken(column_of(plain.table, "attributes"), plain.traces.root)
    return flags(pc.match_substring(texts, _TAINT))
