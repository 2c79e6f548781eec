"""How many tokens a request to the model was paid for, as its span tells in any dialect."""

from collections.abc import Mapping
from typing import Any, Final

_BOTH: Final = (
    ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"),
    ("gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"),
    ("llm.token_count.prompt", "llm.token_count.completion"),
    ("llm.usage.prompt_tokens", "llm.usage.completion_tokens"),
)
"""In and out, from the convention's own names (OpenTelemetry GenAI) to older ones. Those of caches
and of reasoning are part of them."""
_TOTALS: Final = ("gen_ai.usage.total_tokens", "llm.token_count.total", "llm.usage.total_tokens")

_MOST: Final = 1 << 40  # no request is as large; what says so is wrong


def tokens_of(attributes: Mapping[str, Any]) -> int | None:
    """Tokens in and out, of the first pair of attributes that tells any; None where none does."""
    for names in _BOTH:
        told = [count for name in names if (count := _count(attributes.get(name))) is not None]
        if told:
            return sum(told)
    return next(
        (count for name in _TOTALS if (count := _count(attributes.get(name))) is not None), None
    )


def _count(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST:
        return value
    return None
