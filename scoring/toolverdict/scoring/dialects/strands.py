"""Strands Agents: arguments and results are in the events of the tool span.

They are the older GenAI events, so only the status and the application's ids are its own.
"""

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.dialect import Dialect

DIALECT = Dialect(
    name="strands",
    rank=650,
    marks=("gen_ai.event.start_time", "event_loop.cycle_id", "tool.status", "gen_ai.tool.status"),
    failure={
        "tool.status": frozenset({"error"}),
        "gen_ai.tool.status": frozenset({"error"}),
    },
    conversation=(semconv.SESSION_ID,),
    user=("user.id",),
    version=("app.version",),
)
