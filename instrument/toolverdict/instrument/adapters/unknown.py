"""A call of a tool that is not there: models make names up, and such a call leaves a span as well.

The outcome is ``invalid_arguments``, as the Model Context Protocol answers it with "invalid params"
(-32602): nobody denied it, and there was nothing that could have run.
"""

from contextlib import suppress
from typing import Final

from toolverdict.instrument.adapters.calls import ModelCall
from toolverdict.instrument.adapters.options import Options
from toolverdict.instrument.arguments import Arguments

_LONGEST_NAME: Final = 128
"""Letters of a name that are kept; the longest name that the protocol lets a tool have."""


class UnknownTool(LookupError):
    """A model asks for a tool that is not there."""


def note_unknown(name: str, arguments: Arguments | None, call_id: str | None) -> None:
    """Leave a span for such a call.

    Args:
        name: The name that the model made up.
        arguments: What it gave by name; None when it cannot be read as that.
        call_id: The id in the model's request; None when it is not known.
    """
    # Whoever asks may be hostile: a name that no tool can have must leave a span, too.
    shown = "".join(letter if letter.isprintable() else "?" for letter in name[:_LONGEST_NAME])
    call = ModelCall(Options().spec(shown or "?"), arguments, call_id)
    with suppress(UnknownTool):
        call.reject(UnknownTool(f"there is no tool called {shown!r}"))
