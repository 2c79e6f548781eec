"""A tool call that a framework makes for a model, as an attempt.

The order is that of every attempt. What is added is the framework's: the id of the call, its own
validation, its own approvals and its own way to pause.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn

from toolverdict.instrument import approvals, settings
from toolverdict.instrument.approvals import Approval, ApprovalRequest, Approver
from toolverdict.instrument.arguments import Arguments
from toolverdict.instrument.attempts import Attempt
from toolverdict.instrument.call_ids import tool_call
from toolverdict.instrument.decisions import Call, Decision, Effect
from toolverdict.instrument.errors import ApprovalRequired, ToolDenied, ToolverdictError
from toolverdict.instrument.ongoing import settled
from toolverdict.instrument.tools import ToolSpec
from toolverdict.instrument.trajectories import current_trajectory

_UNREADABLE: Final = (None,)
"""Stands for arguments that do not fit: a model gives its arguments by name."""

Grant = Callable[[ApprovalRequest], Approval | None]
"""What the framework's own approval says about a request; None when it says nothing yet."""

Ask = Callable[[ApprovalRequest], Awaitable[Approval | None]]
"""Asks the framework's user, and waits for the answer; None when there is none."""


class ModelCall(Attempt):
    """One call that a model asked for.

    Args:
        spec: The tool.
        arguments: What the model gave by name; None when it cannot be read as that.
        call_id: The id in the model's request; None when the framework does not tell.
        grant: What the framework's own approval says. Where it says nothing, the approver that is
            configured is asked.
        pause: Asked when the approver has no answer either; it may answer, or raise to pause, and
            what it raises goes on to the framework.
        ask: Asked before that, where the tool is awaited.
        wraps: Exceptions that a framework puts around the tool's own, which is their cause.
    """

    def __init__(
        self,
        spec: ToolSpec,
        arguments: Arguments | None,
        call_id: str | None,
        grant: Grant | None = None,
        pause: Grant | None = None,
        ask: Ask | None = None,
        wraps: tuple[type[BaseException], ...] = (),
    ) -> None:
        with tool_call(call_id):
            super().__init__(spec, () if arguments is not None else _UNREADABLE, arguments or {})
        self.arguments = arguments
        """What the model gave."""
        self._stopped: Exception | None = None
        self._wraps = wraps
        self._bridge = _Bridge(approval_id(self.call_id), grant, self.approver, pause, ask)
        self.approver = self._bridge

    def run(self, body: Callable[[], Any]) -> Any:
        """Run the tool if it may be run, and give on what it returns or raises."""
        with self:
            self.allow()
            if self.replay is not None:
                return self.replayed()
            with self.step():
                result = body()
            return settled(result, self)

    async def run_async(self, body: Callable[[], Awaitable[Any]]) -> Any:
        """The same for a tool that is awaited."""
        with self:
            await self.allow_async()
            if self.replay is not None:
                return self.replayed()
            with self.step():
                result = await body()
            return settled(result, self)

    def allow(self) -> None:
        """Let the body run, or raise; the answer stays the same when asked again."""
        if self._answered():
            return
        try:
            self.admit()
        except Exception as error:
            paused = self._kept_from(error)
            if paused is None:
                raise
            raise paused from None

    async def allow_async(self) -> None:
        """The same, waiting for an approver that takes its time."""
        if self._answered():
            return
        try:
            await self.admit_async()
        except Exception as error:
            paused = self._kept_from(error)
            if paused is None:
                raise
            raise paused from None

    def stopped_by(self, error: BaseException) -> bool:
        """Whether it was one of ours that kept the body from running, and no error of the body."""
        return error is self._stopped and isinstance(error, ToolverdictError)

    def reject(self, error: Exception) -> NoReturn:
        """Leave a span for arguments that the framework's validation turned down, and raise that.

        What the model gave is hashed and, if that was asked for, recorded; nothing is run.
        """
        with self:
            self.turned_down(((), self.arguments) if self.arguments is not None else None)
            raise error

    def finish(self, error: BaseException | None = None) -> None:
        """Name the outcome by what the tool raised, and end the span."""
        wrapped = isinstance(error, self._wraps) and error.__cause__ is not None
        super().finish(error.__cause__ if wrapped and error is not None else error)

    def _kept_from(self, error: Exception) -> BaseException | None:
        """Note what keeps the body from running; the framework's own pause, if it raised that."""
        if isinstance(error, ApprovalRequired) and self._bridge.raised is not None:
            self.finish(error)
            return self._bridge.raised
        self._stopped = error
        return None

    def _answered(self) -> bool:
        if self._stopped is not None:
            raise self._stopped
        return self.executed or self.replay is not None


