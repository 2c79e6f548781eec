"""Approvals by elicitation: the Model Context Protocol's way to ask the user of a client.

Until protocol 2025-11-25 the server asks in the middle of the call (``elicitation/create``). Since
2026-07-28 the call is answered with the question (``input_required``), and the client makes it again
with what the user said. The question's key binds that to the call and its arguments, and is good for
one answer, of which the server that has asked keeps count: it is another key each time.
"""

import json
import secrets
from collections import OrderedDict
from typing import Any, Final

from mcp.types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

from toolverdict.instrument import guard
from toolverdict.instrument.adapters.calls import granted, rejected
from toolverdict.instrument.approvals import Approval, ApprovalRequest

_KEY: Final = "toolverdict/approval"
_ASKED_BY_RESULT_SINCE: Final = "2026-07-28"
"""Versions of the protocol are dates, which sort as texts."""

_LONGEST_SHOWN: Final = 4096
"""Letters of arguments that are shown; nobody is asked to approve what they are not shown."""

_FORM: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Approve this call"}},
    "required": ["approve"],
}

_MOST_OPEN: Final = 4096
"""Questions that are waited for; an answer to an older one is none, and it is asked anew."""


class OpenQuestions:
    """What a server has asked by the answer to a call, until it is answered."""

    def __init__(self) -> None:
        self._keys: OrderedDict[str, None] = OrderedDict()

    def add(self, request: ApprovalRequest) -> str:
        """The key of a new question about a call."""
        key = f"{_about(request)}{secrets.token_hex(12)}"
        self._keys[key] = None
        if len(self._keys) > _MOST_OPEN:
            self._keys.popitem(last=False)
        return key

    def close(self, key: str) -> bool:
        """Take the answer to a question; whether it was open, and this is the first."""
        try:
            del self._keys[key]
        except KeyError:
            return False
        return True


class Elicitation:
    """Asks the user of the client that makes one call.

    Args:
        context: The call's context, as the MCP SDK or FastMCP gives it to tools.
        questions: What the server has asked.
    """

    def __init__(self, context: Any, questions: OpenQuestions) -> None:
        self.question: InputRequiredResult | None = None
        """What to answer the call with, where that is how the user is asked."""
        self._context = context
        self._questions = questions

    @property
    def call_id(self) -> str | None:
        """The id that the call had when its user was asked; None if nobody was."""
        try:
            keys = [key for key in self._context.input_responses or () if key.startswith(_KEY)]
            return keys[0].split(" ")[1] if len(keys) == 1 else None
        except (AttributeError, IndexError):
            return None

    async def ask(self, request: ApprovalRequest) -> Approval | None:
        """What the user says; None if that is nothing, or is not known yet, or nobody can be asked.

        Where the policy names approvers, nobody is asked: who the user is cannot be known.
        """
        try:
            if request.approvers is not None or not self._is_offered():
                return None
            answer = await self._answer(request)
        except Exception as error:  # noqa: BLE001 - the call waits for an approval, as without this
            guard.note("elicitation", "a user cannot be asked (%s)", type(error).__name__)
            return None
        if not isinstance(answer, ElicitResult) or answer.action == "cancel":
            return None
        approves = answer.action == "accept" and (answer.content or {}).get("approve") is True
        return granted(request) if approves else rejected(request)

    def _is_offered(self) -> bool:
        """Whether the client shows forms; one that says no more than elicitation does."""
        declared = self._context.session.client_capabilities
        offered = declared.elicitation if declared is not None else None
        return offered is not None and (offered.form is not None or offered.url is None)

    async def _answer(self, request: ApprovalRequest) -> object:
        context = self._context
        answers = context.input_responses or {}
        ours = [key for key in answers if key.startswith(_about(request))]
        if len(ours) == 1 and self._questions.close(ours[0]):
            return answers[ours[0]]
        if any(not asked.startswith(_KEY) for asked in answers):
            # The tool's own question was answered. Ours was before that, and is not sent again.
            return None
        text = json.dumps(dict(request.arguments), default=str)
        if len(text) > _LONGEST_SHOWN:
            return None
        message = f"Approve {request.tool}({text})? {request.reason}".rstrip()
        if context.request_context.protocol_version < _ASKED_BY_RESULT_SINCE:
            return await context.session.elicit_form(
                message, _FORM, related_request_id=context.request_id
            )
        asked = ElicitRequest(
            params=ElicitRequestFormParams(message=message, requested_schema=_FORM)
        )
        key = self._questions.add(request)
        self.question = InputRequiredResult(input_requests={key: asked})
        return None


def _about(request: ApprovalRequest) -> str:
    """What the keys of all questions about a call with its arguments begin with."""
    return f"{_KEY} {request.call_id} {request.args_hash} "
