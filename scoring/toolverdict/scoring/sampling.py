"""How many traces a kept one stands for, so that rates over sampled traffic stay unbiased.

Source: OpenTelemetry "TraceState: Probability Sampling": of 2^56 possible traces, the rejection
threshold T keeps 2^56 - T, so the adjusted count is 2^56 / (2^56 - T).
"""

from typing import Final

from toolverdict.collector.sampling.thresholds import NEVER, read_sampled

_MOST: Final = float(1 << 20)  # one in a million: a rarer sampling is not believed of a tool call
_STEPS: Final = 1 << 20


def adjusted_count(trace_state: str) -> float | None:
    """The weight of a span with this W3C ``tracestate``; 1.0 when it was not sampled.

    None when it was sampled and nobody knows how: what it stands for can be in no rate.

    A multiple of 2^-20, so that sums of weights are exact and do not depend on their order.
    """
    sampled = read_sampled(trace_state)
    if sampled.unknown:
        return None
    if sampled.threshold is None:
        return 1.0
    return min(_MOST, round(NEVER / (NEVER - sampled.threshold) * _STEPS) / _STEPS)
