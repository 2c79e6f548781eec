"""How a call ended, from all that was said about it; the worst wins.

Status is not the outcome: frameworks that hand an error to the model call the span OK, and a parent
that failed says nothing of its children. So every witness of a call leaves its signs (a status, an
exception, a flag, a text), the signs are added up, and the kind is told once: from the class of the
exception, else from a stage that the framework names, else from the few texts that frameworks write.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.model import Captured, Json

TOOL_NOT_FOUND = "tool_not_found"
"""``error_type`` of a call of a tool that the agent does not have."""

_MAX_TEXT = 4_000
_MAX_SIGNS = 32
_MIN_TOOL_NAME = 3

# What a class of exceptions is called tells its kind by these words, in this order.
_CLASS_WORDS = (
    ("timeout", Outcome.TIMEOUT),
    ("timedout", Outcome.TIMEOUT),
    ("deadline", Outcome.TIMEOUT),
    ("validation", Outcome.INVALID_ARGUMENTS),
    ("invalidargument", Outcome.INVALID_ARGUMENTS),
    ("invalidtoolinput", Outcome.INVALID_ARGUMENTS),
    ("permission", Outcome.PERMISSION_DENIED),
    ("forbidden", Outcome.PERMISSION_DENIED),
    ("unauthorized", Outcome.PERMISSION_DENIED),
    ("ratelimit", Outcome.RATE_LIMITED),
    ("toomanyrequests", Outcome.RATE_LIMITED),
    ("cancel", Outcome.CANCELLED),
)

# Classes by which a tool's body says that it cannot work with what it was given.
_REFUSED_BY_BODY = frozenset({"valueerror", "typeerror"})

# What a framework writes when the class is lost: no kind follows from these.
_TELLS_NOTHING = frozenset(
    {
        "",
        "error",
        "exception",
        "unknown",
        "other",
        "toolerror",
        "toolresult",
        "toolretryerror",
        "toolexecutionerror",
        "toolexception",
        "mcptoolcallerror",
        "mcperror",
        "functionexecutionexception",
        "agenttoolexecutionerror",
        "modelretry",
        "runtimeerror",
    }
)
_CALL_NEVER_LEFT = frozenset({"agenttoolcallerror"})
_NO_SUCH_TOOL = frozenset({"nosuchtoolerror", "ainosuchtoolerror", "toolnotfounderror"})

# The arguments did not fit a schema, whoever checked them.
_BY_SCHEMA = re.compile(
    r"\d+ validation errors?\b|validation failed|validation error|input should be"
    r"|is not of type|invalid ?tool ?input|invalid input: expected|expected \w+, received"
    r"|must be (?:number|string|integer|boolean)\b|is a required property|missing \d+ required"
    r"|unexpected keyword argument|invalid json|has type '\w+' but should be"
    r"|is required but (?:was )?not (?:provided|found)|invalid (?:tool )?arguments?\b"
    r"|invalid parameters?\b",
    re.IGNORECASE,
)
# The framework or the server checked them, before the body: a body does not say it like this.
_BEFORE_BODY = re.compile(
    r"argument parsing failed|input validation (?:error|failed)|invalid input for tool"
    r"|validation failed for input parameters|invalidtoolinput|is expected to be parsed to"
    r"|failed to parse (?:the )?(?:tool )?arguments|params must (?:have|be)"
    r"|^\d+ validation errors: \[|error while decoding function arguments",
    re.IGNORECASE,
)
# The body itself said so: in words of its own, but of this form.
_BY_BODY = re.compile(r"\bmust be (?:an?|one of|greater|less|positive|non-)\b", re.IGNORECASE)
_NOT_FOUND = re.compile(
    r"\b(?:tool|function)\b[\s:]{0,3}['\"`]?[\w./:\-]{0,100}['\"`]?\s{0,2}(?:was |is |does )?"
    r"(?:not found|not exist|not (?:a valid|available|defined|registered)\b)"
    r"|unknown (?:tool|function)\b|no (?:such )?tool (?:named|called)|unavailable tool|no such tool"
    r"|requested function .{1,100} not found|is not a valid tool|unsupported call:"
    r"|tool with name .{1,100} not found|no tool with that name",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"(?:execution|call|tool|action) (?:was |has been |is )?(?:not approved|denied|rejected)\b"
    r"|(?:user|human|operator|policy) (?:has )?(?:rejected|denied|declined|refused)\b"
    r"|(?:approved|rejected|denied|declined) by (?:the |a )?(?:user|human|operator|policy)\b"
    r"|rejected the tool call|doesn't want to (?:take|proceed)"
    r"|permission to use .{0,120}? (?:was|has been) denied",
    re.IGNORECASE,
)
_REDACTED = re.compile(
    r"details are redacted|an error occurred while running the tool|error running tool"
    r"|^(?:error: )?function failed\.?$|^tool_error$|^toolretryerror:?\s*$|^error$",
    re.IGNORECASE,
)
# The text of the arguments was no JSON; a body may say so of what it read elsewhere.
_NOT_JSON = re.compile(
    r"jsondecodeerror|unterminated string|not valid json|eof while parsing|json parsing failed"
    r"|expecting (?:value|property name|',' delimiter|':' delimiter)",
    re.IGNORECASE,
)
_NAMED_CLASS = re.compile(r"\b([A-Za-z_][\w.]*(?:Error|Exception))\b\s*[:\-(]")
# A tool's own result may begin as it likes; these are what frameworks put before an error.
_FAILED_TEXT = re.compile(
    r"\s*(?:error executing tool |error calling tool |error invoking tool|error: argument parsing"
    r"|error: function failed|error: validation failed|an error occurred while running the tool"
    r"|failed to invoke tool|tool execution (?:failed|was not approved)|error running tool"
    r"|input validation error|invalid input for tool|ai_\w*error\b|\d+ validation errors?\b"
    r"|model tried to call unavailable tool|no such tool available|error: requested function|(?:error: )?tool .{1,100} not found|unknown tool\b"
    r"|error: .{1,100} is not a valid tool"
    r"|user rejected the tool call|error: [A-Z]\w*(?:Error|Exception)\b"
    r"|error while decoding function arguments|could not find function\b"
    r"|(?-i:[A-Z]\w{0,100}(?:Error|Exception): ))",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Signs:
    """What witnesses said about the end of a call; ``+`` adds two witnesses of one call.

    ``stated`` is an outcome in our own words, which needs no telling. ``executed`` is what a
    witness states outright.
    """

    failed: bool = False
    ended: bool = False
    stated: Outcome | None = None
    executed: bool | None = None
    invalid_arguments: bool = False
    refused: bool = False
    classes: tuple[str, ...] = ()
    texts: tuple[str, ...] = field(default=())

    def __add__(self, other: "Signs") -> "Signs":
        executed = (self.executed, other.executed)
        return Signs(
            failed=self.failed or other.failed,
            ended=self.ended or other.ended,
            stated=_worst(self.stated, other.stated),
            executed=True if True in executed else False if False in executed else None,
            invalid_arguments=self.invalid_arguments or other.invalid_arguments,
            refused=self.refused or other.refused,
            classes=_union(self.classes, other.classes),
            texts=_union(self.texts, other.texts),
        )


@dataclass(frozen=True, slots=True)
class Ending:
    """How a call ended. ``executed`` is None where nothing shows whether the body ran."""

    outcome: Outcome
    executed: bool | None
    error_type: str | None = None


WORST_FIRST = (
    Outcome.DENIED,
    Outcome.PENDING_APPROVAL,
    Outcome.PERMISSION_DENIED,
    Outcome.INVALID_ARGUMENTS,
    Outcome.RATE_LIMITED,
    Outcome.TIMEOUT,
    Outcome.UPSTREAM_ERROR,
    Outcome.REFUSED,
    Outcome.ERROR,
    Outcome.CANCELLED,
    Outcome.EMPTY,
    Outcome.OK,
    Outcome.UNKNOWN,
)
"""Outcomes in the order in which one of two witnesses is believed."""


def signs_of_result(value: Json, state: Captured) -> Signs:
    """Whether a result says that it is an error: ``isError``, ``{"error": ...}``, a known text."""
    if state is not Captured.CAPTURED:
        return Signs()
    if isinstance(value, dict):
        if value.get("denied") is True:
            return Signs(failed=True, refused=True, texts=_texts(value.get("reason")))
        flagged = value.get("isError") is True or value.get("is_error") is True
        if flagged or value.get("error"):
            texts = _texts(value.get("error"), value.get("message"), value.get("result"))
            return Signs(failed=True, texts=texts)
    elif isinstance(value, str) and _FAILED_TEXT.match(value[:_MAX_TEXT]):
        return Signs(failed=True, texts=_texts(value))
    return Signs()


def refuses_text(signs: Signs) -> bool:
    """Whether a call failed because the text of its arguments was no JSON."""
    return signs.failed and any(_NOT_JSON.search(text) for text in signs.texts)


def ending(signs: Signs, result: Json, result_state: Captured, tool: str = "") -> Ending:
    """How the call ended by all its signs, and what its result shows.

    Args:
        signs: of all witnesses.
        result: the result, where ``result_state`` says that it was captured.
        result_state: whether it was.
        tool: the name of the tool, which frameworks name when they check arguments for it.
    """
    error_type = next((name for name in signs.classes if _bare(name) not in _TELLS_NOTHING), None)
    error_type = error_type or (signs.classes[0] if signs.classes else None)
    told: Ending | None = None
    if signs.refused:
        told = Ending(Outcome.DENIED, False)
    elif signs.failed:
        texts = signs.texts
        if result_state is Captured.CAPTURED and isinstance(result, str):
            texts = _union(texts, _texts(result))
        told = _failure(signs, texts, tool)
    elif signs.ended:
        empty = result_state is Captured.CAPTURED and _holds_nothing(result)
        told = Ending(Outcome.EMPTY if empty else Outcome.OK, True)
    elif signs.stated is None:
        told = Ending(Outcome.UNKNOWN, None)
    outcome = told.outcome if told is not None else Outcome.UNKNOWN
    executed = told.executed if told is not None else None
    if told is not None and told.error_type:
        error_type = told.error_type
    if signs.stated is not None:
        # Our own word is exact; a witness beside it counts only where it saw something worse.
        if told is None or not signs.failed or signs.stated.failed:
            outcome = signs.stated
        else:
            outcome = min(signs.stated, outcome, key=WORST_FIRST.index)
        executed = _executed_by_outcome(outcome)
    if signs.executed is not None:
        executed = signs.executed
    return Ending(outcome, executed, error_type)


def _executed_by_outcome(outcome: Outcome) -> bool | None:
    if outcome in (Outcome.DENIED, Outcome.PENDING_APPROVAL):
        return False
    # Arguments may have been refused before the body or by it: the outcome does not say which.
    return None if outcome in (Outcome.INVALID_ARGUMENTS, Outcome.UNKNOWN) else True


def _failure(signs: Signs, texts: tuple[str, ...], tool: str) -> Ending:
    if signs.invalid_arguments:
        return Ending(Outcome.INVALID_ARGUMENTS, False)
    by_schema = any(_BY_SCHEMA.search(text) for text in texts)
    before_body = any(_BEFORE_BODY.search(text) for text in texts)
    # A body may check values of its own; only what names the tool is about its arguments.
    if by_schema and len(tool) >= _MIN_TOOL_NAME:
        before_body = before_body or any(tool.lower() in text.lower() for text in texts)
    refused_arguments = Ending(Outcome.INVALID_ARGUMENTS, False if before_body else None)
    named = tuple(name for text in texts for name in _NAMED_CLASS.findall(text)[:4])
    if any(text.strip() == f"KeyError: {tool!r}" for text in texts):
        return Ending(Outcome.ERROR, False, TOOL_NOT_FOUND)  # of a table of tools
    for name in (*signs.classes, *named):
        bare = _bare(name)
        if bare in _TELLS_NOTHING:
            continue
        for word, outcome in _CLASS_WORDS:
            if word in bare:
                is_refused = outcome is Outcome.INVALID_ARGUMENTS
                return refused_arguments if is_refused else Ending(outcome, True)
        if by_schema or before_body:
            return refused_arguments
        if bare in _NO_SUCH_TOOL or any(_NOT_FOUND.search(text) for text in texts):
            return Ending(Outcome.ERROR, False, TOOL_NOT_FOUND)
        if bare in _CALL_NEVER_LEFT:
            return Ending(Outcome.INVALID_ARGUMENTS, False)
        if bare in _REFUSED_BY_BODY or any(_BY_BODY.search(text) for text in texts):
            return Ending(Outcome.INVALID_ARGUMENTS, True)
        return Ending(Outcome.ERROR, True)
    if by_schema or before_body:
        return refused_arguments
    if any(_NOT_FOUND.search(text) for text in texts):
        return Ending(Outcome.ERROR, False, TOOL_NOT_FOUND)
    if any(_REFUSED.search(text) for text in texts):
        return Ending(Outcome.DENIED, None)  # a body may say so, too
    if any(_BY_BODY.search(text) for text in texts):
        return Ending(Outcome.INVALID_ARGUMENTS, True)
    telling = [text for text in texts if not _REDACTED.search(text.strip())]
    return Ending(Outcome.ERROR, True if telling else None)


def is_refusal(text: str) -> bool:
    """Whether a text that was given back to the model says that the call was not allowed."""
    return _REFUSED.search(text[:_MAX_TEXT]) is not None


_TEXT_KEYS = ("message", "msg", "error", "reason", "detail", "data", "text")


def _texts(*values: Json) -> tuple[str, ...]:
    found: list[str] = []
    for value in values:
        if isinstance(value, dict):
            found.extend(_texts(*(value.get(key) for key in _TEXT_KEYS)))
        elif isinstance(value, list):
            found.extend(_texts(*value[:8]))
        elif isinstance(value, str) and value.strip():
            found.append(value[:_MAX_TEXT])
    return tuple(found)


def texts(*values: Json) -> tuple[str, ...]:
    """The texts among these values, cut to a length that can be looked through."""
    return _texts(*values)


def _bare(name: str) -> str:
    """The class name without its module, in the form in which words are looked for."""
    last = name[-200:].rsplit(".", 1)[-1]
    return last.lower().replace("_", "").replace(" ", "")


def _holds_nothing(result: Json) -> bool:
    if isinstance(result, str):
        return result.strip() in ("", "null")
    return result in (None, [], {})


def _union(a: Iterable[str], b: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*a, *b)))[:_MAX_SIGNS]


def _worst(a: Outcome | None, b: Outcome | None) -> Outcome | None:
    if a is None or b is None:
        return a or b
    return min(a, b, key=WORST_FIRST.index)
