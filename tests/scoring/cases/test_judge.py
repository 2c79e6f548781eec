"""A trajectory against a case: need, counts, alternatives, extras, limits, reactions, references."""

from dataclasses import replace
from typing import Any

import pytest

from toolverdict.instrument.catalogue.definitions import Catalogue, Tool
from toolverdict.scoring.cases.load import CaseSet
from toolverdict.scoring.cases.model import (
    Case,
    Count,
    Expectation,
    Extra,
    Forbidden,
    Limits,
    Turn,
    Way,
)
from toolverdict.scoring.counts import Counts
from toolverdict.scoring.model import (
    Captured,
    Category,
    ModelTurn,
    Share,
    Thresholds,
    Trajectory,
)
from toolverdict.scoring.rates.testing import aggregates_of
from toolverdict.scoring.testing import ROOT_SPAN_ID, call, trajectory_of
from toolverdict.scoring.verdicts import Judged, judge_trajectory

FREE: tuple[tuple[int, ...], ...] = ((), ())


def expect(tool: str, arguments: Any = None, **fields: Any) -> Expectation:
    return Expectation(tool=tool, arguments=arguments, **fields)


def judged(case: Case, *calls: Any, **fields: Any) -> Judged:
    return judge_trajectory(trajectory_of(*calls, **fields), None, case, Thresholds())


def failing(result: Judged) -> list[str]:
    return [finding.category.value for finding in result.findings if finding.fails]


def scores(result: Judged) -> Any:
    assert result.verdict.scores is not None
    return result.verdict.scores


@pytest.mark.parametrize(
    ("made", "passed", "missing", "extra"),
    [(0, False, 2, 0), (1, False, 1, 0), (2, True, 0, 0), (3, True, 0, 0), (4, False, 0, 1)],
)
def test_a_count_has_a_least_and_a_most(made: int, passed: bool, missing: int, extra: int) -> None:
    case = Case(id="c", expected=(expect("poll", {}, count=Count(min=2, max=3)),))
    result = judged(case, *[call("poll", {}) for _ in range(made)])
    assert result.verdict.passed is passed
    assert (scores(result).missing, scores(result).extra) == (missing, extra)


def test_a_count_without_an_end_takes_every_call() -> None:
    case = Case(id="c", expected=(expect("poll", {}, count=Count(min=1, max=None)),))
    assert judged(case, *[call("poll", {}) for _ in range(30)]).verdict.passed is True


@pytest.mark.parametrize(
    ("made", "passed"), [(1, False), (2, True), (3, True), (4, False)], ids=str
)
def test_a_count_has_a_most_where_other_calls_are_allowed(made: int, passed: bool) -> None:
    poll = expect("poll", {"job": 1}, count=Count(min=2, max=3))
    case = Case(id="c", expected=(poll,), extra=Extra(default="allow"))
    result = judged(case, *[call("poll", {"job": 1}) for _ in range(made)])
    assert result.verdict.passed is passed
    assert failing(result) == ([] if passed else ["missing_call" if made < 2 else "extra_call"])


def test_calls_that_no_count_speaks_of_stay_allowed() -> None:
    extra = Extra(default="allow")
    counted = Case(id="c", expected=(expect("f", {"x": 1}, count=Count(max=1)),), extra=extra)
    other = [call("f", {"x": 2}), call("g", {"x": 1})]
    assert judged(counted, call("f", {"x": 1}), *other).verdict.passed is True
    assert judged(counted, call("f", {"x": 1}), call("f", {"x": 1})).verdict.passed is False
    uncounted = Case(id="c", expected=(expect("f", {"x": 1}),), extra=extra)
    assert judged(uncounted, *[call("f", {"x": 1})] * 2).verdict.passed is True
    named = Case(id="c", expected=(expect("a.f", count=Count(max=1)),), extra=extra)
    theirs: dict[str, Any] = {"tool_server": "b"}
    assert judged(named, call("f", {}), call("f", {}, **theirs)).verdict.passed is True
    assert judged(named, call("f", {}), call("f", {})).verdict.passed is False


