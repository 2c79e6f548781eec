"""OpenLIT's ``@trace``: nothing says that a span is a tool, its name is the function's.

So a span of it tells of a call only where the model asked for a tool of that name: see
:mod:`reading`, which looks for such spans in every dialect.
"""

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.dialect import Dialect
from toolverdict.scoring.dialects.values import literal
from toolverdict.scoring.model import Json


def _arguments(value: Json) -> Json:
    read = literal(value) if isinstance(value, str) else value
    return read if isinstance(read, dict) and read else None


DIALECT = Dialect(
    name="openlit",
    rank=850,
    marks=("function.kwargs", "function.args"),
    tool_from_name=lambda name: name,
    arguments=("function.kwargs",),
    arguments_of=_arguments,
    result=(semconv.GEN_AI_OUTPUT_MESSAGES,),
)
