"""This project's own spans: the span of an attempt, with all that was decided about it.

The span inside it, ``execute_tool NAME``, is there only if the body ran and repeats nothing.
"""

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.dialect import Dialect, Role
from toolverdict.scoring.spans import Span

NAME = "toolverdict"


def _role(span: Span) -> Role | None:
    return Role.TOOL if semconv.TOOL_NAME in span.attributes else None


DIALECT = Dialect(
    name=NAME,
    rank=10,
    marks=(semconv.TOOL_OUTCOME,),
    role_of=_role,
    tool=(semconv.GEN_AI_TOOL_NAME, semconv.TOOL_NAME),
    call_id=(semconv.GEN_AI_TOOL_CALL_ID,),
    arguments=(semconv.GEN_AI_TOOL_CALL_ARGUMENTS,),
    result=(semconv.GEN_AI_TOOL_CALL_RESULT,),
    error_type=(semconv.ERROR_TYPE,),
)