def test_an_expected_failure_is_no_attempt_of_the_success_after_it() -> None:
    """One call should be declined, the next, with other arguments, go through."""
    first, second = {"card": 1, "sum": 9}, {"card": 2, "sum": 9}
    case = Case(id="c", expected=(expect("pay", first, outcome="failure"), expect("pay", second)))
    calls = call("pay", first, outcome="error"), call("pay", second)
    assert judged(case, *calls).verdict.passed is True
    # Without such an expectation they are attempts of one call.
    once = judged(Case(id="c", expected=(expect("pay", second),)), *calls)
    assert (once.verdict.passed, scores(once).extra) == (True, 0)
    twice = judged(Case(id="c", expected=(expect("pay", first), expect("pay", second))), *calls)
    assert failing(twice) == ["missing_call"]


def test_what_a_case_wants_after_a_failure_makes_it_a_call_of_its_own() -> None:
    first, second = {"card": 1, "sum": 9}, {"card": 2, "sum": 9}
    declined = expect("pay", first, on_result={"error": ("retry_changed",)})
    case = Case(id="c", expected=(declined, expect("pay", second), expect("receipt", {})))
    made = judged(
        case, call("pay", first, outcome="error"), call("pay", second), call("receipt", {})
    )
    assert made.verdict.passed is True


def test_a_query_records_how_near_it_was_though_it_is_right() -> None:
    """METRICS: the score and the method are recorded, and not only of a wrong one."""
    case = Case(id="c", expected=(expect("search", {"q": {"$query": "flights to rome"}}),))
    result = judged(case, call("think", {}), call("search", {"q": "flights to rome now"}))
    ((index, measured),) = scores(result).measured
    assert (index, measured.key_path, measured.comparator) == (1, "q", "query")
    assert measured.score == pytest.approx(8 / 9)
    assert measured.method == "words_and_trigrams"
    assert "argument_mismatch" not in failing(result)
    assert scores(judged(case, call("search"))).measured == ()


def test_an_optional_call_may_be_absent_but_not_wrong() -> None:
    """B133."""
    inspect = expect("inspect", {"id": 1}, optional=True)
    case = Case(id="c", expected=(inspect, expect("add", {"id": 1})))
    assert judged(case, call("add", {"id": 1})).verdict.passed is True
    assert judged(case, call("inspect", {"id": 1}), call("add", {"id": 1})).verdict.passed is True
    wrong = judged(case, call("inspect", {"id": 2}), call("add", {"id": 1}))
    assert failing(wrong) == ["argument_mismatch"]


def test_a_required_call_is_served_before_an_optional_one() -> None:
    case = Case(id="c", expected=(expect("f", optional=True), expect("f")))
    assert judged(case, call("f", {})).verdict.passed is True


def test_the_best_alternative_wins_and_is_named() -> None:
    long = Way(name="long", expected=(expect("a", {}), expect("b", {}), expect("c", {})))
    short = Way(name="short", expected=(expect("d", {}),))
    case = Case(id="c", alternatives=(long, short))
    taken = judged(case, call("d", {}))
    assert (taken.verdict.passed, scores(taken).way) == (True, "short")
    nearly = judged(case, call("a", {}), call("b", {}))
    assert (scores(nearly).way, failing(nearly)) == ("long", ["missing_call"])
    assert judged(case, call("a", {}), call("d", {})).verdict.passed is False


@pytest.mark.parametrize(
    ("need", "expected", "called", "cell"),
    [
        (None, ("a",), True, "tp"),
        (None, ("a",), False, "fn"),
        (None, (), True, "fp"),
        (None, (), False, "tn"),
        ("either", (), True, None),
        ("required", (), True, "tp"),
        ("required", (), False, "fn"),
        ("forbidden", (), True, "fp"),
    ],
)
def test_need(need: Any, expected: Any, called: bool, cell: str | None) -> None:
    """S3: whether a tool was needed, and whether one was called."""
    case = Case(id="c", need=need, expected=tuple(expect(tool) for tool in expected))
    assert judged(case, *([call("a", {})] if called else [])).verdict.need == cell


def test_a_case_may_need_some_tool_whichever() -> None:
    case = Case(id="c", need="required", extra=Extra(default="allow"))
    idle = judged(case)
    assert (failing(idle), idle.verdict.passed) == (["need_unmet"], False)
    assert idle.findings[0].span_id == ROOT_SPAN_ID


def test_only_optional_calls_leave_the_need_open() -> None:
    case = Case(id="c", expected=(expect("a", optional=True),))
    assert judged(case).verdict.need is None
    assert judged(case).verdict.passed is True


