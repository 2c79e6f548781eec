"""Which span a failed trajectory is to be blamed on, out of all the evidence.

The root cause is the earliest evidence that was not put right later; at one span the category
that says most about why comes first (a commanded call before a forbidden one before an unexpected
one). A missing call counts from when it was due, and comes last where a rule was broken: then the
call that broke it is the decisive step, and what was left out before it is its explanation.
"""

from collections.abc import Sequence
from dataclasses import replace

from toolverdict.scoring.model import Category, Finding, Severity

# From what says most about why to what says least.
_TELLING_FIRST = {
    category: rank
    for rank, category in enumerate(
        (
            Category.INJECTION_SUSPECTED,
            Category.FORBIDDEN_CALL,
            Category.REQUIREMENT_UNMET,
            Category.APPROVAL_MISSING,
            Category.UNUSABLE_RESULT_USED,
            Category.RESULT_MISHANDLED,
            Category.WRONG_TOOL,
            Category.MISSING_CALL,
            Category.NEED_UNMET,
            Category.MALFORMED_ARGUMENTS,
            Category.ARGUMENT_MISMATCH,
            Category.ORDER_INVERTED,
            Category.PREMATURE_CALL,
            Category.CALL_FAILED,
            Category.EXTRA_CALL,
            Category.LIMIT_EXCEEDED,
            Category.ARGUMENT_COERCED,
            Category.RETRY_WASTE,
            Category.AGENT_FAILED,
            Category.NOT_EVALUATED,
        )
    )
}


def attribute(findings: Sequence[Finding]) -> list[Finding]:
    """The findings of a failed trajectory with rank, root cause and confidence filled in.

    Confidence is one over the number of spans that carry unrepaired evidence: 1.0 when all of it
    points to one span.
    """
    failing = [finding for finding in findings if finding.fails]
    blamed = {finding.span_id for finding in failing}
    evidence = [f for f in findings if f.fails or _explains(f, blamed)]
    broken = any(f.severity is Severity.VIOLATION for f in failing)

    def place(finding: Finding) -> tuple[bool, int, int, str]:
        left_out = broken and finding.category is Category.MISSING_CALL
        return left_out, finding.at_ns, _TELLING_FIRST[finding.category], finding.span_id

    ranked = sorted(evidence, key=place)
    ranks = {id(finding): rank for rank, finding in enumerate(ranked, start=1)}
    confidence = 1.0 / len(blamed) if blamed else None
    return [
        replace(f, rank=ranks[id(f)], root_cause=ranks[id(f)] == 1, confidence=confidence)
        if id(f) in ranks
        else f
        for f in findings
    ]


def _explains(finding: Finding, blamed: set[str]) -> bool:
    """A warning is evidence only where something did fail at the same span."""
    return finding.severity is Severity.WARNING and finding.span_id in blamed
