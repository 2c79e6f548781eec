"""From spans to tool calls: each dialect says how to recognise and read a tool span.

A dialect is keyed on attributes, never on the name or version of a package. One call may be
witnessed by several nested spans (agent framework, MCP client, MCP server): they fold into one.
"""

from toolverdict.scoring.dialects import genai
from toolverdict.scoring.folding import fold
from toolverdict.scoring.model import ToolCall
from toolverdict.scoring.spans import Tree


def read_calls(tree: Tree) -> list[ToolCall]:
    """The tool calls of a trace, nested witnesses folded, ordered by start time and span id."""
    witnessed = {span.span_id: genai.read(span) for span in tree.spans if genai.is_tool_call(span)}
    borders = frozenset(
        span.span_id for span in tree.spans if genai.is_agent_run(span) or genai.is_model_turn(span)
    )
    return fold(tree, witnessed, borders)
