"""How many traces a kept one stands for, so that rates over sampled traffic stay unbiased.

Source: OpenTelemetry "TraceState: Probability Sampling", sub-key ``th`` of ``ot``: the rejection
threshold T of 2^56, written as up to 14 hex digits with trailing zeros dropped; the adjusted
count is 2^56 / (2^56 - T).
"""

import re

_THRESHOLD = re.compile(r"(?:^|,)\s*ot=(?:[^,]*;)?th:([0-9a-f]{1,14})(?:[;,]|\s*$)")
_RANGE = 1 << 56
_MOST = float(1 << 20)  # one in a million: a rarer sampling is not believed of a tool call
_STEPS = 1 << 20


def adjusted_count(trace_state: str) -> float:
    """The weight of a span with this W3C ``tracestate``; 1.0 when it was not sampled.

    A multiple of 2^-20, so that sums of weights are exact and do not depend on their order.
    """
    found = _THRESHOLD.search(trace_state)
    if found is None:
        return 1.0
    threshold = int(found.group(1).ljust(14, "0"), 16)
    return min(_MOST, round(_RANGE / (_RANGE - threshold) * _STEPS) / _STEPS)
