"""Descriptions that are too long, and tools that are described alike.

A model picks a tool by its name and description. Where two say nearly the same, a wrong selection
cannot be told from a fair one, and a description that goes on for pages hides what it is about.

Measure: the cosine of the two descriptions as vectors of words, each weighted by how few of the
tools use it (tf-idf; Salton and Buckley, "Term-weighting approaches in automatic text retrieval",
1988). The words are those of the name, the title, the description, and the names of the parameters;
a word counts once per tool. 1 is the same words, 0 not one in common.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import log
from typing import Final

import numpy as np

from toolverdict.instrument.catalogue.definitions import Catalogue, Tool

LEAST_OVERLAP: Final = 0.6
"""From here on two tools are told; half of their rarer words are the same."""
MOST_CHARS: Final = 1024
"""Longer descriptions are told: the limit that OpenAI's function calling has for one."""

_MAX_WORDS: Final = 4_000  # of one tool; definitions come from servers
_MOST_PAIRS: Final = 1_000
_MOST_SHARED: Final = 12
_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two tools that are described alike; ``shared`` are the words that say so, the rarest first.

    ``confused`` is how often one was called where the other was expected, ``None`` where no cases
    were scored.
    """

    tools: tuple[str, str]
    similarity: float
    shared: tuple[str, ...]
    confused: int | None = None


@dataclass(frozen=True, slots=True)
class Long:
    """A tool with a long description: its length in characters and in words."""

    tool: str
    chars: int
    words: int


def long_descriptions(catalogue: Catalogue, most_chars: int = MOST_CHARS) -> list[Long]:
    """The tools whose description has more characters, the longest first."""
    found = [
        Long(tool.key, len(tool.description), len(_WORD.findall(tool.description)))
        for tool in catalogue.tools
        if tool.description is not None and len(tool.description) > most_chars
    ]
    return sorted(found, key=lambda one: (-one.chars, one.tool))


def overlaps(
    catalogue: Catalogue,
    confusion: Mapping[str, Mapping[str, int]] | None = None,
    least: float = LEAST_OVERLAP,
) -> list[Overlap]:
    """The pairs of tools that are described alike, those that were confused most often first.

    Args:
        catalogue: the tools.
        confusion: how often which tool was called (inner) where another one was expected (outer), as
            ``summary.json`` has it; by name.
        least: the similarity from which on a pair is told.
    """
    tools = catalogue.tools
    words = [_words(tool) for tool in tools]
    vectors, vocabulary = _vectors(words)
    found = []
    for first, second, similarity in _pairs(vectors, least):
        shared = words[first] & words[second]
        telling = sorted(shared, key=lambda word: (-vocabulary[word], word))[:_MOST_SHARED]
        names = tools[first].name, tools[second].name
        found.append(
            Overlap(
                (tools[first].key, tools[second].key),
                round(similarity, 3),
                tuple(telling),
                None if confusion is None else _confused(confusion, *names),
            )
        )
    found.sort(key=lambda one: (-(one.confused or 0), -one.similarity, one.tools))
    return found[:_MOST_PAIRS]


def _confused(confusion: Mapping[str, Mapping[str, int]], one: str, other: str) -> int:
    return confusion.get(one, {}).get(other, 0) + confusion.get(other, {}).get(one, 0)


def _words(tool: Tool) -> frozenset[str]:
    properties = tool.schema.get("properties")
    parameters = properties if isinstance(properties, Mapping) else {}
    texts = (tool.name, tool.title or "", tool.description or "", *map(str, parameters))
    return frozenset(list(_split(texts))[:_MAX_WORDS])


def _split(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for word in _WORD.findall(_CAMEL.sub(" ", text)):
            yield word.casefold()


def _vectors(words: list[frozenset[str]]) -> tuple[np.ndarray, dict[str, float]]:
    """A row of length 1 for each tool, and the weight of each word."""
    used = Counter(word for one in words for word in one)
    weights = {word: log((1 + len(words)) / (1 + count)) + 1 for word, count in used.items()}
    place = {word: number for number, word in enumerate(sorted(weights))}
    vectors = np.zeros((len(words), len(place)), dtype=np.float32)
    for row, one in enumerate(words):
        for word in one:
            vectors[row, place[word]] = weights[word]
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1), weights


def _pairs(vectors: np.ndarray, least: float) -> Iterator[tuple[int, int, float]]:
    """Each pair of rows that are at least so alike, block by block."""
    block = 256
    for begin in range(0, len(vectors), block):
        alike = vectors[begin : begin + block] @ vectors.T
        for row, column in np.argwhere(alike >= least).tolist():
            if begin + row < column:
                yield begin + row, column, float(alike[row, column])