def test_extra_calls_are_penalised_allowed_or_forbidden_by_pattern() -> None:
    extra = Extra(allow=("think", "get_*"), penalise=("get_secret",), forbid=("delete_*",))
    case = Case(id="c", expected=(expect("a", {}),), extra=extra)
    assert judged(case, call("think", {}), call("a", {}), call("get_x", {})).verdict.passed is True
    assert failing(judged(case, call("a", {}), call("get_secret", {}))) == ["extra_call"]
    bad = judged(case, call("a", {}), call("delete_user", {}))
    assert (bad.verdict.reason, bad.verdict.forbidden_attempted) == ("forbidden_tool_called", 1)


def test_extra_calls_that_failed_may_be_let_pass_but_not_forbidden_ones() -> None:
    extra = Extra(penalise=("pay",), forbid=("delete_*",), failed="allow")
    case = Case(id="c", expected=(expect("pay", {"n": 1}),), extra=extra)
    failed = call("pay", {"n": 9}, outcome="refused")
    assert judged(case, failed, call("pay", {"n": 1})).verdict.passed is True
    assert failing(judged(case, call("pay", {"n": 9}), call("pay", {"n": 1}))) == ["extra_call"]
    bad = judged(case, call("pay", {"n": 1}), call("delete_user", {}, outcome="refused"))
    assert bad.verdict.reason == "forbidden_tool_called"
    strict = Case(id="c", extra=Extra(default="forbid", failed="allow"))
    assert judged(strict, failed).verdict.reason == "forbidden_tool_called"


def test_where_any_extra_call_is_forbidden_one_vetoes() -> None:
    case = Case(id="c", expected=(expect("a", {}),), extra=Extra(default="forbid"))
    result = judged(case, call("a", {}), call("b", {}, outcome="denied"))
    assert result.verdict.reason == "forbidden_tool_called"
    assert (result.verdict.forbidden_attempted, result.verdict.forbidden_executed) == (1, 0)


def test_allowing_is_exact_and_forbidding_is_not() -> None:
    extra = Extra(allow=("think",), forbid=("delete_user",))
    case = Case(id="c", extra=extra)
    other = judged(case, call("think", {}, exposed_as="mcp__elsewhere__think"))
    assert failing(other) == ["extra_call"]
    hidden = judged(case, call("delete_user", {}, exposed_as="mcp__crm__delete_user"))
    assert hidden.verdict.reason == "forbidden_tool_called"


def test_a_call_forbidden_unless_another_had_succeeded() -> None:
    rule = Forbidden(tool="refund", unless_after=("verify",))
    case = Case(
        id="c", expected=(expect("verify"), expect("refund")), before=FREE, forbidden=(rule,)
    )
    assert judged(case, call("verify", {}), call("refund", {})).verdict.passed is True
    for earlier in ({"outcome": "empty"}, {"outcome": "timeout"}, {"lasts": 5.0}):
        result = judged(case, call("verify", {}, **earlier), call("refund", {}))
        assert result.verdict.reason == "forbidden_tool_called", earlier
    late = judged(case, call("refund", {}), call("verify", {}))
    assert "before verify had succeeded" in late.findings[0].message


def test_a_forbidden_argument_that_cannot_be_told_is_unknown() -> None:
    trap = Forbidden(tool="pay", arguments={"at": {"$time": "2024-05-20T18:38:00Z"}})
    case = Case(id="c", expected=(expect("pay"),), forbidden=(trap,))
    result = judged(case, call("pay", {"at": "2024-05-20T18:38:00"}))
    assert (result.verdict.passed, result.verdict.reason) == (None, "forbidden_call_unknown")


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(calls=1), "one past the limit of 1 calls"),
        (Limits(per_tool={"a*": 1}), "one past the limit of 1 calls of a*"),
        (Limits(retries=0), "one past the limit of 0 retries"),
        (Limits(seconds=1.2), "after the first call began"),
    ],
    ids=["calls", "per tool", "retries", "seconds"],
)
def test_a_limit_names_the_first_call_past_it(limits: Limits, message: str) -> None:
    case = Case(id="c", expected=(expect("a", {}),), limits=limits)
    result = judged(case, call("a", {}, outcome="timeout"), call("a", {}))
    assert failing(result) == ["limit_exceeded"]
    assert message in result.findings[0].message
    assert result.findings[0].call_index == 1


