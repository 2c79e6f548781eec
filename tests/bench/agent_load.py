"""Export requests as a fleet of agents sends them, for benchmarks; the same bytes for one seed.

A trace is one run of an agent: a root, chat turns, and tool calls below them. How many calls a run
has, how large arguments and results are and how often a call fails was measured on six public sets
of agent trajectories (airline and retail desks, office work, web search); the numbers below are
their averages. Attributes are those of the GenAI conventions and what SDKs add, 17 a span.
"""

import json
from collections.abc import Iterator
from random import Random

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

SPANS_OF_A_REQUEST = 512

CALLS = [8, 8, 14, 9, 8, 9, 9, 7, 6, 5, 4, 3, 2, 2, 1, 1, 1, 1, 1, 1]
"""How many runs of a hundred have 0, 1, 2 ... calls."""
ARGUMENT_BYTES = (4.2, 1.1, 12_000)
"""Of the logarithm: mean and deviation; and where it ends."""
RESULT_BYTES = (5.9, 1.55, 30_000)
ERRORS = 0.053
VOCABULARY = (
    "account address agent airline amount answer approve archive balance booking branch budget "
    "cabin cancel change channel charge check city claim close code column comment commit confirm "
    "contract country coupon create credit currency customer data date delay delete delivery deploy "
    "description device discount document email entry error event exchange file filter flight folder "
    "group guest hotel index invoice issue item key label limit list log mail member merge message "
    "meeting note notify number offer open order owner page path payment plan policy price priority "
    "product profile project query quote rate reason record refund region release reminder report "
    "request reservation return review room rule schedule search seat section send service session "
    "shipment status stock store subject summary table tag task team template ticket time token total "
    "transfer trip type update user value version visit warehouse week window zone"
)
WORDS = VOCABULARY.split()
TOOLS = [f"{verb}_{noun}" for verb in ("get", "list", "update", "search") for noun in WORDS[::25]]
MODELS = ["claude-opus-5", "gpt-5.2", "gemini-3-pro", "qwen3-235b"]
START_NS = 1_790_000_000_000_000_000


def requests(count: int, seed: int = 1) -> list[bytes]:
    """So many requests of 512 spans each, in protobuf."""
    rng = Random(seed)
    runs = _runs(rng)
    return [_request(rng, runs, number).SerializeToString() for number in range(count)]


def _request(rng: Random, runs: Iterator[list[Span]], number: int) -> ExportTraceServiceRequest:
    spans: list[Span] = []
    while len(spans) < SPANS_OF_A_REQUEST:
        spans += next(runs)
    del spans[SPANS_OF_A_REQUEST:]
    rng.shuffle(spans)  # runs go on at the same time
    scopes = {"agents.models": [], "agents.tools": []}  # type: dict[str, list[Span]]
    for span in spans:
        scopes["agents.tools" if span.name.startswith("execute_tool") else "agents.models"].append(
            span
        )
    resource: dict[str, object] = {
        "service.name": f"desk-{number % 4}",
        "service.version": f"3.{number % 5}.0",
        "service.instance.id": f"{number % 16:08x}-5f3e-4d7c-9b1a-0242ac110002",
        "deployment.environment.name": "production",
        "host.name": f"worker-{number % 8}.internal",
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.version": "1.39.0",
    }
    return ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(
                resource=Resource(attributes=_pairs(resource)),
                scope_spans=[
                    ScopeSpans(
                        scope=InstrumentationScope(name=name, version="1.4.0"),
                        spans=members,
                        schema_url="https://opentelemetry.io/schemas/1.38.0",
                    )
                    for name, members in scopes.items()
                ],
            )
        ]
    )


def _runs(rng: Random) -> Iterator[list[Span]]:
    """Runs of agents without end, each the spans of one trace."""
    clock = START_NS
    while True:
        clock += rng.randrange(10**9)
        yield _run(rng, clock)


