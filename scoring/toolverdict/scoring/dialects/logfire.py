"""Logfire's own instrumentations: span names are templates, fields stand under plain words."""

from toolverdict.scoring.dialects.dialect import Dialect, Role

DIALECT = Dialect(
    name="logfire",
    rank=800,
    marks=("logfire.msg_template",),
    roles={
        "logfire.msg_template": {
            "Function: {name}": Role.TOOL,
            "Agent run: {name!r}": Role.AGENT,
            "OpenAI Agents trace: {name}": Role.AGENT,
            "Responses API with {gen_ai.request.model!r}": Role.MODEL,
            "Chat completion with {gen_ai.request.model!r}": Role.MODEL,
        }
    },
    tool=("name",),
    arguments=("input",),
    result=("output",),
    error_text=("error",),
    conversation=("group_id",),
    agent=("agent_name",),
    metadata=("metadata",),
    asked=("events",),
    given=("events",),
)