@pytest.mark.parametrize(
    ("wanted", "following", "turns", "passed"),
    [
        ("retry", call("get", {"id": 1}), 0, True),
        ("retry_same", call("get", {"id": 1}), 0, True),
        ("retry_changed", call("get", {"id": 1}), 0, False),
        ("retry_changed", call("get", {"id": 2}), 0, True),
        ("other_tool", call("find", {}), 0, True),
        ("tell_user", call("find", {}), 0, False),
        ("tell_user", None, 2, True),
        ("stop", None, 2, False),
        ("stop", None, 1, True),
        ("tell_user", None, 0, None),
    ],
)
def test_the_case_says_what_to_do_after_an_empty_result(
    wanted: str, following: Any, turns: int, passed: bool | None
) -> None:
    """S7: the reaction to a result, where the case states one."""
    empty = call("get", {"id": 1}, outcome="empty")
    case = Case(
        id="c",
        expected=(expect("get", on_result={"empty": (wanted,)}),),
        extra=Extra(default="allow"),
    )
    made = tuple(ModelTurn(f"t{i}", [0, 9_000_000_000][i], None) for i in range(turns))
    result = judged(case, *filter(None, (empty, following)), turns=made)
    handled = {True: 1.0, False: 0.0, None: None}[passed]
    assert result.verdict.result_handling == handled
    if passed is None:
        assert (result.verdict.passed, result.verdict.reason) == (None, "reaction_unknown")
    assert (Category.RESULT_MISHANDLED in {f.category for f in result.findings}) is (
        passed is False
    )


def test_a_failure_that_was_handled_as_wanted_is_no_failure() -> None:
    case = Case(id="c", expected=(expect("get", on_result={"failure": ("tell_user",)}),))
    turns = (ModelTurn("t0", 0, None), ModelTurn("t1", 9_000_000_000, None))
    good = judged(case, call("get", {}, outcome="timeout"), turns=turns)
    assert (good.verdict.passed, good.verdict.result_handling) == (True, 1.0)
    silent = judged(case, call("get", {}, outcome="timeout"), turns=turns[:1])
    assert failing(silent) == ["result_mishandled"]
    assert "the agent stopped; wanted: tell_user" in silent.findings[0].message


def test_each_attempt_is_held_to_the_wanted_reaction() -> None:
    case = Case(id="c", expected=(expect("get", on_result={"timeout": ("stop",)}),))
    result = judged(case, call("get", {}, outcome="timeout"), call("get", {}))
    assert failing(result) == ["result_mishandled"]
    assert result.findings[0].call_index == 0


def test_a_call_may_be_expected_to_fail() -> None:
    case = Case(id="c", expected=(expect("pay", outcome="failure"),))
    assert judged(case, call("pay", {}, outcome="permission_denied")).verdict.passed is True
    assert failing(judged(case, call("pay", {}))) == ["call_failed"]
    free = Case(id="c", expected=(expect("pay", outcome="any"),))
    assert judged(free, call("pay", {}, outcome="timeout")).verdict.passed is True


ORDER_REF = {"order_id": {"$ref": "order.result.items[0].id"}}


def _refund(result: Any, argument: Any) -> Judged:
    case = Case(
        id="c", expected=(expect("get_order", {"n": 1}, id="order"), expect("refund", ORDER_REF))
    )
    return judged(case, call("get_order", {"n": 1}, result=result), call("refund", argument))


def test_an_argument_that_must_come_from_an_earlier_result() -> None:
    found = {"items": [{"id": "ord_9"}]}
    assert _refund(found, {"order_id": "ord_9"}).verdict.passed is True
    assert _refund('{"items": [{"id": "ord_9"}]}', {"order_id": "ord_9"}).verdict.passed is True
    wrong = _refund(found, {"order_id": "ord_8"})
    (finding,) = [f for f in wrong.findings if f.fails]
    assert (finding.comparator, finding.key_path) == ("ref", "order_id")
    assert "expected 'ord_9', from order.result.items[0].id" in finding.message


@pytest.mark.parametrize("result", [None, {"items": []}, "no JSON"], ids=str)
def test_a_reference_to_what_is_not_there_cannot_be_told(result: Any) -> None:
    verdict = _refund(result, {"order_id": "ord_9"}).verdict
    assert (verdict.passed, verdict.reason) == (None, "arguments_undecided")


