"""Laws that every case and every trajectory obeys; ``HYPOTHESIS_PROFILE=slow`` tries thousands."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from toolverdict.instrument.yaml_files import read_yaml
from toolverdict.scoring.cases.assignment import assign
from toolverdict.scoring.cases.examples import arguments_for
from toolverdict.scoring.cases.files import Place
from toolverdict.scoring.cases.formats import read_case
from toolverdict.scoring.cases.load import load_cases
from toolverdict.scoring.cases.model import Case, Count, Expectation
from toolverdict.scoring.cases.order import Precedence
from toolverdict.scoring.cases.pairing import compare
from toolverdict.scoring.cases.references import Answers
from toolverdict.scoring.cases.solving import solve, solve_few
from toolverdict.scoring.counts import Counts
from toolverdict.scoring.model import CaseScores, Thresholds
from toolverdict.scoring.rates.testing import aggregates_of
from toolverdict.scoring.testing import call, trajectory_of
from toolverdict.scoring.verdicts import Judged, judge_trajectory

Calls = list[tuple[str, Any]]

tools = st.sampled_from(["a", "b"])
arguments = st.fixed_dictionaries({"x": st.integers(0, 2), "y": st.integers(0, 1)})
listed = st.lists(st.tuples(tools, arguments), max_size=5)
outcomes = st.sampled_from(["ok", "ok", "ok", "empty", "timeout", "refused"])
scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=3)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz"), inner, max_size=3),
    max_leaves=6,
)


def case_of(expected: Calls, ordered: bool = False) -> Case:
    calls = tuple(Expectation(tool=tool, arguments=given_) for tool, given_ in expected)
    before = None if ordered else ((),) * len(calls)
    return Case(id="c", expected=calls, before=before)


def judged(case: Case, actual: Calls, **fields: Any) -> Judged:
    trajectory = trajectory_of(*(call(tool, made) for tool, made in actual), **fields)
    return judge_trajectory(trajectory, None, case, Thresholds())


def scores(case: Case, actual: Calls) -> CaseScores:
    found = judged(case, actual).verdict.scores
    assert found is not None
    return found


def unordered(found: CaseScores) -> tuple[float | None, ...]:
    return (
        found.selection,
        found.selection_precision,
        found.selection_recall,
        found.arguments.value,
        None if found.keys.value is None else round(found.keys.value, 9),
        None if found.call_f1 is None else round(found.call_f1, 9),
    )


@given(listed, listed, st.randoms(use_true_random=False))
def test_listing_order_changes_no_unordered_score(expected: Calls, actual: Calls, rng: Any) -> None:
    before = unordered(scores(case_of(expected), actual))
    rng.shuffle(expected)
    rng.shuffle(actual)
    assert unordered(scores(case_of(expected), actual)) == before


@given(listed, listed, tools, arguments)
def test_an_extra_call_never_raises_precision(
    expected: Calls, actual: Calls, tool: str, more: Any
) -> None:
    before = scores(case_of(expected), actual)
    after = scores(case_of(expected), [*actual, (tool, more)])
    assume(before.pairs == after.pairs)
    assert (after.selection_precision or 0) <= (before.selection_precision or 1)


@given(listed.filter(len), listed, st.data())
def test_a_duplicate_raises_nothing_once_its_call_is_answered(
    expected: Calls, actual: Calls, data: st.DataObject
) -> None:
    """Where no expectation of the tool is open, one call more is one too many."""
    assume(actual)
    again = data.draw(st.sampled_from(actual))
    wanted = sum(tool == again[0] for tool, _ in expected)
    assume(sum(tool == again[0] for tool, _ in actual) >= wanted)
    before = scores(case_of(expected), actual)
    after = scores(case_of(expected), [*actual, again])
    assert (after.selection or 0) <= (before.selection if before.selection is not None else 1)
    assert (after.selection_recall or 0) <= (before.selection_recall or 0)


@given(listed.filter(len), st.data())
def test_removing_a_matched_call_lowers_recall(expected: Calls, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(expected) - 1))
    recall = scores(case_of(expected), expected[:index] + expected[index + 1 :]).selection_recall
    assert recall is not None
    assert recall < 1


@given(listed, st.booleans())
def test_a_perfect_run_scores_one_or_none_everywhere(expected: Calls, ordered: bool) -> None:
    result = judged(case_of(expected, ordered), expected)
    found = result.verdict.scores
    assert found is not None
    assert {*unordered(found), found.order.value, found.arguments_first_attempt.value} <= {
        1.0,
        None,
    }
    assert result.verdict.passed is True
    assert not [finding for finding in result.findings if finding.fails]


@given(st.dictionaries(st.text("abc", min_size=1), values, min_size=1), st.randoms())
def test_the_order_of_keys_changes_nothing(expected: dict[str, Any], rng: Any) -> None:
    assume(not any(key.startswith("$") for key in expected))

    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            items = list(value.items())
            rng.shuffle(items)
            return {key: shuffled(inner) for key, inner in items}
        return [shuffled(item) for item in value] if isinstance(value, list) else value

    assert judged(case_of([("f", expected)]), [("f", shuffled(expected))]).verdict.passed is True


def leaf_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        yield path
    for key, inner in items:
        yield from leaf_paths(inner, (*path, key))


def changed(value: Any, path: tuple[Any, ...], to: Any) -> Any:
    if not path:
        return to
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], to)
    return copy


def other_than(value: Any) -> list[Any]:
    """Values that are not this one, the near ones first."""
    if isinstance(value, bool) or value is None:
        return [not value, 0, "None", {}]
    if isinstance(value, int | float):
        return [value + 1, value + abs(value) / 1000 + 0.001, str(value), abs(value) + 2, None]
    return [f"{value}x", f"{value} ", value.swapcase() + "y", None, [value]]


@given(st.dictionaries(st.text("abc", min_size=1), values, min_size=1), st.data())
def test_changing_any_leaf_of_a_passing_case_fails_it(
    expected: dict[str, Any], data: st.DataObject
) -> None:
    """B142: a scorer that looks at containers alone would let it pass."""
    case = case_of([("f", expected)])
    assert judged(case, [("f", expected)]).verdict.passed is True
    paths = list(leaf_paths(expected))
    assume(paths)
    path = data.draw(st.sampled_from(paths))
    value: Any = expected
    for step in path:
        value = value[step]
    to = data.draw(st.sampled_from(other_than(value)))
    result = judged(case, [("f", changed(expected, path, to))])
    assert result.verdict.passed is False
    (finding,) = [f for f in result.findings if f.fails]
    assert (finding.span_id, finding.key_path is not None) == (f"{0:016x}", True)


def refuses_any_other_leaf(case: Case, others: int) -> int:
    """A run as the case has it passes, and with any leaf changed or a call left out it does not.

    Returns:
        How many leaves there are.
    """
    right = [(e.tool, arguments_for(e)) for e in case.expected]
    assert judged(case, right).verdict.passed is True
    leaves = 0
    for index, (tool, made) in enumerate(right):
        for path in leaf_paths(made):
            leaves += 1
            value: Any = made
            for step in path:
                value = value[step]
            for to in other_than(value)[:others]:
                wrong = [*right[:index], (tool, changed(made, path, to)), *right[index + 1 :]]
                assert judged(case, wrong).verdict.passed is False, (case.id, tool, path, to)
        assert judged(case, right[:index] + right[index + 1 :]).verdict.passed is False
    return leaves


FILES = sorted((Path(__file__).parents[3] / "scenarios").rglob("cases.yaml"))
SUITES = [(Place(str(p)), document) for p in FILES for document in read_yaml(p.read_bytes()).data]


@pytest.mark.parametrize(("place", "document"), SUITES, ids=[one["id"] for _, one in SUITES])
def test_changing_any_leaf_of_any_shipped_case_fails_it(place: Place, document: Any) -> None:
    refuses_any_other_leaf(read_case(place, document).case, others=5)


TRAPS = read_yaml((Path(__file__).parents[2] / "data/cases/traps.yaml").read_bytes()).data
STRICT = [trap for trap in TRAPS if "$" not in str(trap["expected"])]


def calls_in(listed: Any) -> list[Any]:
    """The calls of a trap: ``[tool, arguments]``, and lists of such."""
    if not listed or isinstance(listed[0], list):
        return [found for one in listed for found in calls_in(one)]
    return [listed]


@pytest.mark.parametrize("trap", STRICT, ids=lambda trap: str(trap["name"]))
def test_changing_any_leaf_of_any_trap_fails_it(trap: dict[str, Any]) -> None:
    expected = tuple(
        Expectation(tool=tool, arguments=arguments)
        for tool, arguments in calls_in(trap["expected"])
    )
    if all(one.arguments is not None for one in expected):
        refuses_any_other_leaf(Case(id=trap["name"], expected=expected), others=5)


CORPORA = sorted((Path(__file__).parents[4] / "shared" / "corpora").glob("*/cases*.jsonl"))


@pytest.mark.skipif(not CORPORA, reason="the corpora are no part of a clone")
@pytest.mark.parametrize("path", CORPORA, ids=[f"{p.parent.name}/{p.stem}" for p in CORPORA])
def test_changing_any_leaf_of_any_case_of_a_corpus_fails_it(path: Path) -> None:
    """One other value a leaf; thousands where thousands of examples are asked for."""
    others = 5 if settings().max_examples > 1_000 else 1
    seen: set[str] = set()
    for case in load_cases(path).cases.values():
        expected = repr([(e.tool, e.arguments) for e in case.expected])
        if case.expected and expected not in seen:
            seen.add(expected)
            refuses_any_other_leaf(case, others)


@given(
    listed,
    st.lists(st.lists(st.tuples(tools, arguments, outcomes), max_size=4), max_size=5),
    st.data(),
)
def test_parts_scored_apart_add_up_to_the_whole(
    expected: Calls, runs: list[Any], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(runs)))
    case = case_of(expected)
    results = [
        judge_trajectory(
            trajectory_of(
                *(call(tool, made, outcome=outcome) for tool, made, outcome in run),
                trajectory_id=str(number),
            ),
            None,
            case,
            Thresholds(),
        )
        for number, run in enumerate(runs)
    ]
    whole, first, second = (counted(part) for part in (results, results[:cut], results[cut:]))
    first.add(second)
    assert first == whole


def counted(results: list[Judged]) -> Counts:
    counts = Counts(aggregates_of(*results))
    for result in results:
        counts.see(result)
    return counts


@given(listed.filter(len))
def test_an_idle_agent_and_one_that_calls_everything_pass_no_suite(expected: Calls) -> None:
    case = case_of(expected)
    assert judged(case, []).verdict.passed is False
    everything = [*expected, *((tool, {}) for tool in ("a", "b", "c"))]
    assert judged(case, everything).verdict.passed is False


@given(
    st.lists(
        st.builds(
            Expectation,
            tool=st.just("f"),
            arguments=st.none() | arguments,
            optional=st.booleans(),
            count=st.builds(Count, min=st.integers(0, 1), max=st.integers(1, 2)),
        ),
        max_size=3,
    ),
    st.lists(st.tuples(arguments, outcomes), max_size=4),
)
def test_the_assignment_is_the_best_of_all(
    expected: list[Expectation], actual: list[tuple[Any, str]]
) -> None:
    """Against every possible assignment: pairs, scores, required, wholly right, ended as expected."""
    calls = trajectory_of(*(call("f", made, outcome=ended) for made, ended in actual)).calls
    calls = tuple(replace(place, retry_of=None) for place in calls)
    found, _ = assign(expected, Precedence(None, len(expected)), calls, calls)
    slots = [
        (e, n < e.count.min and not e.optional) for e in expected for n in range(e.count.max or 0)
    ]
    best = max(
        _worth(columns, slots, calls)
        for columns in itertools.product([None, *range(len(calls))], repeat=len(slots))
        if len(taken := [c for c in columns if c is not None]) == len(set(taken))
    )
    pairs = [(expected[p.expected], p.call) for p in found.pairs]
    required = sum(e.count.min for e in expected if not e.optional) - len(found.missing)
    mine = _sums(pairs, required)
    assert mine == best


def _worth(columns: Any, slots: Any, calls: Any) -> tuple[float, ...]:
    pairs = [(slots[i][0], calls[c]) for i, c in enumerate(columns) if c is not None]
    required = sum(slots[i][1] for i, c in enumerate(columns) if c is not None)
    return _sums(pairs, required)


def _sums(pairs: Any, required: int) -> tuple[float, ...]:
    compared = [compare(e, place, Answers()) for e, place in pairs]
    return (
        len(pairs),
        round(sum(1.0 if c is None else c.score for c in compared), 6),
        required,
        sum(c is None or c.wholly_right for c in compared),
        sum(not place.call.outcome.failed for _, place in pairs),
    )


@given(st.data())
def test_later_criteria_choose_only_among_what_the_earlier_ones_leave(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    cell = st.integers(0, 3)
    grids = [
        np.array([[float(data.draw(cell)) for _ in range(columns)] for _ in range(rows)])
        for _ in range(3)
    ]
    grids[0] += 5.0
    grids[0][np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))] = -np.inf
    found = solve(grids)

    def sums(pairs: list[tuple[int, int]]) -> tuple[float, ...]:
        return tuple(sum(float(grid[i, j]) for i, j in pairs) for grid in grids)

    def pairings(row: int, used: frozenset[int]) -> Iterator[list[tuple[int, int]]]:
        if row == rows:
            yield []
            return
        yield from pairings(row + 1, used)
        for column in range(columns):
            if column not in used and not np.isneginf(grids[0][row, column]):
                for rest in pairings(row + 1, used | {column}):
                    yield [(row, column), *rest]

    best = max(sums(pairs) for pairs in pairings(0, frozenset()))
    assert sums(found) == best
    worth = [
        [
            None if np.isneginf(grids[0][i, j]) else tuple(int(grid[i, j]) for grid in grids)
            for j in range(columns)
        ]
        for i in range(rows)
    ]
    assert sums(solve_few(worth)) == best
