"""Trajectories in which nothing can be found, told from the others without looking at each.

A trajectory is *quiet* when it is plain (see :mod:`read`), played no case, its run did not fail,
and each of its calls ended well, repeats no other, and is one of which nobody could find anything,
whatever stands around it (:func:`is_quiet`). Most of real traffic is. What would be found of the
quiet ones is nothing, and the same for all that are alike: one of each is judged, by the judge that
judges all others, and stands for them.
"""

from typing import Final

import numpy as np

from toolverdict.instrument import semconv
from toolverdict.instrument.outcomes import Outcome
from toolverdict.instrument.policy import Policy
from toolverdict.scoring.columns.arrays import NONE, Flags, Rows, column_of, equals, taken
from toolverdict.scoring.columns.read import PlainTraces
from toolverdict.scoring.columns.texts import encoded
from toolverdict.scoring.known_tools import KnownTools
from toolverdict.scoring.model import Captured, ToolCall


def is_quiet(call: ToolCall, agent: str | None, policy: Policy | None, tools: KnownTools) -> bool:
    """Whether nothing can be found of a call that repeats no other, whatever it carries.

    It ran and ended well, nobody was asked about it, its tool is known neither to do harm nor to
    return what outsiders write, its content was not captured, and the policy, where there is one,
    allows it by its name alone.
    """
    if call.outcome is not Outcome.OK or call.executed is not True:
        return False
    if call.approval_status is not None or call.idempotency_status is not None:
        return False
    if Captured.CAPTURED in (call.arguments_state, call.result_state):
        return False
    known = tools.of(call)
    if known.dangerous or known.untrusted:
        return False
    if policy is None:
        return True
    return policy.allows_by_name(call.known_as, frozenset(call.labels), agent)


class CallClasses:
    """The calls of a table, those of one kind and one agent together.

    ``of_call`` is the class of each call; ``kinds`` and ``agents`` are those of each class.
    """

    def __init__(self, plain: PlainTraces) -> None:
        """Number the classes."""
        calls = plain.calls
        kinds = plain.kinds.of_row[calls.row]
        keys = kinds * (len(calls.agent.texts) + 1) + calls.agent.codes + 1
        _, examples, of_call = np.unique(keys, return_index=True, return_inverse=True)
        self.of_call: Final[Rows] = of_call.reshape(-1)
        self.kinds: Final = [plain.kinds.kinds[kind] for kind in kinds[examples]]
        self.agents: Final = calls.agent.of(calls.agent.codes[examples]).list()


def quiet_traces(plain: PlainTraces, quiet_calls: Flags) -> Flags:
    """For each plain trace, whether its trajectory is quiet and has calls.

    Args:
        plain: the traces.
        quiet_calls: which of their calls are quiet by themselves.
    """
    calls, traces = plain.calls, plain.traces
    quiet = np.zeros(len(traces.number), dtype=np.bool_)
    quiet[calls.trace] = True
    quiet[calls.trace[~quiet_calls]] = False
    quiet[_with_repeats(plain)] = False
    failed = equals(column_of(plain.table, "status_code"), _STATUS_ERROR)
    quiet &= ~failed[traces.root]
    quiet &= traces.case.codes == NONE
    return quiet


def _with_repeats(plain: PlainTraces) -> Rows:
    """Trajectories with two calls that may be the same one again: equal hashes, or none to tell."""
    calls = plain.calls
    hashes = encoded(taken(column_of(plain.table, semconv.TOOL_ARGS_HASH), calls.row))
    size = len(hashes.texts) + 1
    keys = np.sort(calls.trace * size + hashes.codes + 1)
    repeated: Rows = keys[1:][keys[1:] == keys[:-1]] // size
    return repeated


_STATUS_ERROR: Final = 2