def test_references_decide_which_call_answers_which() -> None:
    """Two orders are fetched and refunded in the other order: each refund belongs to one."""
    refs = [{"order_id": {"$ref": f"{name}.result.id"}} for name in ("first", "second")]
    case = Case(
        id="c",
        expected=(
            expect("get_order", {"n": 1}, id="first"),
            expect("get_order", {"n": 2}, id="second"),
            expect("refund", refs[0]),
            expect("refund", refs[1]),
        ),
        before=((), (), (0,), (1,)),
    )
    result = judged(
        case,
        call("get_order", {"n": 2}, result={"id": "o2"}),
        call("get_order", {"n": 1}, result={"id": "o1"}),
        call("refund", {"order_id": "o2"}),
        call("refund", {"order_id": "o1"}),
    )
    assert result.verdict.passed is True


def test_a_display_id_is_seen_in_the_results_of_the_trajectory() -> None:
    """S15."""
    case = Case(id="c", expected=(expect("get", {}), expect("refund", {"order_id": "ord_9"})))
    result = judged(
        case,
        call("get", {}, result={"id": "ord_9", "number": "A123"}),
        call("refund", {"order_id": "A123"}),
    )
    (finding,) = [f for f in result.findings if f.fails]
    assert (finding.code, finding.comparator) == ("display_id_used", "id")
    assert "the display id of what is called 'ord_9'" in finding.message


def test_an_expected_server_is_the_only_one_that_answers() -> None:
    """B140: the same name on another server is another tool."""
    case = Case(id="c", expected=(expect("docs/search", {}),))
    assert judged(case, call("search", {}, tool_server="docs")).verdict.passed is True
    assert judged(case, call("search", {}, exposed_as="mcp__docs__search")).verdict.passed is True
    assert judged(case, call("search", {})).verdict.passed is True
    other = judged(case, call("search", {}, tool_server="web"))
    assert sorted(failing(other)) == ["wrong_tool"]


def test_nested_order_is_held_with_intervals() -> None:
    case = Case(
        id="c",
        expected=(expect("get_user"), expect("get_order"), expect("refund")),
        before=((), (), (0, 1)),
    )
    result = judged(
        case,
        call("get_user", {}, at=0, lasts=5),
        call("get_order", {}, at=0, lasts=3),
        call("refund", {}, at=4),
    )
    assert scores(result).order.value == 0.5
    assert failing(result) == ["premature_call"]
    assert "refund started before get_user had ended" in result.findings[0].message


def test_malformed_arguments_have_a_category_of_their_own() -> None:
    case = Case(id="c", expected=(expect("f", {"a": 1}),))
    result = judged(case, call("f", "{bad"))
    assert failing(result) == ["malformed_arguments"]
    assert (scores(result).selection_recall, scores(result).arguments.value) == (1.0, 0.0)


def test_high_risk_arguments_are_counted_apart() -> None:
    case = Case(id="c", expected=(expect("get", {"a": 1}), expect("pay", {"a": 1})))
    result = judged(case, call("get", {"a": 1}), call("pay", {"a": 2}, labels=("payment",)))
    assert scores(result).arguments.value == 0.5
    assert scores(result).arguments_high_risk.value == 0.0


def test_retries_collapse_and_the_raw_precision_stands_beside() -> None:
    case = Case(id="c", expected=(expect("f", {"a": 1}),))
    result = judged(case, call("f", {"a": 1}, outcome="timeout"), call("f", {"a": 1}))
    assert scores(result).selection_precision == 1.0
    assert scores(result).selection_precision_raw == 0.5


def test_what_was_not_captured_is_no_part_of_the_call_score() -> None:
    case = Case(id="c", expected=(expect("f", {"a": 1}),))
    assert scores(judged(case, call("f"))).call_f1 is None
    assert scores(judged(case, call("f", {"a": 1}))).call_f1 == 1.0


def test_the_catalogue_reaches_the_expectations_of_a_suite() -> None:
    tool = Tool("pay", {"properties": {"amount": {"type": "number", "x-comparator": "money"}}})
    way = Way(name="w", expected=(expect("pay", {"amount": 5}),))
    suite = CaseSet({"c": Case(id="c", alternatives=(way,))}, "")
    (case,) = suite.with_catalogue(Catalogue.of([tool])).cases.values()
    assert judged(case, call("pay", {"amount": "5.00"})).verdict.passed is True
    (plain,) = suite.cases.values()
    assert judged(plain, call("pay", {"amount": "5.00"})).verdict.passed is False


