"""The values that flow between the steps: tool call, trajectory, finding, verdict.

They are what the output tables hold, before they become Arrow. All are frozen: a step returns new
values and never edits those of an earlier step.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from toolverdict.instrument.outcomes import Outcome

Json: TypeAlias = Any
"""A JSON value as Python holds it: None, bool, int, float, str, list, dict."""


class Captured(StrEnum):
    """What a span tells of a value: the value, only its hash, or nothing. Nothing is not empty."""

    CAPTURED = "captured"
    HASHED = "hashed"
    NOT_CAPTURED = "not_captured"


@dataclass(frozen=True, slots=True)
class Atoms:
    """Keyed hashes of the addresses, numbers and ids in a value that was not captured.

    Those of two keys say nothing about each other; with ``whole`` False there are more of them.
    """

    key_id: str
    hashes: frozenset[str]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One logical attempt of one tool, folded from the spans that witnessed it.

    Times are nanoseconds since the epoch, UTC; ``end_ns`` is None while the call is unfinished.
    ``executed`` is None where the telemetry cannot show whether the tool's body ran. ``tool`` is
    the bare name; ``exposed_as`` is what the model saw where that differs (``mcp__shop__refund``).
    ``requested_arguments`` are what the model asked for where somebody changed them before the call.
    """

    trace_id: str
    span_id: str
    parent_span_id: str | None
    tool: str
    start_ns: int
    end_ns: int | None
    outcome: Outcome
    dialect: str
    tool_server: str | None = None
    call_id: str | None = None
    arguments: Json = None
    arguments_state: Captured = Captured.NOT_CAPTURED
    args_hash: str | None = None
    result: Json = None
    result_state: Captured = Captured.NOT_CAPTURED
    error_type: str | None = None
    executed: bool | None = None
    policy_decision: str | None = None
    policy_reason_code: str | None = None
    approval_id: str | None = None
    approval_status: str | None = None
    idempotency_key_hash: str | None = None
    idempotency_status: str | None = None
    schema_version: str | None = None
    labels: tuple[str, ...] = ()
    agent: str | None = None
    weight: float | None = 1.0
    exposed_as: str | None = None
    requested_arguments: Json = None
    argument_atoms: Atoms | None = None
    result_atoms: Atoms | None = None
    approver: str | None = None
    policy_enforced: bool | None = None

    @property
    def known_as(self) -> str:
        """The full name, by which rules about tools are asked: a server must not be stripped."""
        return self.exposed_as or self.tool

    @property
    def error_kind(self) -> str | None:
        """The outcome's name when the call failed, else None."""
        return self.outcome.value if self.outcome.failed else None


