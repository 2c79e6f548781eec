"""What tail sampling costs: CPU seconds per million spans. Run it: python tests/bench/sampling.py."""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from toolverdict.collector.lake import Lake
from toolverdict.collector.sampling.policy import SamplingPolicy
from toolverdict.collector.sampling.sampler import Sampler
from toolverdict.collector.sampling.testing import (
    SECOND_NS,
    START_NS,
    random_trace_ids,
    span_table,
)
from toolverdict.collector.sampling.traces import columns_needed
from toolverdict.collector.signals import Signal

SPANS_EACH = 10
HOUR = 3600 * SECOND_NS
ATTRIBUTES = (
    '{"gen_ai.agent.id":"agent-03","user.id":"user-01234","gen_ai.provider.name":"openai",'
    '"gen_ai.tool.type":"function","mcp.method.name":"tools/call","server.address":"mcp.internal",'
    '"server.port":8443,"tool.attempt":1,"tool.cached":false,"tool.latency_ms":12.5,'
    '"code.function.name":"agent.tools.invoke","thread.id":4711}'
)
LABELLED = ATTRIBUTES[:-1] + ',"tool.labels":["read","payment"]}'  # one span of three

RULES = """
version: 1
otherwise: {keep: 0.05}
rules:
  - {id: failed, keep: 1, failed: true}
  - {id: denied, keep: 1, decisions: [deny]}
  - {id: slow, keep: 0.5, slower_than_s: 30}
"""
POLICIES = {
    "three rules": RULES,
    "and caps by agent, new tools": RULES.replace("0.05}", "0.05, cap: {traces: 50, by: agent}}")
    + "  - {id: new, keep: 1, new_tool: true, cap: {traces: 20, by: tool}}\n",
    "and labels": RULES + "  - {id: pay, keep: 0.5, labels: [payment], tools: [refund]}\n",
    "and randomness of conversations": RULES + "randomness: conversation\n",
}


def population(spans: int) -> pa.Table:
    """An hour of traces of ten spans, sorted as a part is."""
    random = np.random.default_rng(1)
    traces = spans // SPANS_EACH
    ids = [id for id in sorted(random_trace_ids(random, traces)) for _ in range(SPANS_EACH)]
    root = np.arange(spans) % SPANS_EACH == 0
    tools = np.array([f"tool_{number}" for number in range(40)] + ["refund", None])
    received = np.repeat(random.integers(0, 3600, traces), SPANS_EACH) * SECOND_NS
    conversations = [f"conv_{number % (traces // 3)}" for number in range(traces)]
    return span_table(
        ids,
        parent_span_id=[None if first else "00000000000000aa" for first in root],
        received_time_unix_nano=START_NS + received,
        status_code=np.where(random.random(spans) < 0.005, 2, 0),
        policy_decision=np.where(random.random(spans) < 0.001, "deny", "allow"),
        gen_ai_tool_name=tools[np.where(root, -1, random.integers(0, len(tools) - 1, spans))],
        gen_ai_agent_name=np.array(["a", "b", "c"])[np.arange(spans) % 3],
        gen_ai_conversation_id=np.repeat(np.array(conversations), SPANS_EACH),
        attributes=([LABELLED, ATTRIBUTES, ATTRIBUTES] * (spans // 3 + 1))[:spans],
    )


@contextmanager
def metered(what: str, spans: int) -> Iterator[None]:
    """Print the CPU time of all threads of this process."""
    start = time.process_time()
    yield
    spent = time.process_time() - start
    traces = spans / SPANS_EACH
    print(
        f"{spent / spans * 1e6:8.3f} CPU s a million spans {spent / traces * 1e6:8.2f} us a trace  {what}"
    )


def main() -> None:
    """Print what each step costs with several policies, and reading and writing beside it."""
    spans = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    table = population(spans)
    for name, text in POLICIES.items():
        with tempfile.TemporaryDirectory() as folder:
            policy = SamplingPolicy.parse(text)
            sampler = Sampler(
                Lake.create(Path(folder)), policy, until_unix_nano=START_NS + 24 * HOUR
            )
            narrow = table.select(columns_needed(policy))
            print(name)
            with metered("decide, and remember", spans):
                sampler.decide_tables([narrow])
            with metered("apply", spans):
                left = sampler.thin(Signal.TRACES, table)
            remembered = sum(file.stat().st_size for file in Path(folder).rglob("*.parquet"))
            print(
                f"         {left.num_rows / spans:.1%} of spans left, "
                f"{remembered * SPANS_EACH / spans:.0f} bytes remembered a trace"
            )
            with metered("read the memory, everything decided before", spans):
                again = Sampler(
                    Lake.create(Path(folder)), policy, until_unix_nano=START_NS + 24 * HOUR
                )
                again.decide_tables([narrow])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "part.parquet"
        print("for comparison, the same spans")
        with metered("written as Parquet, zstd 1", spans):
            pq.write_table(table, file, compression="zstd", compression_level=1)
        with metered("read from Parquet", spans):
            pq.read_table(file)


if __name__ == "__main__":
    main()
