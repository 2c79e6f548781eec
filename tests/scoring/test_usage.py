"""Tokens of a request to the model, in the words of several dialects."""

from typing import Any

import pytest

from toolverdict.scoring.usage import tokens_of


@pytest.mark.parametrize(
    ("attributes", "tokens"),
    [
        ({"gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 7}, 127),
        ({"gen_ai.usage.output_tokens": 7}, 7),
        ({"gen_ai.usage.prompt_tokens": 1, "gen_ai.usage.completion_tokens": 2}, 3),
        ({"llm.token_count.prompt": 5, "llm.token_count.completion": 0}, 5),
        ({"llm.token_count.total": 9}, 9),
        ({"gen_ai.usage.input_tokens": 3, "gen_ai.usage.total_tokens": 99}, 3),
        ({"gen_ai.usage.input_tokens": 0}, 0),
        ({}, None),
        ({"gen_ai.usage.input_tokens": -1}, None),
        ({"gen_ai.usage.input_tokens": True}, None),
        ({"gen_ai.usage.input_tokens": "12"}, None),
        ({"gen_ai.usage.input_tokens": 1 << 60}, None),
    ],
)
def test_tokens(attributes: dict[str, Any], tokens: int | None) -> None:
    assert tokens_of(attributes) == tokens
