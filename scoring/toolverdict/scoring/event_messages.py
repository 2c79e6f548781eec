"""The older GenAI events, as span events, log records or one attribute, as the messages they stand for.

Source: OpenTelemetry GenAI semantic conventions before 1.37, gen-ai-events.
"""

from collections import deque

from toolverdict.scoring.dialects.values import decoded
from toolverdict.scoring.model import Json
from toolverdict.scoring.spans import Event

MESSAGE_EVENTS = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}
"""The role that each event's message has."""

CHOICE = "gen_ai.choice"
"""The model's answer; the other events are what it was given."""


def generated(value: Json) -> Json:
    """Of a list of events as one attribute, the model's answer; anything else as it is."""
    events = _event_list(value)
    if events is None:
        return value
    choices = [event for event in events if event.get("event.name") == CHOICE]
    if choices:
        return choices
    tail: deque[Json] = deque()
    for event in reversed(events):
        if event.get("event.name") != "gen_ai.assistant.message":
            break
        tail.appendleft(event)
    return list(tail)


def received(value: Json) -> Json:
    """Of a list of events as one attribute, what the model was given; anything else as it is."""
    events = _event_list(value)
    if events is None:
        return value
    answer = generated(value)
    given = events[: len(events) - len(answer)] if isinstance(answer, list) else events
    return [
        {"role": MESSAGE_EVENTS.get(str(event.get("event.name")), ""), **event} for event in given
    ]


def message(event: Event) -> Json:
    """An event of the older GenAI conventions as the message that it stands for."""
    role = MESSAGE_EVENTS[event.name]
    body = decoded(event.body)
    if isinstance(body, dict):
        return {"role": role, **body}
    attributes = event.attributes
    content = decoded(attributes.get("content", attributes.get("message")))
    made = {"role": role, "content": content}
    if isinstance(attributes.get("id"), str):
        made["id"] = attributes["id"]
    return made


def _event_list(value: Json) -> list[dict[str, Json]] | None:
    if not isinstance(value, list) or not value:
        return None
    if not all(isinstance(item, dict) and "event.name" in item for item in value):
        return None
    return value
