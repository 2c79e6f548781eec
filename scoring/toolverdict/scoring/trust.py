"""Whether an argument stems from what may be trusted: the user, the operator, a trusted tool.

The positive rule (CaMeL's): not "was it seen in untrusted text", which every encoding escapes, but
"can it have come from trusted text". What was not captured may have held it, so then nothing is
known.
"""

from collections.abc import Callable

from toolverdict.instrument.names import same_tool
from toolverdict.instrument.outcomes import Outcome
from toolverdict.instrument.policy import Policy
from toolverdict.scoring.model import Captured, Json, ToolCall, Trajectory
from toolverdict.scoring.values import as_text, leaves

UNTRUSTED_LABEL = "untrusted"
_MAX_SEARCHED_CHARS = 200_000_000


class TrustedTexts:
    """What the user, the operator and trusted tools have said so far in one trajectory."""

    def __init__(self, trajectory: Trajectory, policy: Policy) -> None:
        self._policy = policy
        said = (*trajectory.user_texts, *trajectory.system_texts)
        self._texts = [text.casefold() for text in said]
        self._whole = bool(trajectory.user_texts)
        self._budget = _MAX_SEARCHED_CHARS

    def add(self, call: ToolCall) -> None:
        """Take note of the result of a call, if its tool is trusted."""
        labels = self._policy.labels_of(call.tool, frozenset(call.labels))
        outsiders = self._policy.untrusted_sources or ()
        if UNTRUSTED_LABEL in labels or any(same_tool(glob, call.tool) for glob in outsiders):
            return
        if call.result_state is Captured.CAPTURED:
            text = call.result if isinstance(call.result, str) else as_text(call.result)
            self._texts.append(text.casefold())
        elif call.executed is not False and call.outcome is not Outcome.EMPTY:
            self._whole = False  # it may have said anything

    def asked(self) -> Callable[[object], bool | None]:
        """What ``Call.is_trusted`` wants, as of now."""
        texts, whole = self._texts[:], self._whole

        def is_trusted(value: object) -> bool | None:
            answers = [self._holds(leaf, texts, whole=whole) for leaf in leaves(value)]
            if False in answers:
                return False
            return None if None in answers or not answers else True

        return is_trusted

    def _holds(self, leaf: Json, texts: list[str], *, whole: bool) -> bool | None:
        sought = leaf.casefold() if isinstance(leaf, str) else as_text(leaf)
        for text in texts:
            self._budget -= len(text)
            if self._budget < 0:
                return None
            if sought in text:
                return True
        # A number may have been said in other words: twelve fifty, 12,50.
        return False if whole and isinstance(leaf, str) else None
