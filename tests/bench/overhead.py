"""What a decorated call costs, in CPU time, beside a bare SDK span with the same attributes.

    .venv/bin/python tests/bench/overhead.py

Measured: a tool labelled ``read``, capture off, a policy of 15 rules, arguments of 1 KB. Beside it,
in the same rounds and in turns: one bare span with the very attributes that the call's span had, and
the same two spans (call and body). What hashing, deciding and a dangerous label cost is shown apart;
a call whose arguments are excluded has the same attributes and next to nothing to hash. Each figure is the median of the rounds, and each ratio that
of the rounds' own ratios, since the machine is not ours alone. Nothing is asserted; the target is at
most 2.0 times.
"""

import gc
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from toolverdict.instrument import settings, snapshots, tool
from toolverdict.instrument.decisions import Call
from toolverdict.instrument.hashing import HashKey, args_hash
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.provenance import atom_hashes
from toolverdict.instrument.testing import capture_spans

ROUNDS = 40
CALLS = 250

RULES = "\n".join(
    [f"  - {{id: deny-{n}, effect: deny, tools: [delete_{n}, drop_{n}_*]}}" for n in range(8)]
    + [f"  - {{id: ask-{n}, effect: require_approval, tools: [pay_{n}_*]}}" for n in range(4)]
    + ["  - {id: payments, effect: require_approval, labels: [payment]}"]
    + ["  - {id: reads, effect: allow, labels: [read]}"]
    + ["  - {id: writes, effect: allow, tools: [save], agents: ['*'], labels: [write]}"]
)
POLICY = Policy.parse(f"version: 1\nid: bench\nrules:\n{RULES}\n")
ORDER: dict[str, Any] = {
    "id": "order-4711",
    "customer": {"name": "Ada Lovelace", "email": "ada@example.org", "vip": True},
    "lines": [
        {"sku": f"sku-{n:05}", "title": f"Something worth buying, number {n}", "count": n}
        for n in range(10)
    ],
    "note": "leave it at the door" * 12,
    "voucher": None,
}


def bare(order: dict[str, Any], limit: int = 3) -> int:
    """The work itself: none."""
    return limit


read = tool(name="lookup", labels=["read"])(bare)
unhashed = tool(name="lookup", labels=["read"], exclude=["order", "limit"])(bare)
write = tool(name="save", labels=["write"], idempotency_key=lambda a: str(a["limit"]))(bare)
write_policy = Policy.parse(
    f"version: 1\nid: bench\nrules:\n{RULES}\n  - {{id: w, effect: allow, tools: [save]}}\n"
)


class Nowhere(SpanProcessor):
    """Takes ended spans and forgets them."""


def main() -> None:
    """Measure and print."""
    with capture_spans(policy=POLICY) as spans:
        read(ORDER)
    (recorded,) = spans.tool_calls
    bodies = [span for span in spans if span is not recorded]
    attributes = dict(recorded.attributes or {})
    body_attributes = dict(bodies[0].attributes or {}) if bodies else {}

    provider = TracerProvider(
        sampler=ALWAYS_ON, resource=Resource.get_empty(), shutdown_on_exit=False
    )
    provider.add_span_processor(Nowhere())
    tracer = provider.get_tracer("bench")
    key = HashKey.of(b"a key for the benchmark")
    in_force = settings.Settings(key=key, policy=POLICY, provider=provider)
    may_write = settings.Settings(key=key, policy=write_policy, provider=provider)
    silent = settings.Settings(key=key, provider=trace.NoOpTracerProvider())

    def under(chosen: settings.Settings, function: Callable[..., Any]) -> Callable[[], Any]:
        def call() -> Any:
            return function(ORDER)

        call.__dict__["settings"] = chosen
        return call

    def one_span() -> int:
        with tracer.start_as_current_span("tool.call lookup", attributes=attributes):
            return bare(ORDER)

    def two_spans() -> int:
        with (
            tracer.start_as_current_span("tool.call lookup", attributes=attributes),
            tracer.start_as_current_span("execute_tool lookup", attributes=body_attributes),
        ):
            return bare(ORDER)

    arguments = {"order": ORDER, "limit": 3}
    tagged = {**arguments, "limit": (3,)}  # a tuple is none of JSON's types
    call = Call("lookup", frozenset({"read"}))

    def hashed(bound: dict[str, Any]) -> str:
        return args_hash(key, "lookup", snapshots.take(bound)[1])

    measured: dict[str, Callable[[], Any]] = {
        "bare SDK span": one_span,
        "two bare SDK spans": two_spans,
        "decorated call, read": under(in_force, read),
        "  its arguments excluded from hashing": under(in_force, unhashed),
        "decorated call, write": under(may_write, write),
        "decorated call, no SDK, no policy": under(silent, read),
        "  hash of the arguments": lambda: hashed(arguments),
        "  hash, with a tuple among them": lambda: hashed(tagged),
        "  policy of 15 rules": lambda: POLICY.decide(call),
        "  atoms of the arguments": lambda: atom_hashes(key, arguments),
    }
    times: dict[str, list[float]] = {name: [] for name in measured}
    gc.collect()
    gc.disable()
    for number in range(ROUNDS + 3):
        for name, function in measured.items():
            settings.replace(getattr(function, "settings", None))
            start = time.process_time_ns()
            for _ in range(CALLS):
                function()
            spent = (time.process_time_ns() - start) / CALLS / 1000
            if number >= 3:  # the first rounds warm up
                times[name].append(spent)
        gc.collect()
    gc.enable()

    one, two = times["bare SDK span"], times["two bare SDK spans"]
    print(f"Python {sys.version.split()[0]}, arguments of {len(json.dumps(arguments))} bytes, ")
    print(f"median of {ROUNDS} rounds of {CALLS} calls, CPU time")
    print(f"{'':36}{'µs':>8}{'x 1 span':>10}{'x 2 spans':>10}")
    for name, took in times.items():
        ratios = [
            statistics.median(a / b for a, b in zip(took, base, strict=True)) for base in (one, two)
        ]
        print(f"{name:36}{statistics.median(took):8.1f}{ratios[0]:10.2f}{ratios[1]:10.2f}")

    settings.replace(in_force)
    print(f"memory kept per call: {kept_per_call():.2f} bytes")


def kept_per_call() -> float:
    """Bytes that a call leaves behind."""
    calls = 3000
    for _ in range(calls):
        read(ORDER)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(calls):
            read(ORDER)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / calls


if __name__ == "__main__":
    main()
