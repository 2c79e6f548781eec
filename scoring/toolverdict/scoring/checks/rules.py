"""Approvals and requirements: what the policy asks of a call before it may run.

A refusal that the policy enforced at the time is a finding too: the agent tried.
"""

from collections.abc import Iterator

from toolverdict.scoring.model import Category, Finding, Trajectory
from toolverdict.scoring.policy import Ruling


def rule_findings(trajectory: Trajectory, rulings: list[Ruling]) -> Iterator[Finding]:
    """Calls made without the earlier call they require or without a granted approval."""
    for place, ruling in zip(trajectory.calls, rulings, strict=True):
        tool = place.call.tool
        tried = "was called" if place.call.executed else "was attempted"
        if ruling.requirement_unmet:
            rules = ", ".join(ruling.rule_ids)
            why = f" (rule {rules})" if rules else ""
            message = f"{tool} {tried} before the call it requires had succeeded{why}"
            yield Finding.at_call(place, Category.REQUIREMENT_UNMET, message)
        if ruling.approval_missing:
            status = place.call.approval_status
            got = f"its approval is {status}" if status else "there is no approval"
            message = f"{tool} {tried} though {got}"
            yield Finding.at_call(place, Category.APPROVAL_MISSING, message)
