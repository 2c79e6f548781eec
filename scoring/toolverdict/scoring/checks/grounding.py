"""Identifiers that an agent made up: they stand in nothing that it was told before.

Looked for are values that nobody makes up rightly: one word with digits in it, as ids, account
numbers and codes have, or an address of mail. Texts in words, dates and plain numbers are left out,
since an agent may write, translate and calculate. A value counts as made up only if everything that
could have held it was captured: what the user said, and the result of every call that ran and ended
before. Whether the destination of a call that can do harm is grounded is asked by :mod:`provenance`;
what it has told of a call is not told again.
"""

import re
from collections.abc import Collection, Iterator
from typing import Final

from toolverdict.instrument.outcomes import Outcome
from toolverdict.instrument.trust import TrustedTexts
from toolverdict.scoring.model import Captured, Category, Finding, Placed, Trajectory
from toolverdict.scoring.values import as_text, leaves

_MAX_CHARS: Final = 50_000_000
_MAX_SEARCHED_CHARS: Final = 200_000_000  # about a tenth of a second
_CHARS: Final = (4, 200)
_IDENTIFIER: Final = re.compile(r"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z]|(?:\D*\d){6})[\w#.:@+/-]+")
_MAIL: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_TIME: Final = re.compile(
    r"\d{1,4}[-/.]\d{1,2}(?:[-/.]\d{1,4})?(?:[T ]?\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?"
    r"(?:Z|[+-]\d{2}:?\d{2})?|\d{1,2}(?::\d{2}){1,2}(?:[ap]m)?|P[\dYMWDTHS.]+|\d{8}T?\d{0,6}Z?",
    re.IGNORECASE,
)


def ungrounded_findings(
    trajectory: Trajectory, told: Collection[int | None] = ()
) -> Iterator[Finding]:
    """A finding at each call with an identifier that nothing before it holds.

    ``told`` are calls (by index) whose origins have been told of already.
    """
    if not trajectory.user_texts or not trajectory.calls:
        return
    heard = TrustedTexts(_MAX_CHARS)
    for text in (*trajectory.user_texts, *trajectory.system_texts):
        heard.add(text)
    budget = _MAX_SEARCHED_CHARS
    for place in trajectory.calls:
        call = place.call
        if not heard.whole:
            return  # what was not captured may have held it, and anything after
        if call.arguments_state is Captured.CAPTURED and place.index not in told:
            for value in _identifiers(place):
                budget -= heard.chars
                if budget < 0:
                    return
                if not heard.hold(value):
                    yield Finding.at_call(
                        place,
                        Category.UNGROUNDED_ARGUMENT,
                        f"{call.tool} was given an identifier that stands in nothing the user said "
                        "and in no earlier result",
                        grade="suspect",
                        actual=value,
                    )
                    break
        if call.arguments_state is Captured.CAPTURED:
            # What the agent said once it may say again: the first call is to blame.
            heard.add(as_text(call.arguments))
        if call.result_state is Captured.CAPTURED:
            heard.add(call.result if isinstance(call.result, str) else as_text(call.result))
        elif call.executed is not False and call.outcome is not Outcome.EMPTY:
            heard.miss()


def _identifiers(place: Placed) -> Iterator[str]:
    """The values that are worth a look, each as it stands."""
    least, most = _CHARS
    for leaf in leaves(place.call.arguments):
        if not isinstance(leaf, str) or not least <= len(leaf) <= most or _TIME.fullmatch(leaf):
            continue
        if _IDENTIFIER.fullmatch(leaf) or _MAIL.fullmatch(leaf):
            yield leaf
