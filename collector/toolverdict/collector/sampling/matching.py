"""Which spans satisfy what a rule says about a single span."""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.collector.errors import LakeError
from toolverdict.collector.sampling.columns import Bools, Words, words_of
from toolverdict.collector.sampling.policy import Rule
from toolverdict.instrument import semconv
from toolverdict.instrument.names import same_tool
from toolverdict.instrument.outcomes import Outcome

TOOL_NAMES: Final = (semconv.TOOL_NAME, semconv.GEN_AI_TOOL_NAME)
"""Where a span names its tool, in this order."""

COLUMNS: Final = (
    "status_code",
    semconv.ERROR_TYPE,
    semconv.TOOL_OUTCOME,
    semconv.POLICY_DECISION,
    *TOOL_NAMES,
)
"""The columns that are looked at, and ``attributes`` where a rule asks for labels."""

_STATUS_ERROR: Final = 2  # Status.STATUS_CODE_ERROR of OTLP
_FAILED: Final = frozenset(outcome.value for outcome in Outcome if outcome.failed)
# A list of texts under this key. Quotes inside a value are escaped, so only a key can match.
_LABELS: Final = rf'"{re.escape(semconv.TOOL_LABELS)}"[:,](?P<labels>\["(?:[^"\\]|\\.)*"(?:,"(?:[^"\\]|\\.)*")*\])'


def tools_of(spans: pa.Table) -> Words:
    """The tool of each span."""
    first, second = (words_of(spans.column(name)) for name in TOOL_NAMES)
    # The names of the second are numbered behind those of the first.
    behind = np.where(second.codes >= 0, second.codes + len(first.values), -1)
    both = np.where(first.codes >= 0, first.codes, behind)
    numbers: dict[str, int] = {}
    number = [numbers.setdefault(name, len(numbers)) for name in first.values + second.values]
    return Words(np.array([*number, -1], np.int64)[both], list(numbers))


def matching_spans(spans: pa.Table, tools: Words, rule: Rule) -> Bools | None:
    """The spans that satisfy all of it; None when the rule says nothing about single spans.

    Args:
        spans: with the columns of :data:`COLUMNS`.
        tools: what :func:`tools_of` said of them.
        rule: the rule.
    """
    asked: list[Bools] = []
    if rule.failed:
        asked.append(_failed(spans))
    if rule.decisions is not None:
        asked.append(_is_one_of(spans, semconv.POLICY_DECISION, rule.decisions))
    if rule.outcomes is not None:
        asked.append(_is_one_of(spans, semconv.TOOL_OUTCOME, rule.outcomes))
    if rule.tools is not None:
        asked.append(tools.are(any_glob(rule.tools, same_tool)))
    if rule.labels is not None:
        # At the end: to search the attributes of a span takes longer than all the rest.
        candidates: Bools = np.logical_and.reduce([tools.codes >= 0, *asked])
        return _labelled(spans, candidates, frozenset(rule.labels))
    if not asked:
        return None
    every: Bools = np.logical_and.reduce(asked)
    return every


def any_glob(globs: Iterable[str], fits: Callable[[str, str], bool]) -> Callable[[str], bool]:
    """Whether one of the globs fits a name, as ``fits(glob, name)`` says."""
    return lambda name: any(fits(glob, name) for glob in globs)


def _failed(spans: pa.Table) -> Bools:
    status = pc.equal(spans.column("status_code"), pa.scalar(_STATUS_ERROR, pa.int32()))
    has_type = pc.is_valid(spans.column(semconv.ERROR_TYPE))
    outcome = words_of(spans.column(semconv.TOOL_OUTCOME)).are(_FAILED.__contains__)
    failed: Bools = outcome | status.fill_null(False).to_numpy() | has_type.to_numpy()
    return failed


def _is_one_of(spans: pa.Table, column: str, wanted: Iterable[str]) -> Bools:
    return words_of(spans.column(column)).are(frozenset(wanted).__contains__)


def _labelled(spans: pa.Table, candidates: Bools, labels: frozenset[str]) -> Bools:
    texts = spans.column("attributes").filter(pa.array(candidates))
    extracted: Any = pc.extract_regex(texts, _LABELS)
    lists = [chunk.flatten()[0] for chunk in extracted.chunks]
    words = words_of(pa.chunked_array(lists, texts.type))
    found = candidates.copy()
    found[candidates] = words.are(lambda text: not labels.isdisjoint(_texts(text)))
    return found


def _texts(text: str) -> list[str]:
    try:
        texts: list[str] = orjson.loads(text)
    except ValueError as error:
        raise LakeError(
            "the JSON text in column attributes of a span is damaged; restore its part from a "
            "copy or move it away"
        ) from error
    return texts
