"""Witness every tool call of an agent as an OpenTelemetry span, and decide before it runs.

Importing this package imports the OpenTelemetry API and nothing heavier; ``configure`` brings the
SDK, a policy brings pydantic and YAML. Tests of instrumented code use
``toolverdict.instrument.testing``.
"""

from toolverdict.instrument.approvals import Approval, ApprovalRequest
from toolverdict.instrument.call_ids import tool_call
from toolverdict.instrument.configuration import Telemetry, configure
from toolverdict.instrument.decorators import tool
from toolverdict.instrument.errors import (
    ApprovalRequired,
    ConfigurationError,
    InvalidArguments,
    PermissionDenied,
    PolicyError,
    RateLimited,
    Refused,
    ToolDenied,
    ToolError,
    ToolTimeout,
    ToolverdictError,
    Unhashable,
    UpstreamError,
)
from toolverdict.instrument.outcomes import Outcome
from toolverdict.instrument.trajectories import Trajectory, trajectory

__all__ = [
    "Approval",
    "ApprovalRequest",
    "ApprovalRequired",
    "ConfigurationError",
    "InvalidArguments",
    "Outcome",
    "PermissionDenied",
    "PolicyError",
    "RateLimited",
    "Refused",
    "Telemetry",
    "ToolDenied",
    "ToolError",
    "ToolTimeout",
    "ToolverdictError",
    "Trajectory",
    "Unhashable",
    "UpstreamError",
    "configure",
    "tool",
    "tool_call",
    "trajectory",
]
