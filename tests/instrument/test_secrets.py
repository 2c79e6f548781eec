"""With capture off, nothing that a caller or a system says is in a byte that leaves the process."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pydantic
import pytest

from toolverdict.instrument import (
    ApprovalRequired,
    ToolDenied,
    UpstreamError,
    configure,
    tool,
    tool_call,
    trajectory,
)
from toolverdict.instrument.policy import Policy

SECRET = "sk-live-1234567890"


class Card(pydantic.BaseModel):
    number: int


@tool(idempotency_key="token")
def leak(token: str) -> str:
    local = token
    try:
        raise ValueError(f"inner {token}")
    except ValueError as error:
        raise UpstreamError(f"login failed token={local}") from error


@tool
def validate(number: str) -> Card:
    return Card.model_validate({"number": number})


@tool
def echo(text: object) -> object:
    return {"error": text}


@tool
def stream(text: str) -> Iterator[str]:
    yield text
    raise RuntimeError(text)


@tool
async def stream_async(text: str) -> AsyncIterator[str]:
    yield text
    raise RuntimeError(text)


@tool(labels=["payment"])
def pay(to: object) -> None: ...


def failing_approver(request: Any) -> None:
    raise RuntimeError(request.arguments["to"])


@trajectory("bot", user_input=SECRET)
def run_everything() -> None:
    with tool_call("call_1"), pytest.raises(UpstreamError):
        leak(SECRET)
    with pytest.raises(pydantic.ValidationError):
        validate(SECRET)
    echo(SECRET)
    echo({SECRET: object()})
    with pytest.raises(RuntimeError):
        list(stream(SECRET))
    with pytest.raises(RuntimeError):
        asyncio.run(consume(SECRET))
    with pytest.raises(ApprovalRequired):
        pay(SECRET)
    with pytest.raises(ToolDenied):
        pay([SECRET, float("nan")])
    with pytest.raises(TypeError):
        pay(SECRET, SECRET)  # type: ignore[call-arg]
    raise RuntimeError(SECRET)


async def consume(text: str) -> None:
    async for _ in stream_async(text):
        pass


def test_secrets_stay(collectors: Any, caplog: pytest.LogCaptureFixture) -> None:
    """B29, B31: not in arguments, results, messages, causes, traces, stacks, status or logs."""
    asks = Policy.parse(
        "{version: 1, id: p, rules: [{id: q, effect: require_approval, labels: [payment]}]}"
    )
    with collectors.http() as collected:
        telemetry = configure(
            endpoint=collected.endpoint,
            protocol="http/protobuf",
            hash_key=b"0" * 32,
            policy=asks,
            approver=failing_approver,
        )
        with pytest.raises(RuntimeError):
            run_everything()
        assert telemetry.flush(5.0)
        telemetry.shutdown()
    assert len(collected.calls) == 9
    for body in collected.bodies:
        assert SECRET.encode() not in body
    assert SECRET not in caplog.text
    events = [event for span in collected.spans for event in span.events]
    assert {attribute.key for event in events for attribute in event.attributes} == {
        "exception.type"
    }