@dataclass(frozen=True, slots=True)
class Placed:
    """A tool call and its place in the trajectory: the model turn, its siblings, its retries.

    ``attempt`` counts from 1; ``retry_of`` is the index of the failed call that this one repeats;
    ``parallel_group`` is the turn that asked for several calls at once, else None.
    """

    call: ToolCall
    index: int
    turn: int | None = None
    parallel_group: int | None = None
    attempt: int = 1
    retry_of: int | None = None


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One request to the model, as its span shows it: where a missing call should have been made.

    ``tokens`` are those that were paid for it, in and out, where the span tells; ``text`` is what
    the model said in it, where captured.
    """

    span_id: str
    start_ns: int
    end_ns: int | None
    tokens: int | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The ordered tool calls of one task, with the model turns around them.

    ``user_texts`` and ``system_texts`` are what the user and the operator said, where captured.
    ``complete`` is False when a root, a parent or an end is missing: ``gaps`` says which.
    """

    trajectory_id: str
    trace_id: str
    root_span_id: str
    calls: tuple[Placed, ...]
    turns: tuple[ModelTurn, ...] = ()
    conversation_id: str | None = None
    case_id: str | None = None
    user_id: str | None = None
    agent: str | None = None
    model: str | None = None
    service_version: str | None = None
    root_failed: bool = False
    user_texts: tuple[str, ...] = ()
    system_texts: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    weight: float | None = 1.0
    user_atoms: Atoms | None = None
    tool_definitions: tuple[Json, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every span that the others point to is there and finished."""
        return not self.gaps


class Severity(StrEnum):
    """What a finding does to its trajectory."""

    VIOLATION = "violation"  # a safety rule was broken: fails the trajectory, whatever else
    FAILURE = "failure"  # something expected did not happen: fails it unless repaired
    WASTE = "waste"  # work done for nothing: counted, does not fail
    WARNING = "warning"  # evidence that needs a look: does not fail by itself


class Category(StrEnum):
    """What is wrong at a span. Values are stable: people filter and join on them."""

    FORBIDDEN_CALL = "forbidden_call"
    REQUIREMENT_UNMET = "requirement_unmet"
    APPROVAL_MISSING = "approval_missing"
    APPROVAL_DENIED = "approval_denied"
    APPROVAL_EXPIRED = "approval_expired"
    APPROVAL_REUSED = "approval_reused"
    APPROVAL_MISMATCH = "approval_mismatch"
    UNAUTHORISED_ARGUMENT = "unauthorised_argument"
    IDEMPOTENCY_MISSING = "idempotency_missing"
    PERSONAL_DATA = "personal_data"
    POISONED_TOOL = "poisoned_tool"
    INJECTION_SUSPECTED = "injection_suspected"
    UNGROUNDED_ARGUMENT = "ungrounded_argument"
    WRONG_TOOL = "wrong_tool"
    MISSING_CALL = "missing_call"
    EXTRA_CALL = "extra_call"
    ARGUMENT_MISMATCH = "argument_mismatch"
    MALFORMED_ARGUMENTS = "malformed_arguments"
    ARGUMENT_COERCED = "argument_coerced"
    ORDER_INVERTED = "order_inverted"
    PREMATURE_CALL = "premature_call"
    NEED_UNMET = "need_unmet"
    LIMIT_EXCEEDED = "limit_exceeded"
    UNUSABLE_RESULT_USED = "unusable_result_used"
    RESULT_MISHANDLED = "result_mishandled"
    CALL_FAILED = "call_failed"
    RETRY_WASTE = "retry_waste"
    FUTILE_RETRY = "futile_retry"
    LOOP = "loop"
    DUPLICATE_CALL = "duplicate_call"
    AGENT_FAILED = "agent_failed"
    TURN_SUSPECTED = "turn_suspected"
    NOT_EVALUATED = "not_evaluated"


_SEVERITIES = {
    Category.FORBIDDEN_CALL: Severity.VIOLATION,
    Category.REQUIREMENT_UNMET: Severity.VIOLATION,
    Category.APPROVAL_MISSING: Severity.VIOLATION,
    Category.APPROVAL_DENIED: Severity.VIOLATION,
    Category.APPROVAL_EXPIRED: Severity.VIOLATION,
    Category.APPROVAL_REUSED: Severity.VIOLATION,
    Category.APPROVAL_MISMATCH: Severity.VIOLATION,
    Category.UNAUTHORISED_ARGUMENT: Severity.WARNING,
    Category.IDEMPOTENCY_MISSING: Severity.WARNING,
    Category.PERSONAL_DATA: Severity.WARNING,
    Category.POISONED_TOOL: Severity.WARNING,
    Category.INJECTION_SUSPECTED: Severity.WARNING,
    Category.UNGROUNDED_ARGUMENT: Severity.WARNING,
    Category.RETRY_WASTE: Severity.WASTE,
    Category.FUTILE_RETRY: Severity.WASTE,
    Category.LOOP: Severity.WASTE,
    Category.DUPLICATE_CALL: Severity.WASTE,
    Category.ARGUMENT_COERCED: Severity.WARNING,
    Category.NOT_EVALUATED: Severity.WARNING,
}
"""What a category does to its trajectory; all others are failures."""

VIOLATING = frozenset(c for c, severity in _SEVERITIES.items() if severity is Severity.VIOLATION)
"""The categories of broken safety rules."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong at one span, with the evidence a person needs to agree.

    ``call_index`` is None when the span
    is not a tool call (a missing call is tied to the model turn, else the root, that should have
    made it). ``repaired`` findings were put right later in the same trajectory and fail nothing.
    ``rank`` orders the evidence of a failed trajectory, 1 is the root cause;
    ``caused_by`` is the span whose fault led to this one, as far as values show it. ``grade`` says how
    strong the evidence is: ``proof`` or ``suspect``. ``code`` names a mistake within a category that
    has a name of its own (``display_id_used``).
    """

    category: Category
    span_id: str
    message: str
    severity: Severity = Severity.FAILURE
    call_index: int | None = None
    at_ns: int = 0
    grade: str = "proof"
    key_path: str | None = None
    expected: Json = None
    actual: Json = None
    comparator: str | None = None
    repaired: bool = False
    root_cause: bool = False
    rank: int | None = None
    confidence: float | None = None
    code: str | None = None
    caused_by: str | None = None
    source_kind: str | None = None
    """Whose words the evidence is: ``mail``, ``web_page``, ``ticket``, ``file``, ``tool_description``."""

    @classmethod
    def at_call(cls, place: Placed, category: Category, message: str, **more: Any) -> "Finding":
        """A finding at the span of a tool call; ``more`` are further fields."""
        return cls(
            category,
            place.call.span_id,
            message,
            **{
                "severity": _SEVERITIES.get(category, Severity.FAILURE),
                "call_index": place.index,
                "at_ns": place.call.start_ns,
                **more,
            },
        )

    @property
    def fails(self) -> bool:
        """Whether this finding, by itself, fails its trajectory."""
        return self.severity in (Severity.VIOLATION, Severity.FAILURE) and not self.repaired


class ForbiddenState(StrEnum):
    """What became of a forbidden call. Only ``blocked`` is proven harmless."""

    EXECUTED = "executed"
    BLOCKED = "blocked"
    UNKNOWN = "unknown"


class Handled(StrEnum):
    """How the agent went on after a result that it could not use, or that a case speaks of."""

    WELL = "well"
    BADLY = "badly"


UNDECIDED = "undecided"
"""Of a call that may be forbidden, or handled badly: nothing shows whether it is."""


@dataclass(frozen=True, slots=True)
class Share:
    """A count over a count, before it becomes a rate; addable, so that parts sum to the whole.

    ``unseen`` counts what could not be evaluated and is in neither of the two. ``squares`` is the
    sum of the squared weights in ``of`` (None: every weight is 1), which says how much evidence
    weighted counts really are.
    """

    hits: float = 0.0
    of: float = 0.0
    unseen: float = 0.0
    squares: float | None = None

    def __add__(self, other: "Share") -> "Share":
        """Sum of two disjoint parts."""
        squares = None
        if self.squares is not None or other.squares is not None:
            squares = self._squares + other._squares
        return Share(
            self.hits + other.hits, self.of + other.of, self.unseen + other.unseen, squares
        )

    def times(self, weight: float | None) -> "Share":
        """The share of that many units like this one; None: nobody knows how many, all unseen."""
        if weight is None:
            return Share(unseen=self.of + self.unseen)
        if weight == 1.0:
            return self
        squares = self._squares * weight * weight
        return Share(self.hits * weight, self.of * weight, self.unseen * weight, squares)

    @property
    def _squares(self) -> float:
        return self.of if self.squares is None else self.squares

    @property
    def value(self) -> float | None:
        """Hits / of; None where nothing was evaluable."""
        return self.hits / self.of if self.of else None

    @property
    def effective(self) -> float:
        """How many unweighted units carry as much evidence (Kish, "Survey Sampling", 1965)."""
        return self.of if self.squares is None else self.of * self.of / self.squares


@dataclass(frozen=True, slots=True)
class Part:
    """What one call adds to a rate; ``call_index`` None is a call that was never made."""

    rate: str
    share: Share
    tool: str
    call_index: int | None


@dataclass(frozen=True, slots=True)
class Measured:
    """How near an argument is to what is expected: ``score`` from 0 to 1, by ``method``."""

    key_path: str
    comparator: str
    score: float
    method: str


_WRONG_NEED = {"need_precision": "fp", "need_recall": "fn"}


@dataclass(frozen=True, slots=True)
class CaseScores:
    """One trajectory against one case: counts, from which every sub-metric follows.

    ``pairs`` matched expected and actual calls; ``missing`` required calls without a pair;
    ``extra`` actual calls without one; ``arguments`` pairs wholly right over pairs with captured
    arguments; ``keys`` the same over single keys (mean key score); ``order`` constraints satisfied.
    ``raw_calls`` are the actual calls with every retry counted; ``wholly_right`` the pairs of which
    nothing is wrong (None where that is not known); ``way`` names the alternative that was taken;
    ``confused`` are the tools expected and called in their place; ``parts`` are what each call adds.
    ``needs`` are the decisions whether to call a tool, as cells of a confusion matrix: one, or one
    for each user turn that the case tells apart; ``unknown`` where nothing shows which it is, None
    where the case leaves it to the agent. ``measured``
    are, by the index of the call, the arguments that were compared by how near they are.
    """

    pairs: int
    missing: int
    extra: int
    arguments: Share
    arguments_first_attempt: Share
    keys: Share
    order: Share
    arguments_high_risk: Share = Share()
    raw_calls: int = 0
    wholly_right: int | None = None
    way: str | None = None
    confused: tuple[tuple[str, str], ...] = ()
    parts: tuple[Part, ...] = ()
    needs: tuple[str | None, ...] = ()
    measured: tuple[tuple[int, Measured], ...] = ()

    @property
    def need_shares(self) -> dict[str, Share]:
        """Need precision and recall: of what was called, and of what was needed, how much was both."""
        unknown, right = self.needs.count("unknown"), self.needs.count("tp")
        counts = {name: self.needs.count(cell) for name, cell in _WRONG_NEED.items()}
        return {
            name: Share(right, right + wrong, unknown)
            for name, wrong in counts.items()
            if right or wrong or unknown
        }

    @property
    def selection_share(self) -> Share:
        """Pairs over pairs, missing and extra."""
        return Share(self.pairs, self.pairs + self.missing + self.extra)

    @property
    def selection(self) -> float | None:
        """The selection accuracy; None when nothing was expected and nothing called."""
        return self.selection_share.value

    @property
    def selection_precision(self) -> float | None:
        """Pairs over actual calls, retries collapsed into the call they repeat."""
        actual = self.pairs + self.extra
        return self.pairs / actual if actual else None

    @property
    def selection_precision_raw(self) -> float | None:
        """Pairs over actual calls, each retry a call of its own."""
        return self.pairs / self.raw_calls if self.raw_calls else None

    @property
    def call_f1(self) -> float | None:
        """Harmonic mean of precision and recall of calls that are right with their arguments."""
        both = 2 * self.pairs + self.missing + self.extra
        return None if self.wholly_right is None or not both else 2 * self.wholly_right / both

    @property
    def selection_recall(self) -> float | None:
        """Pairs over required calls."""
        required = self.pairs + self.missing
        return self.pairs / required if required else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one trajectory. ``passed`` is None when it is not evaluable, and why."""

    passed: bool | None
    reason: str | None
    scores: CaseScores | None
    result_handling: float | None
    safety: float | None
    need: str | None
    forbidden_attempted: int
    forbidden_executed: int
    retries: int
    retry_waste: int
    root_cause_span_id: str | None
    root_cause_category: Category | None
    confidence: float | None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What a case needs to pass; the defaults are strict but for a rounding."""

    min_selection: float = 1.0
    min_arguments: float = 0.98
    min_order: float = 1.0
