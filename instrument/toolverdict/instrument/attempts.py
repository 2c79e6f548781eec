"""One attempted tool call, from its arguments to its spans.

The way is always the same: bind, freeze, hash, decide, approve, (body,) outcome, span. Up to the
body every doubt stops a call that could do harm; from the body on nothing of ours may touch it.

The attempt is the span ``tool.call NAME``, which holds everything. Inside of it stands the span
``execute_tool NAME`` if, and for as long as, the body ran, so that the structure alone says whether
it did; what the body does is inside of that. It names the call and says nothing else, least of all
``gen_ai.operation.name``: whoever counts tool calls by that finds one.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from opentelemetry import trace
from opentelemetry.trace import Span

from toolverdict.instrument import (
    approvals,
    capture,
    guard,
    overrides,
    plain,
    provenance,
    redaction,
    semconv,
    settings,
    spans,
)
from toolverdict.instrument.approvals import Approval, ApprovalRequest
from toolverdict.instrument.arguments import Arguments, freeze
from toolverdict.instrument.call_ids import current_call_id, without_call_id
from toolverdict.instrument.canonical import CANON, canonicalise
from toolverdict.instrument.decisions import (
    NO_POLICY,
    Call,
    Decider,
    Decision,
    Earlier,
    Effect,
    Mode,
    ReasonCode,
)
from toolverdict.instrument.errors import ApprovalRequired, InvalidArguments, ToolDenied, Unhashable
from toolverdict.instrument.hashing import args_hash, idempotency_key_hash
from toolverdict.instrument.outcomes import Outcome, outcome_of_exception, outcome_of_result
from toolverdict.instrument.tools import Coerce, Given, ToolSpec
from toolverdict.instrument.trajectories import current_trajectory

if TYPE_CHECKING:
    from toolverdict.instrument.on_record import OnRecord
    from toolverdict.instrument.stores.idempotency import Replay


class Attempt:
    """One attempt to call a tool; a context manager around everything that the attempt does.

    Args:
        spec: The tool.
        args: The positional arguments of the call.
        kwargs: The keyword arguments of the call.
    """

    def __init__(self, spec: ToolSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.items: int | None = None
        """How many items a generator tool has yielded; None for other tools."""
        self.goes_on = False
        """Whether the tool goes on after it has returned; ``finish`` ends the attempt then."""
        self.taken_up = False
        """Whether what goes on was awaited or iterated at least once."""
        self.replay: Replay | None = None
        """What an earlier call with the same key gave; the body does not run again."""
        self._spec = spec
        self._args = args
        self._kwargs = kwargs
        self._settings = settings.current()
        self._trajectory = current_trajectory()
        self._call_id = current_call_id()
        self._span = spans.start_clean(spec.span_name, spec.attributes)
        self._context = without_call_id(trace.set_span_in_context(self._span))
        self._body: Span | None = None
        self._attributes: dict[str, str | bool | int | tuple[str, ...]] = {}
        self._args_hash: str | None = None
        self._executed = False
        self._outcome: Outcome | None = None
        self._finished = False
        self._let_through: Earlier | None = None
        self._on_record: OnRecord | None = None

    def step(self) -> spans.Attached:
        """Make the innermost span current for a piece of work that does not yield.

        That is the body's once the call is admitted, and the attempt's before.
        """
        return spans.Attached(self._context)

    def admit(self) -> Given:
        """Let the body run, or raise.

        Returns:
            The arguments that it shall run with, unless ``replay`` says what to give back instead.

        Raises:
            TypeError: The arguments do not fit the tool.
            InvalidArguments: They cannot be made what its annotations say.
            ToolDenied: The policy or the approver said no.
            ApprovalRequired: Nobody has said yes yet.
            IdempotencyError: An earlier call with its key stands in the way.
            AuditFailed: It cannot be put on record, and could do harm.
        """
        request = self._consider()
        if self._was_made_before():
            return self._args, self._kwargs
        if request is not None:
            with self.step():
                answer = approvals.ask(self._settings.approver, request)
            self._take(answer, request)
        if self._on_record is not None:
            self.replay = self._on_record.begin()
        return self._admitted()

    async def admit_async(self) -> Given:
        """The same, waiting for an approver that takes its time."""
        request = self._consider()
        if self._was_made_before():
            return self._args, self._kwargs
        if request is not None:
            with self.step():
                answer = await approvals.ask_async(self._settings.approver, request)
            self._take(answer, request)
        if self._on_record is not None:
            self.replay = await self._on_record.begin_async()
        return self._admitted()

    def _was_made_before(self) -> bool:
        """Whether the call was made already and is answered from the record; nobody is asked."""
        if self._settings.idempotency is None and self._settings.audit is None:
            return False
        from toolverdict.instrument.on_record import OnRecord

        self._on_record = OnRecord(self._settings, self._spec, self._attributes)
        self.replay = self._on_record.look()
        return self.replay is not None

    def _admitted(self) -> Given:
        if self.replay is not None:
            return self._args, self._kwargs
        self._executed = True
        given = self._args, self._kwargs
        if self._spec.binder.receiver is not None:
            self._context = overrides.running(self._context, self._spec, *given)
        # The attempt may last for long, and shall not keep alive what was given to the tool.
        self._args, self._kwargs = (), {}
        if not self._span.is_recording():
            return given
        spec = self._spec
        attributes = {
            semconv.GEN_AI_TOOL_NAME: spec.attributes[semconv.GEN_AI_TOOL_NAME],
            semconv.GEN_AI_TOOL_CALL_ID: spans.clean(self._call_id),
        }
        body = spans.start_clean(spec.body_span_name, attributes, self._context)
        if body is not trace.INVALID_SPAN:
            self._body = body
            self._context = trace.set_span_in_context(body, self._context)
        return given

    def _body_ended(self) -> None:
        if self._body is not None:
            body, self._body = self._body, None
            spans.end(body)

    def returned(self, result: object) -> None:
        """Take note of what the tool returned."""
        if self._finished:
            return
        self._body_ended()
        outcome = self._judged(result)
        self._outcome = outcome
        if self._spec.untrusted:
            self._note_atoms(semconv.TAINT_RESULT_ATOMS, result)
        if self._on_record is not None:
            self._on_record.returned(result, outcome)
        if outcome.failed:
            spans.note_failure(self._span, semconv.ERROR_TYPE_IN_BAND, outcome)
        self._capture(semconv.GEN_AI_TOOL_CALL_RESULT, semconv.TOOL_RESULT_TRUNCATED, result)

    def replayed(self) -> Any:
        """Take note that the call was answered from the record, and give the answer on."""
        assert self.replay is not None
        failed = self.replay.state != "succeeded"
        self._outcome = Outcome.ERROR if failed else self._judged(self.replay.result)
        return self.replay.result

    def exhausted(self, value: object) -> None:
        """Take note that a generator tool ended, and of the value that it returned."""
        if self._on_record is not None:
            self._on_record.exhausted()
        if value is None and self.items:
            self._outcome = Outcome.OK
        else:
            self.returned(value)

    def __enter__(self) -> Self:
        """The span is started already; nothing else is needed."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the attempt, unless the tool goes on; an exception goes on as it is."""
        if error is None and self.goes_on:
            return
        with suppress(RecursionError):  # where the body just fitted, ours may not
            self.finish(error)

    def abandon(self) -> None:
        """End the attempt because nobody will take it any further, if it has not ended."""
        self.finish(GeneratorExit() if self.taken_up else None)

    def finish(self, error: BaseException | None = None) -> None:
        """Name the outcome and end the span; does nothing the second time."""
        if self._finished:
            return
        self._finished = True
        self._body_ended()
        if isinstance(error, GeneratorExit):
            # The consumer has had enough: nothing failed.
            self._outcome = Outcome.CANCELLED
        elif error is not None:
            self._outcome = outcome = self._outcome_of(error)
            spans.note_exception(self._span, error, outcome)
        outcome = self._outcome or Outcome.UNKNOWN
        if self._on_record is not None:
            self._on_record.ended(error, outcome)
            if self._on_record.status is not None:
                self._attributes[semconv.IDEMPOTENCY_STATUS] = self._on_record.status
        self._attributes[semconv.TOOL_OUTCOME] = outcome.value
        self._attributes[semconv.TOOL_EXECUTED] = self._executed
        if self.items is not None:
            self._attributes[semconv.TOOL_ITEMS] = self.items
        if self._span.is_recording():
            self._put()
        spans.end(self._span)
        if self._trajectory is not None:
            if outcome is Outcome.OK:
                self._trajectory.note_success(self._spec.name)
            if self._let_through is not None and not self._executed:
                self._trajectory.history.take_back(self._let_through)

    def _consider(self) -> ApprovalRequest | None:
        """Everything up to the body; an approval request if that is still to be asked."""
        spec = self._spec
        if spec.coerce is not None:
            self._coerce(spec.coerce)
        if self._settings.policy is None and not spec.dangerous and not self._span.is_recording():
            # Nobody will see the call and nobody decides about it: stay out of its way.
            return None
        try:
            bound = spec.binder.bind(self._args, self._kwargs)
        except TypeError as error:
            self._outcome = Outcome.INVALID_ARGUMENTS
            self._note_decision(self._decide(None, has_key=None))
            raise spec.binder.does_not_fit(error, self._args, self._kwargs) from None
        arguments, unhashable = self._hash(bound)
        self._capture(
            semconv.GEN_AI_TOOL_CALL_ARGUMENTS, semconv.TOOL_ARGUMENTS_TRUNCATED, arguments
        )
        if spec.dangerous:
            self._note_atoms(semconv.TAINT_ARGUMENT_ATOMS, arguments)
        key_is_well = self._note_idempotency_key(arguments)
        has_key = key_is_well and semconv.IDEMPOTENCY_KEY_HASH in self._attributes
        decision = self._decide(arguments, has_key=has_key)
        if unhashable is not None and self._needs_certainty(decision):
            reason = f"the arguments have no canonical form ({unhashable})"
            decision = _denied(decision, ReasonCode.ARGS_UNHASHABLE, reason)
        if not key_is_well and self._needs_certainty(decision):
            reason = "the idempotency key cannot be computed"
            decision = _denied(decision, ReasonCode.IDEMPOTENCY_KEY_ERROR, reason)
        self._note_decision(decision)
        if decision.effect is Effect.ALLOW or not decision.enforced:
            return None
        if decision.effect is Effect.REQUIRE_APPROVAL:
            return self._request(arguments, decision)
        raise ToolDenied(spec.name, decision.reason_code, decision.rule_ids, decision.reason)

    def _coerce(self, coerce: Coerce) -> None:
        try:
            self._args, self._kwargs = coerce(self._args, self._kwargs)
        except InvalidArguments:
            self._outcome = Outcome.INVALID_ARGUMENTS
            arguments, _ = self._hash(self._spec.binder.bind(self._args, self._kwargs))
            self._capture(
                semconv.GEN_AI_TOOL_CALL_ARGUMENTS, semconv.TOOL_ARGUMENTS_TRUNCATED, arguments
            )
            self._note_decision(self._decide(arguments, has_key=None))
            raise

    def _hash(self, bound: dict[str, object]) -> tuple[Arguments, Unhashable | None]:
        """The snapshot of the arguments, and why it has no hash if it has none."""
        note = self._attributes
        try:
            made = plain.snapshot(bound)
            if made is not None:
                arguments: Arguments = MappingProxyType(made[0])
                canon = made[1]
            else:
                arguments = freeze(bound)
                canon = canonicalise(arguments)
            key = settings.hash_key(self._settings)
            self._args_hash = args_hash(key, self._spec.name, canon)
        except Exception as error:  # noqa: BLE001 - whatever it is, there is no hash
            unhashable = error if isinstance(error, Unhashable) else Unhashable("failed")
            note[semconv.TOOL_ARGS_HASH_ERROR] = unhashable.reason
            if unhashable is not error:
                guard.fault("argument hash", error)
            return MappingProxyType(dict(bound)), unhashable
        note[semconv.TOOL_ARGS_HASH] = self._args_hash
        note[semconv.TOOL_ARGS_HASH_KEY_ID] = key.id
        note[semconv.TOOL_ARGS_HASH_CANON] = CANON
        return arguments, None

    def _decide(self, arguments: Arguments | None, *, has_key: bool | None) -> Decision:
        """Ask the policy; one that lets the call through counts it for the next."""
        policy, trajectory = self._settings.policy, self._trajectory
        if policy is None:
            return NO_POLICY
        if trajectory is None:
            return self._ask(policy, Call(**self._asked(arguments, has_key)))
        history, at_s = trajectory.history, time.monotonic()
        with history.lock:
            call = Call(
                **self._asked(arguments, has_key),
                agent=trajectory.agent,
                succeeded=trajectory.succeeded,
                session=trajectory.session,
                earlier=history.let_through,
                at_s=at_s,
            )
            decision = self._ask(policy, call)
            if decision.effect is not Effect.DENY or not decision.enforced:
                self._let_through = Earlier(self._spec.name, decision.labels or call.labels, at_s)
                history.let_through.append(self._let_through)
        return decision

    def _asked(self, arguments: Arguments | None, has_key: bool | None) -> dict[str, Any]:
        """What a policy is asked about a call, whatever trajectory it is in."""
        return {
            "tool": self._spec.name,
            "labels": frozenset(self._spec.labels),
            "arguments": arguments,
            "idempotency_key": has_key,
            "schema_version": self._spec.schema_version,
        }

    def _ask(self, policy: Decider, call: Call) -> Decision:
        """Ask the policy; a policy that cannot be asked denies."""
        try:
            decision = policy.decide(call)
            if not isinstance(decision, Decision):
                raise TypeError("a policy decides with a Decision")
            self._attributes[semconv.POLICY_ID] = policy.id
            self._attributes[semconv.POLICY_DIGEST] = policy.digest
        except Exception as error:  # noqa: BLE001 - a policy that cannot be asked allows nothing
            guard.note("policy", "the policy failed (%s); calls are denied", type(error).__name__)
            reason = f"the policy could not be asked ({type(error).__name__})"
            mode: Mode = "shadow" if getattr(policy, "mode", None) == "shadow" else "enforce"
            return Decision(Effect.DENY, (), ReasonCode.POLICY_ERROR, reason, mode)
        return decision

    def _needs_certainty(self, decision: Decision) -> bool:
        """Whether the call must not run unless everything about it is known."""
        if decision.effect is Effect.DENY:
            return False
        dangerous = self._spec.dangerous or decision.dangerous
        return dangerous or decision.effect is Effect.REQUIRE_APPROVAL

    def _note_idempotency_key(self, arguments: Arguments) -> bool:
        """Record the hash of the idempotency key; whether all is well with it."""
        make_key = self._spec.idempotency_key
        if make_key is None:
            return True
        try:
            # A copy: what the approver is shown is not for the callable to change.
            shown = freeze(arguments) if self._args_hash is not None else arguments
            with self.step():
                made = make_key(shown)
            if made is None:
                return True
            secret = settings.hash_key(self._settings)
            key = idempotency_key_hash(secret, self._spec.name, canonicalise(made))
        except Exception as error:  # noqa: BLE001 - the callable is the tool author's
            guard.note(
                "idempotency key",
                "the idempotency key of tool %s cannot be computed (%s)",
                self._spec.name,
                type(error).__name__,
            )
            return False
        self._attributes[semconv.IDEMPOTENCY_KEY_HASH] = key
        return True

    def _note_decision(self, decision: Decision) -> None:
        note = self._attributes
        note[semconv.POLICY_DECISION] = decision.effect.value
        note[semconv.POLICY_REASON_CODE] = decision.reason_code.value
        if decision.rule_ids:
            note[semconv.POLICY_RULE_IDS] = decision.rule_ids
        if not decision.enforced:
            note[semconv.POLICY_MODE], note[semconv.POLICY_ENFORCED] = decision.mode, False
        if decision.labels:
            note[semconv.TOOL_LABELS] = tuple(sorted(decision.labels))

    def _request(self, arguments: Arguments, decision: Decision) -> ApprovalRequest:
        policy, trajectory = self._settings.policy, self._trajectory
        return ApprovalRequest(
            id=approvals.new_approval_id(),
            tool=self._spec.name,
            arguments=arguments,
            args_hash=self._args_hash or "",
            labels=self._spec.labels,
            agent=trajectory.agent if trajectory else None,
            conversation_id=trajectory.conversation_id if trajectory else None,
            call_id=self._call_id,
            policy_id=policy.id if policy else "",
            policy_digest=policy.digest if policy else "",
            rule_ids=decision.rule_ids,
            reason=decision.reason,
            schema_version=self._spec.schema_version,
            args_hash_key_id=settings.hash_key(self._settings).id,
            approvers=decision.approval.approvers if decision.approval else None,
            ttl_s=decision.approval.ttl_s if decision.approval else None,
        )

    def _take(self, approval: Approval, request: ApprovalRequest) -> None:
        """Go on only with an approval, and only with the arguments that it was given for."""
        if approval.status == "approved" and not approvals.is_for(approval, request):
            self._attributes[semconv.APPROVAL_ID] = request.id
            self._attributes[semconv.APPROVAL_STATUS] = "requested"
            reason = "the approval is for another request; give it this request's id or args_hash"
            self._deny(request, ReasonCode.APPROVAL_MISMATCH, reason)
        self._attributes[semconv.APPROVAL_ID] = approval.id
        self._attributes[semconv.APPROVAL_STATUS] = approval.status
        if approval.status == "rejected":
            raise ToolDenied(
                request.tool, ReasonCode.APPROVAL_REJECTED, request.rule_ids, request.reason
            )
        if approval.status != "approved":
            raise ApprovalRequired(request.tool, approval.id, request.rule_ids, request.reason)
        if request.approvers is not None and approval.approver not in request.approvers:
            reason = "the approval was given by somebody who may not give it"
            self._deny(request, ReasonCode.APPROVAL_MISMATCH, reason)
        if self._hash_again() != request.args_hash:
            reason = "the arguments changed while the approval was asked for"
            self._deny(request, ReasonCode.ARGS_CHANGED, reason)

    def _deny(self, request: ApprovalRequest, code: ReasonCode, reason: str) -> NoReturn:
        self._attributes[semconv.POLICY_REASON_CODE] = code.value
        raise ToolDenied(request.tool, code, request.rule_ids, reason)

    def _hash_again(self) -> str | None:
        try:
            bound = self._spec.binder.bind(self._args, self._kwargs)
            canon = canonicalise(freeze(bound))
            return args_hash(settings.hash_key(self._settings), self._spec.name, canon)
        except Exception:  # noqa: BLE001 - arguments that cannot be hashed now have changed
            return None

    def _judged(self, result: object) -> Outcome:
        """The outcome of a result: what the tool's author says, else what it looks like."""
        hook = self._spec.outcome_hook
        try:
            judged = hook(result) if hook is not None else None
            if isinstance(judged, Outcome):
                return judged
            if judged is not None:
                raise TypeError("an outcome hook returns an Outcome or None")
        except Exception as error:  # noqa: BLE001 - the hook is the tool author's
            guard.note(
                "outcome hook",
                "the outcome hook of tool %s failed (%s)",
                self._spec.name,
                type(error).__name__,
            )
        try:
            return outcome_of_result(result, returns_none=self._spec.returns_none)
        except Exception:  # noqa: BLE001 - a result may raise anything when it is looked at
            return Outcome.OK

    def _outcome_of(self, error: BaseException) -> Outcome:
        if not self._executed and self._outcome is not None:
            return self._outcome
        outcome = outcome_of_exception(error, self._settings.interrupts)
        # A denial that comes out of the body is another tool's.
        return Outcome.ERROR if self._executed and outcome is Outcome.DENIED else outcome

    def _note_atoms(self, attribute: str, value: object) -> None:
        """Record where a value may be recognised again."""
        if not self._span.is_recording():
            return
        try:
            key = settings.hash_key(self._settings)
            self._attributes[attribute], whole = provenance.atom_hashes(key, value)
        except Exception as error:  # noqa: BLE001 - a value may raise anything when it is looked at
            guard.note("atoms", "a value has no atoms (%s)", type(error).__name__)
            return
        self._attributes[semconv.TAINT_ATOMS_KEY_ID] = key.id
        if not whole:
            self._attributes[semconv.TAINT_ATOMS_TRUNCATED] = True

    def _capture(self, attribute: str, truncated: str, value: object) -> None:
        """Record a value if the settings say so; whole, or not at all and flagged."""
        if self._settings.capture == "off" or not self._span.is_recording():
            return
        try:
            self._attributes[attribute] = capture.to_json(
                value,
                self._settings.max_captured_bytes,
                spans.length_limit(self._span),
                redaction.redactor(self._settings),
            )
        except capture.TooLarge:
            self._attributes[truncated] = True
        except Exception as error:  # noqa: BLE001 - a value may raise anything when it is looked at
            guard.note("capture", "a value cannot be captured (%s)", type(error).__name__)

    def _put(self) -> None:
        """Put on the span what was noted."""
        note = self._attributes
        note[semconv.GEN_AI_TOOL_CALL_ID] = self._call_id
        if self._trajectory is not None:
            note[semconv.GEN_AI_CONVERSATION_ID] = self._trajectory.conversation_id
            if self._trajectory.agent is not None:
                note[semconv.GEN_AI_AGENT_NAME] = self._trajectory.agent
        spans.put(self._span, note)


def _denied(decision: Decision, code: ReasonCode, reason: str) -> Decision:
    """A denial of our own in the place of what the policy said; its mode and labels stay."""
    return replace(decision, effect=Effect.DENY, reason_code=code, reason=reason)
