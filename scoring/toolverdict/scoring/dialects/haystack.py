"""Haystack's agent: a span per step, per request to the model and per call of a tool."""

from toolverdict.scoring.dialects.dialect import Dialect, Role
from toolverdict.scoring.dialects.values import decoded
from toolverdict.scoring.spans import Span


def _role(span: Span) -> Role | None:
    attributes = span.attributes
    if "haystack.tool.name" in attributes:
        return Role.TOOL
    if (
        "haystack.agent.step.llm.output" in attributes
        or "haystack.agent.step.llm.input" in attributes
    ):
        return Role.MODEL
    return Role.AGENT if "haystack.agent.steps_taken" in attributes else None


def _model_name(span: Span) -> str | None:
    """The model that answered, which stands only in the answer's own metadata."""
    output = decoded(span.attributes.get("haystack.agent.step.llm.output"))
    replies = output.get("replies") if isinstance(output, dict) else None
    reply = replies[0] if isinstance(replies, list) and replies else None
    meta = reply.get("meta") if isinstance(reply, dict) else None
    model = meta.get("model") if isinstance(meta, dict) else None
    return model if isinstance(model, str) else None


DIALECT = Dialect(
    name="haystack",
    rank=550,
    marks=(
        "haystack.tool.name",
        "haystack.agent.step.llm.output",
        "haystack.agent.step.llm.input",
        "haystack.agent.steps_taken",
    ),
    role_of=_role,
    tool=("haystack.tool.name",),
    arguments=("haystack.agent.step.tool.input",),
    result=("haystack.agent.step.tool.output",),
    failure={"haystack.tool.error": frozenset({True, "true"})},
    asked=("haystack.agent.step.llm.output",),
    given=("haystack.agent.step.llm.input",),
    model_of=_model_name,
)