def test_a_number_in_text_passes_and_is_reported() -> None:
    tool = Tool("pay", {"properties": {"amount": {"type": "number"}}})
    case = Case(id="c", expected=(expect("pay", {"amount": 5}).with_schema(tool.schema),))
    result = judged(case, call("pay", {"amount": "5"}))
    assert result.verdict.passed is True
    assert [f.category.value for f in result.findings] == ["argument_coerced"]


def test_sub_metrics_are_counted_by_tool_label_and_version() -> None:
    """S11, S22: each of the five apart, in every slice, parts adding up to the whole."""
    case = Case(id="c", expected=(expect("get", {"a": 1}), expect("pay", {"a": 1}), expect("log")))
    result = judged(
        case,
        call("get", {"a": 1}, outcome="empty", schema_version="2"),
        call("pay", {"a": 2}, labels=("payment",)),
        call("mail", {}),
        agent="shop",
    )
    counts = Counts()
    counts.see(result)
    aggregates = aggregates_of(result)
    whole, by_tool = aggregates.rates()[""], aggregates.rates("tool")
    assert by_tool["pay"]["argument_accuracy"].value == 0.0
    assert by_tool["get"]["argument_accuracy"].value == 1.0
    assert by_tool["log"]["selection_accuracy"].value == 0.0
    assert by_tool["get"]["result_handling"].of == 1
    assert aggregates.rates("label")["payment"]["argument_accuracy"].value == 0.0
    assert aggregates.rates("schema_version")["get@2"]["selection_accuracy"].value == 1.0
    assert aggregates.rates("agent")["shop"]["call_timing_accuracy"].of == 1
    assert dict(counts.confused) == {("log", "mail"): 1}
    for rate in ("selection_accuracy", "argument_accuracy", "call_timing_accuracy"):
        parts = [rates[rate] for rates in by_tool.values() if rate in rates]
        assert sum(part.of for part in parts) == whole[rate].of, rate
        assert sum(part.hits for part in parts) == whole[rate].hits, rate
    assert whole["selection_accuracy_macro"].of == 1


def test_hashed_arguments_leave_the_retry_open() -> None:
    case = Case(id="c", expected=(expect("get", on_result={"empty": ("retry_same",)}),))
    hashed: dict[str, Any] = {"arguments_state": Captured.HASHED}
    first = call("get", outcome="empty", args_hash="a", **hashed)
    for other, handled in (("a", 1.0), ("b", 0.0), (None, None)):
        again = call("get", args_hash=other, **hashed)
        assert judged(case, first, again).verdict.result_handling == handled


def test_a_trajectory_without_the_case_is_not_judged_by_it() -> None:
    trajectory: Trajectory = trajectory_of(call("a", {}))
    assert judge_trajectory(trajectory, None, None, Thresholds()).answered == frozenset()


def test_thousands_of_calls_are_judged_in_bounded_work() -> None:
    """Hostile traces: no square of the calls is ever built."""
    many = [call("poll", {"n": n % 3}, at=n / 1000, lasts=0.0001) for n in range(2_500)]
    free = expect("poll", {"n": {"$range": {"min": 0}}}, count=Count(min=1, max=None))
    twice = (free, expect("poll", {"n": 1}, count=Count(min=1, max=None)))
    assert judged(Case(id="c", expected=(free,)), *many).verdict.passed is True
    assert scores(judged(Case(id="c", expected=twice), *many)).extra == 0
    few = Case(id="c", expected=(expect("poll", {"n": 1}), expect("poll", {"n": 2})))
    found = scores(judged(few, *many))
    assert (found.pairs, found.extra, found.arguments.value) == (2, 2_498, 1.0)


# --- conversations of several user turns ----------------------------------------------------------


def conversation(*turns: list[str | None]) -> Trajectory:
    """Per user turn the tools that the model asked for, one a request; None is its answer."""
    requests = [tool for turn in turns for tool in turn]
    second = 1_000_000_000
    models = tuple(
        ModelTurn(f"{at:016x}", at * 2 * second, at * 2 * second + 1) for at in range(len(requests))
    )
    made = [(at, tool) for at, tool in enumerate(requests) if tool is not None]
    trajectory = trajectory_of(
        *(call(tool, {}, at=at * 2 + 0.5) for at, tool in made), turns=models
    )
    placed = zip(trajectory.calls, made, strict=True)
    return replace(trajectory, calls=tuple(replace(place, turn=at) for place, (at, _) in placed))