def _run(rng: Random, clock: int) -> list[Span]:
    trace_id = rng.randbytes(16)
    agent = rng.choice(["triage", "refunds", "bookings", "research", "billing", "coding"])
    shared = {
        "gen_ai.conversation.id": f"conv_{rng.randbytes(12).hex()}",
        "gen_ai.agent.id": f"asst_{agent}",
        "gen_ai.agent.name": agent,
        "gen_ai.provider.name": "anthropic",
        "session.id": rng.randbytes(8).hex(),
        "user.id": f"u-{rng.randrange(50_000)}",
        "thread.id": rng.randrange(2**40),
        "thread.name": f"worker-{rng.randrange(16)}",
    }
    model = rng.choice(MODELS)
    root = _span(rng, trace_id, None, f"invoke_agent {agent}", Span.SPAN_KIND_INTERNAL, clock)
    root.attributes.extend(_pairs({"gen_ai.operation.name": "invoke_agent", **shared}))
    event = root.events.add(name="plan", time_unix_nano=clock)
    event.attributes.extend(_pairs({"plan.text": _words(rng, 120)}))
    spans = [root]
    for _ in range(rng.choices(range(len(CALLS)), CALLS)[0]):
        clock += rng.randrange(10**8, 4 * 10**9)
        chat = _span(rng, trace_id, root, f"chat {model}", Span.SPAN_KIND_CLIENT, clock)
        chat.attributes.extend(_pairs(_chat(rng, model) | shared))
        call = _span(rng, trace_id, chat, "", Span.SPAN_KIND_INTERNAL, clock)
        _call(rng, call, shared)
        spans += [chat, call]
    return spans


def _chat(rng: Random, model: str) -> dict[str, object]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": model,
        "gen_ai.response.model": f"{model}-2026-05-01",
        "gen_ai.response.id": f"msg_{rng.randbytes(12).hex()}",
        "gen_ai.usage.input_tokens": rng.randrange(30_000),
        "gen_ai.usage.output_tokens": rng.randrange(2_000),
        "gen_ai.request.temperature": 0.2,
        "gen_ai.request.max_tokens": 4096,
        "gen_ai.response.finish_reasons": ["tool_use"],
        "server.address": "api.example.com",
        "server.port": 443,
    }


def _call(rng: Random, span: Span, shared: dict[str, object]) -> None:
    tool = TOOLS[min(int(rng.expovariate(0.25)), len(TOOLS) - 1)]
    span.name = f"execute_tool {tool}"
    attributes: dict[str, object] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": f"call_{rng.randbytes(12).hex()}",
        "gen_ai.tool.call.arguments": _json_text(rng, ARGUMENT_BYTES),
        "gen_ai.tool.call.result": _json_text(rng, RESULT_BYTES),
        **shared,
        "tool.attempt": rng.randrange(1, 4),
        "tool.latency_ms": rng.lognormvariate(4, 1.5),
        "tool.cached": rng.random() < 0.1,
    }
    if rng.random() < ERRORS:
        attributes["error.type"] = "TimeoutError"
        span.status.CopyFrom(Status(message="timed out after 30 s", code=Status.STATUS_CODE_ERROR))
    span.attributes.extend(_pairs(attributes))


def _span(
    rng: Random,
    trace_id: bytes,
    parent: Span | None,
    name: str,
    kind: Span.SpanKind.ValueType,
    start: int,
) -> Span:
    return Span(
        trace_id=trace_id,
        span_id=rng.randbytes(8),
        parent_span_id=parent.span_id if parent else b"",
        name=name,
        kind=kind,
        start_time_unix_nano=start,
        end_time_unix_nano=start + int(rng.lognormvariate(18, 1.5)),
        flags=0x101,
    )


def _json_text(rng: Random, size: tuple[float, float, int]) -> str:
    """An object of strings and numbers, as long as was asked for."""
    mean, deviation, most = size
    wanted = min(most, int(rng.lognormvariate(mean, deviation)))
    tree: dict[str, object] = {f"{rng.choice(WORDS)}_id": rng.randrange(10**7)}
    left = wanted
    while left > 40:
        value = _words(rng, min(left, 200))
        tree[rng.choice(WORDS)] = value
        left -= len(value) + 15
    return json.dumps(tree)


def _words(rng: Random, size: int) -> str:
    return " ".join(rng.choices(WORDS, k=max(1, size // 7)))


def _pairs(attributes: dict[str, object]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _value(value: object) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case list():
            return AnyValue(array_value=ArrayValue(values=map(_value, value)))
        case _:
            return AnyValue(string_value=str(value))
