"""Mastra: GenAI names, its own types of spans, and results that say that they are errors."""

from toolverdict.scoring.dialects.dialect import Dialect, Role

DIALECT = Dialect(
    name="mastra",
    rank=460,
    marks=("mastra.span.type",),
    roles={
        "mastra.span.type": {
            "tool_call": Role.TOOL,
            "mcp_tool_call": Role.TOOL,
            "model_step": Role.MODEL,
            "model_inference": Role.OTHER,
            "model_chunk": Role.OTHER,
            # Spans of a whole loop of steps: what they repeat counts where no step is seen.
            "model_generation": Role.AGENT,
            "agent_run": Role.AGENT,
            "workflow_run": Role.AGENT,
        }
    },
    error_text=("error.message",),
    asked=("mastra.model_step.output", "mastra.model_generation.output"),
    given=("mastra.metadata.body", "mastra.model_step.input"),
    conversation=("mastra.metadata.sessionId", "mastra.metadata.threadId"),
    user=("mastra.metadata.userId",),
    version=("mastra.metadata.appVersion",),
    resource_is_frameworks=True,
)