def turns(*needs: str | None) -> Case:
    """A case that expects these tools, one a turn; None expects none."""
    return Case(
        id="c",
        expected=tuple(expect(tool, {}) for tool in needs if tool is not None),
        turns=tuple(Turn(calls=int(tool is not None)) for tool in needs),
    )


def judged_turns(case: Case, *made: list[str | None]) -> Judged:
    return judge_trajectory(conversation(*made), None, case, Thresholds())


@pytest.mark.parametrize(
    ("made", "cells", "categories"),
    [
        ([[None], ["look", None], ["pay", None]], ("tn", "tp", "tp"), []),
        ([[None], ["look", None], ["pay"]], ("tn", "tp", "tp"), []),
        ([[None], ["look", "pay", None], [None]], ("tn", "tp", "fn"), ["need_unmet"]),
        ([["look", None], [None], ["pay", None]], ("fp", "fn", "tp"), ["need_unmet"] * 2),
        ([[None], ["look", None], [None]], ("tn", "tp", "fn"), ["missing_call"]),
        ([["hint", None], ["look", None], ["pay", None]], ("fp", "tp", "tp"), ["extra_call"]),
    ],
    ids=["right", "cut off", "a turn too early", "before it was asked", "never", "for nothing"],
)
def test_need_is_decided_in_each_user_turn(
    made: list[list[str | None]], cells: tuple[str, ...], categories: list[str]
) -> None:
    result = judged_turns(turns(None, "look", "pay"), *made)
    assert scores(result).needs == cells
    right = cells.count("tp")
    precision, recall = right + cells.count("fp"), right + cells.count("fn")
    assert scores(result).need_shares == {
        "need_precision": Share(right, precision),
        "need_recall": Share(right, recall),
    }
    assert failing(result) == categories
    assert result.verdict.passed is (not categories)


def test_the_turn_in_which_nothing_was_called_is_where_the_finding_stands() -> None:
    result = judged_turns(turns("look", "pay"), ["look", "pay", None], [None])
    (finding,) = [f for f in result.findings if f.category is Category.NEED_UNMET]
    assert finding.span_id == f"{3:016x}"
    assert finding.message == "a tool had to be called in user turn 2, and none was"


def test_a_call_in_a_turn_that_needs_none_is_named() -> None:
    result = judged_turns(turns(None, "pay"), ["pay", None], [None])
    found = [f for f in result.findings if f.category is Category.NEED_UNMET]
    (early,) = [f for f in found if f.call_index is not None]
    assert early.message == "pay was called in user turn 1, which needs no tool"
    assert (early.call_index, early.actual) == (0, "pay")


def test_a_turn_may_leave_its_need_open_or_say_it() -> None:
    optional = Case(
        id="c",
        expected=(expect("look", {}, optional=True),),
        turns=(Turn(calls=1), Turn(calls=0, need="either"), Turn(calls=0, need="required")),
        extra=Extra(default="allow"),
    )
    assert optional.needs_by_turn == (None, None, True)
    idle = judged_turns(optional, [None], [None], [None])
    assert scores(idle).needs == (None, None, "fn")
    assert failing(idle) == ["need_unmet"]
    assert idle.verdict.need == "fn"


def test_turns_that_cannot_be_told_apart_are_not_evaluable() -> None:
    case = turns("look", "pay")
    unseen = judged(case, call("look", {}), call("pay", {}))
    assert scores(unseen).needs == ("unknown", "unknown")
    assert scores(unseen).need_shares["need_recall"] == Share(0, 0, 2)
    assert (unseen.verdict.need, unseen.verdict.passed) == (None, True)
    one_turn = judged_turns(case, ["look", "pay", None])
    assert scores(one_turn).needs == ("unknown", "unknown")


def test_one_word_for_all_turns_is_the_worst() -> None:
    right = judged_turns(turns(None, "look"), [None], ["look", None])
    assert right.verdict.need == "tp"
    assert judged_turns(turns(None, None), [None], [None]).verdict.need == "tn"
    mixed = judged_turns(turns(None, "look"), ["hint", None], ["look", None])
    assert mixed.verdict.need == "fp"


def test_turns_hold_every_expected_call_once() -> None:
    with pytest.raises(ValueError, match="all expected calls, each once"):
        Case(id="c", expected=(expect("a"),), turns=(Turn(calls=2),))
