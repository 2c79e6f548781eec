"""Whether an argument stems from what may be trusted: the user, the operator, a trusted tool.

The positive rule (CaMeL's): not "was it seen in untrusted text", which every encoding escapes, but
"can it have come from trusted text". What was not captured may have held it, so then nothing is
known.
"""

from collections.abc import Callable

from toolverdict.instrument.outcomes import Outcome
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.trust import TrustedTexts, all_said
from toolverdict.scoring.model import Captured, ToolCall, Trajectory
from toolverdict.scoring.values import as_text, leaves

_MAX_CHARS = 50_000_000
_MAX_SEARCHED_CHARS = 200_000_000


class TrustedSoFar:
    """What the user, the operator and trusted tools have said so far in one recorded trajectory."""

    def __init__(self, trajectory: Trajectory, policy: Policy) -> None:
        self._policy = policy
        self._texts = TrustedTexts(_MAX_CHARS)
        for text in (*trajectory.user_texts, *trajectory.system_texts):
            self._texts.add(text)
        if not trajectory.user_texts:
            self._texts.miss()
        self._budget = _MAX_SEARCHED_CHARS

    def add(self, call: ToolCall) -> None:
        """Take note of the result of a call, if its tool is trusted."""
        labels = self._policy.labels_of(call.known_as, frozenset(call.labels))
        if self._policy.is_untrusted_source(call.known_as, labels):
            return
        if call.result_state is Captured.CAPTURED:
            self._texts.add(call.result if isinstance(call.result, str) else as_text(call.result))
        elif call.executed is not False and call.outcome is not Outcome.EMPTY:
            self._texts.miss()  # it may have said anything

    def asked(self) -> Callable[[object], bool | None]:
        """What ``Call.is_trusted`` wants, as of now."""
        first, whole = len(self._texts), self._texts.whole

        def is_trusted(value: object) -> bool | None:
            return all_said(self._was_said(leaf, first, whole=whole) for leaf in leaves(value))

        return is_trusted

    def _was_said(self, leaf: str | float, first: int, *, whole: bool) -> bool | None:
        self._budget -= self._texts.chars
        if self._budget < 0:
            return None
        text = leaf if isinstance(leaf, str) else as_text(leaf)
        return self._texts.said(leaf, text, whole=whole, first=first)
