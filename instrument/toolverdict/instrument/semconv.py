"""Every attribute, span and event name that toolverdict writes or reads, in one place.

The ``gen_ai.*``, ``error.*`` and ``test.*`` names are OpenTelemetry's (GenAI semantic conventions
1.41, status development; test conventions 1.41). The ``tool.*``, ``policy.*``, ``approval.*`` and
``idempotency.*`` names are this project's own and stand beside them: no ``gen_ai.*`` name is
invented here.
"""

from typing import Final

# --- OpenTelemetry's: what a tool call and an agent run are called everywhere -------------------
GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"
GEN_AI_TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
GEN_AI_TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
GEN_AI_TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"
GEN_AI_AGENT_NAME: Final = "gen_ai.agent.name"
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_RESPONSE_MODEL: Final = "gen_ai.response.model"
GEN_AI_INPUT_MESSAGES: Final = "gen_ai.input.messages"
GEN_AI_OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
ERROR_TYPE: Final = "error.type"
EXCEPTION_EVENT: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"
TEST_CASE_NAME: Final = "test.case.name"

OPERATION_EXECUTE_TOOL: Final = "execute_tool"
SPAN_TOOL_CALL: Final = "tool.call"
"""Begins the name of the span of an attempt; it holds everything that is known about the call."""
SPAN_EXECUTE_TOOL: Final = OPERATION_EXECUTE_TOOL
"""Begins the name of the span inside, which is there only if the tool's body ran."""
OPERATION_INVOKE_AGENT: Final = "invoke_agent"
OPERATION_CHAT: Final = "chat"

# --- others': read from the spans of agents that speak OpenInference -----------------------------
SESSION_ID: Final = "session.id"
OPENINFERENCE_SPAN_KIND: Final = "openinference.span.kind"
INPUT_VALUE: Final = "input.value"
OUTPUT_VALUE: Final = "output.value"

# --- ours: what has to be known about a call before anyone can judge it --------------------------
TOOL_NAME: Final = "tool.name"
TOOL_ARGS_HASH: Final = "tool.args_hash"
TOOL_ARGS_HASH_KEY_ID: Final = "tool.args_hash.key_id"
TOOL_ARGS_HASH_CANON: Final = "tool.args_hash.canon"
TOOL_ARGS_HASH_ERROR: Final = "tool.args_hash.error"
TOOL_SCHEMA_VERSION: Final = "tool.schema_version"
TOOL_LABELS: Final = "tool.labels"
TOOL_OUTCOME: Final = "tool.outcome"
TOOL_EXECUTED: Final = "tool.executed"
TOOL_ITEMS: Final = "tool.items"
"""How many items a generator tool or stream gave; 0 with ``unknown``: nobody ever read of it."""

TOOL_ARGUMENTS_TRUNCATED: Final = "tool.arguments.truncated"
"""True when the arguments were too large to be captured and are left out."""
TOOL_RESULT_TRUNCATED: Final = "tool.result.truncated"
"""True when the result was too large to be captured and is left out."""
ERROR_TYPE_IN_BAND: Final = "tool_error"
"""Value of ``error.type`` when a tool returned a failure instead of raising it."""

TAINT_RESULT_ATOMS: Final = "taint.result_atoms"
"""Keyed hashes of the atoms (addresses, URLs, ids; see ``provenance``) in an untrusted result."""
TAINT_ARGUMENT_ATOMS: Final = "taint.argument_atoms"
"""The same of the arguments of a call that can do harm."""
TAINT_USER_ATOMS: Final = "taint.user_atoms"
"""The same of what the user asked, on the span of the trajectory."""
TAINT_ATOMS_KEY_ID: Final = "taint.atoms.key_id"
"""Names the key of the hashes; those of two keys say nothing about each other."""
TAINT_ATOMS_TRUNCATED: Final = "taint.atoms.truncated"
"""True when there are more atoms than are recorded: an absent one may be there."""

POLICY_DECISION: Final = "policy.decision"
POLICY_ID: Final = "policy.id"
POLICY_DIGEST: Final = "policy.digest"
POLICY_RULE_IDS: Final = "policy.rule_ids"
POLICY_MODE: Final = "policy.mode"
POLICY_ENFORCED: Final = "policy.enforced"
"""False where the decision was recorded and not acted upon."""
POLICY_REASON_CODE: Final = "policy.reason_code"

APPROVAL_ID: Final = "approval.id"
APPROVAL_STATUS: Final = "approval.status"

IDEMPOTENCY_KEY_HASH: Final = "idempotency.key_hash"
IDEMPOTENCY_STATUS: Final = "idempotency.status"
"""``new``, ``replayed`` (the body did not run again), ``in_progress``, ``conflict``, ``unknown``."""
