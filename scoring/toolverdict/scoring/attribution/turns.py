"""Which turn of a failed conversation is to be blamed, where no call shows what went wrong.

Agents that talk (to each other, to a user) can fail without a failed call. What then remains are
signs in what was said: a turn that assumes or invents, whose values come from nowhere and reach
the answer, whose code is the first to fail, that goes on after a failure. None proves anything; each
has a weight, and the weights were fitted to conversations whose decisive mistake people had marked
(``turn_weights.json`` says which, and how). What comes out is a probability for every step.

The words are English ones. Conversations in other languages have fewer signs and less certain ends.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final

import orjson

LEAST_PROBABILITY: Final = 0.2
"""Below, no turn is named."""

_WEIGHTS: Final = Path(__file__).with_name("turn_weights.json")
_VERSION: Final = 1

# Bounds of the work on hostile traces.
_MAX_STEPS: Final = 1000
_MAX_CHARS: Final = 20_000  # of one step
_MAX_ALL_CHARS: Final = 2_000_000
_MAX_VALUES: Final = 2000

_BRIEF_WORDS: Final = 12
_ANSWER_WORDS: Final = 8
_NAME_CHARS: Final = 4
_WORD: Final = re.compile(r"\w[\w.,:'’/-]*\w|\w")  # noqa: RUF001
_ASSUMES: Final = re.compile(
    r"\b(assum\w*|simulat\w*|hypothe\w*|placeholder\w*|sample data|mock\w*|dummy|fictional|suppose|"
    r"for (?:demonstration|illustration)|let's say|approximat\w*|estimat\w*|typical\w*|"
    r"general knowledge|known (?:data|information)|manual\w*)\b",
    re.IGNORECASE,
)
_CODE: Final = re.compile(r"```|^\s*(?:import|def) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a conversation: what an agent said, or what came back from a tool."""

    span_id: str
    text: str
    is_result: bool = False
    failed: bool = False
    asks_for_tool: bool = False


@dataclass(frozen=True, slots=True)
class Suspect:
    """A step, how likely the decisive mistake was made there, and the signs that speak for it."""

    span_id: str
    probability: float
    signs: tuple[str, ...]


_SAID: Final = {
    "assumes": "it assumes or estimates instead of finding out",
    "new_values": "it brings up values that nothing before it holds",
    "answer_origin": "values of the final answer come from here",
    "asks": "it writes code or asks for a tool",
    "first_failure_follows": "the first failure comes right after it",
    "follows_failure": "it goes on after a failure",
}
"""Signs that a person can check, in words."""

SIGNS: Final = (
    "result",
    "failed",
    "brief",
    "answers_result",
    "new_values",
    "asks",
    "assumes",
    "first_failure_follows",
    "follows_failure",
    "lateness",
    "answer_origin",
)
"""The names of the signs, in the order in which :func:`signs` gives them."""


def suspects(steps: Sequence[Step]) -> list[Suspect]:
    """The steps of a failed conversation, the likeliest to hold the decisive mistake first.

    The probabilities add up to one, over the first thousand steps.
    """
    rows = signs(steps)
    if not rows:
        return []
    weights = _weights()
    scores = [sum(w * x for w, x in zip(weights, row, strict=True)) for row in rows]
    highest = max(scores)
    odds = [math.exp(score - highest) for score in scores]
    total = sum(odds)
    found = [
        Suspect(step.span_id, odd / total, _shown(row))
        for step, row, odd in zip(steps, rows, odds, strict=False)
    ]
    return sorted(found, key=lambda suspect: -suspect.probability)


def signs(steps: Sequence[Step]) -> list[tuple[float, ...]]:
    """The signs of each step, in the order of :data:`SIGNS`, most between 0 and 1."""
    steps = steps[:_MAX_STEPS]
    texts = _texts(steps)
    words = [_WORD.findall(text) for text in texts]
    values = [_values(of_step) for of_step in words]
    new: list[int] = []
    first: dict[str, int] = {}
    for index, of_step in enumerate(values):
        unheard = [value for value in of_step if value not in first]
        first.update(dict.fromkeys(unheard, index))
        new.append(len(unheard))
    origins = _origins_of_answer(steps, words, values, first)
    failure = next((i for i, step in enumerate(steps) if step.failed), None)
    rows: list[tuple[float, ...]] = []
    for index, step in enumerate(steps):
        before = steps[index - 1] if index else None
        # The first step states the task: what it holds was given, not made up.
        told = bool(index)
        asks = step.asks_for_tool or bool(_CODE.search(texts[index]))
        rows.append(
            (
                float(step.is_result),
                float(step.failed),
                float(len(words[index]) < _BRIEF_WORDS),
                float(before is not None and before.is_result),
                math.log1p(new[index]) / 4 if told else 0.0,
                float(told and asks and not step.is_result),
                float(told and bool(_ASSUMES.search(texts[index]))),
                float(failure is not None and index + 1 == failure),
                float(before is not None and before.failed),
                math.log1p(index),
                origins.get(index, 0.0),
            )
        )
    return rows


def _texts(steps: Sequence[Step]) -> list[str]:
    """What was said, each step's and all together only so long."""
    left = _MAX_ALL_CHARS
    texts = []
    for step in steps:
        texts.append(step.text[: min(_MAX_CHARS, left)])
        left -= len(texts[-1])
    return texts


def _origins_of_answer(
    steps: Sequence[Step],
    words: Sequence[Sequence[str]],
    values: Sequence[Sequence[str]],
    first: dict[str, int],
) -> dict[int, float]:
    """Of the last answer's values that the task did not give, which share each step had first."""
    answers = (
        i
        for i in range(len(steps) - 1, -1, -1)
        if not steps[i].is_result and len(words[i]) >= _ANSWER_WORDS
    )
    answer = next(answers, len(steps) - 1)
    found = Counter(first[value] for value in (values[answer] if steps else ()) if first[value])
    total = found.total()
    return {index: count / total for index, count in found.items()}


def _values(words: Sequence[str]) -> list[str]:
    """What a text says that others may take up: numbers and names, each once."""
    found = (
        word.casefold().replace(",", "")
        for word in words
        if (len(word) > 1 and any(map(str.isdigit, word)))
        or (len(word) >= _NAME_CHARS and word[0].isupper())
    )
    return list(dict.fromkeys(islice(found, _MAX_VALUES)))


def _shown(row: Sequence[float]) -> tuple[str, ...]:
    named = dict(zip(SIGNS, row, strict=True))
    return tuple(words for name, words in _SAID.items() if named[name] > 0)


@cache
def _weights() -> tuple[float, ...]:
    document = orjson.loads(_WEIGHTS.read_bytes())
    if document["version"] != _VERSION:
        raise ValueError(f"{_WEIGHTS}: version {document['version']}, known is {_VERSION}")
    return tuple(document["weights"][name] for name in SIGNS)