def approval_id(call_id: str) -> str:
    """The id of the approval of a call: the same one before and after the run was paused."""
    return f"appr_{call_id}"


def granted(request: ApprovalRequest, approver: str | None = None) -> Approval:
    """A framework's yes to the call that a request is about."""
    return Approval(approval_id(request.call_id), "approved", approver, request.args_hash)


def rejected(request: ApprovalRequest, approver: str | None = None) -> Approval:
    """A framework's no to the call that a request is about."""
    return Approval(approval_id(request.call_id), "rejected", approver, request.args_hash)


def asks_for_approval(spec: ToolSpec) -> bool:
    """Whether the policy would ask for an approval now; for frameworks that pause beforehand.

    It leaves no trace. A policy that cannot be asked denies, which the attempt finds out.
    """
    policy, trajectory = settings.current().policy, current_trajectory()
    if policy is None:
        return False
    call = Call(
        tool=spec.name,
        labels=frozenset(spec.labels),
        agent=trajectory.agent if trajectory else None,
        succeeded=trajectory.succeeded if trajectory else frozenset(),
    )
    try:
        decision = policy.decide(call)
    except Exception:  # noqa: BLE001 - the attempt asks again, and denies
        return False
    if not isinstance(decision, Decision):
        return False
    # Not all is known here that the policy looks at: then it might.
    return decision.effect is Effect.REQUIRE_APPROVAL or decision.unknown


def refusal(error: BaseException) -> str:
    """What a model is told about a call that did not run."""
    again = "; do not repeat this call" if isinstance(error, ToolDenied) else ""
    return f"{error}{again}"


class _Bridge:
    """Asks, in this order, the framework's state, the configured approver, a user, and a pause.

    Args:
        known_as: The id of the approval, the same whoever gives it in the end.
        grant: What the framework's state says.
        configured: The approver of the settings.
        pause: Pauses the run.
        ask: Asks the framework's user.
    """

    def __init__(
        self,
        known_as: str,
        grant: Grant | None,
        configured: Approver | None,
        pause: Grant | None,
        ask: Ask | None,
    ) -> None:
        self.raised: BaseException | None = None
        """What ``pause`` raised; approvers are not to raise, and this is no failure of one."""
        self._known_as = known_as
        self._grant = grant
        self._configured = configured
        self._pause = pause
        self._ask = ask

    def __call__(self, request: ApprovalRequest) -> Approval | None:
        """Answer a tool that is not awaited."""
        said = self._grant(request) if self._grant is not None else None
        if said is not None:
            return said
        answer = approvals.ask(self._configured, request)
        return answer if answer.status in _DECIDED else self._last(request, answer.failure)

    async def ask_async(self, request: ApprovalRequest) -> Approval | None:
        """Answer one that is."""
        said = self._grant(request) if self._grant is not None else None
        if said is not None:
            return said
        answer = await approvals.ask_async(self._configured, request)
        if answer.status in _DECIDED:
            return answer
        said = await self._ask(request) if self._ask is not None else None
        return said if said is not None else self._last(request, answer.failure)

    def _last(self, request: ApprovalRequest, failure: str | None) -> Approval:
        said = None
        if self._pause is not None:
            try:
                said = self._pause(request)
            except Exception as pause:  # noqa: BLE001 - it goes on to the framework
                self.raised = pause
        if said is not None:
            return said
        return Approval(self._known_as, "requested", failure=failure)


_DECIDED: Final = ("approved", "rejected")
