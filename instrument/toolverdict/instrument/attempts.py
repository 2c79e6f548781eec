"""One attempted tool call, from its arguments to its spans.

The way is always the same: bind, freeze, hash, decide, approve, (body,) outcome, span. Up to the
body every doubt stops a call that could do harm; from the body on nothing of ours may touch it.

The attempt is the span ``tool.call NAME``, which holds everything. Inside of it stands the span
``execute_tool NAME`` if, and for as long as, the body ran, so that the structure alone says whether
it did; what the body does is inside of that. It names the call and says nothing else, least of all
``gen_ai.operation.name``: whoever counts tool calls by that finds one.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from opentelemetry import trace
from opentelemetry.trace import Span

from toolverdict.instrument import (
    approvals,
    asking,
    guard,
    overrides,
    recording,
    semconv,
    settings,
    snapshots,
    spans,
)
from toolverdict.instrument.approvals import Approval, ApprovalRequest, Approver
from toolverdict.instrument.arguments import Arguments, freeze
from toolverdict.instrument.call_ids import current_call_id, without_call_id
from toolverdict.instrument.canonical import CANON, canonicalise
from toolverdict.instrument.decisions import Decision, Earlier, Effect, ReasonCode
from toolverdict.instrument.errors import ApprovalRequired, InvalidArguments, ToolDenied, Unhashable
from toolverdict.instrument.hashing import args_hash, idempotency_key_hash
from toolverdict.instrument.outcomes import Outcome, outcome_of_exception, outcome_of_result
from toolverdict.instrument.provenance import Atoms
from toolverdict.instrument.tools import Coerce, Given, ToolSpec
from toolverdict.instrument.trajectories import current_trajectory
from toolverdict.instrument.trust import TrustedInput

if TYPE_CHECKING:
    from toolverdict.instrument.on_record import OnRecord
    from toolverdict.instrument.stores.idempotency import Replay

_LEFT: Final = "__toolverdict_left__"
"""Set on an exception that has left an attempt: what it says is about that attempt's tool."""


class Attempt:
    """One attempt to call a tool; a context manager around everything that the attempt does.

    Args:
        spec: The tool.
        args: The positional arguments of the call.
        kwargs: The keyword arguments of the call.
    """

    # What most attempts never set is said here, once for all of them.
    items: int | None = None
    """How many items a generator tool has yielded; None for other tools."""
    goes_on = False
    """Whether the tool goes on after it has returned; ``finish`` ends the attempt then."""
    taken_up = False
    """Whether what goes on was awaited or iterated at least once."""
    replay: "Replay | None" = None
    """What an earlier call with the same key gave; the body does not run again."""
    _body: Span | None = None
    _args_hash: str | None = None
    _dangerous = False
    _executed = False
    _outcome: Outcome | None = None
    _finished = False
    _counted: Earlier | None = None
    _on_record: "OnRecord | None" = None
    _item_atoms: Atoms | None = None
    _trusted: TrustedInput | None = None

    def __init__(self, spec: ToolSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._spec = spec
        self._args = args
        self._kwargs = kwargs
        self._settings = settings.current()
        self._trajectory = current_trajectory()
        self.call_id = current_call_id()
        """The id of the call, as its spans carry it."""
        self._span = span = spans.start_clean(spec.span_name, spec.attributes)
        self._recording = span.is_recording()
        self._context = without_call_id(trace.set_span_in_context(span))
        self._noted: asking.Noted = {}

    @property
    def executed(self) -> bool:
        """Whether the body was let run."""
        return self._executed

    @property
    def approver(self) -> Approver | None:
        """Answers where the policy asks for approval; whoever is configured, unless set."""
        return self._settings.approver

    @approver.setter
    def approver(self, approver: Approver | None) -> None:
        self._settings = replace(self._settings, approver=approver)

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
        on_record = self._put_on_record()
        if on_record is not None:
            self.replay = on_record.look()  # nobody is asked about a call that was made before
        if request is not None and self.replay is None:
            with self.step():
                answer = approvals.ask(self._settings.approver, request)
            self._take(answer, request)
        if on_record is not None and self.replay is None:
            self.replay = on_record.begin()
            self._check_again(on_record)
        return self._admitted()

    async def admit_async(self) -> Given:
        """The same, waiting for an approver that takes its time."""
        request = self._consider()
        on_record = self._put_on_record()
        if on_record is not None:
            self.replay = await on_record.look_async()
        if request is not None and self.replay is None:
            with self.step():
                answer = await approvals.ask_async(self._settings.approver, request)
            self._take(answer, request)
        if on_record is not None and self.replay is None:
            self.replay = await on_record.begin_async()
            self._check_again(on_record)
        return self._admitted()

    def turned_down(self, given: Given | None) -> None:
        """Take note that the arguments were turned down before anybody was asked about them.

        They are hashed, decided about and, if that was asked for, recorded; the body does not run.

        Args:
            given: The arguments; None when they cannot be bound to the parameters.
        """
        self._outcome = Outcome.INVALID_ARGUMENTS
        arguments: Arguments | None = None
        if given is not None:
            with suppress(TypeError):
                arguments, _ = self._hash(self._spec.binder.bind(*given))
                self._note_arguments(arguments)
        decision = self._decide(arguments, has_key=None)
        asking.note(decision, self._spec, self._noted)

    def body_turned_down(self) -> None:
        """Take note that the arguments were turned down by a validation inside of the body."""
        self._executed = False
        self._body = None  # its span is dropped: nothing ran that it could stand for
        self._outcome = Outcome.INVALID_ARGUMENTS

    def note_item(self, item: object) -> None:
        """Take note of an item that the tool gave; it is counted, and not kept."""
        self.items = (self.items or 0) + 1
        if self._trusted is not None:
            self._trusted.note_result(item)
        if self._spec.untrusted and self._recording:
            if self._item_atoms is None:
                self._item_atoms = Atoms()
            recording.add_atoms(self._item_atoms, item, is_item=True)

    def returned(self, result: object) -> None:
        """Take note of what the tool returned."""
        if self._finished:
            return
        self._body_ended()
        outcome = self._judged(result)
        self._outcome = outcome
        if self._trusted is not None:
            self._trusted.note_result(result)
        if self._spec.untrusted and self._recording:
            if self._item_atoms is not None:
                recording.add_atoms(self._item_atoms, result, is_item=False)
            else:
                attribute = semconv.TAINT_RESULT_ATOMS
                self._noted.update(recording.atoms(attribute, result, self._settings))
        if self._on_record is not None:
            self._on_record.returned(result, outcome)
        if outcome.failed:
            spans.note_failure(self._span, semconv.ERROR_TYPE_IN_BAND, outcome)
        if self._settings.capture != "off":
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
        try:  # noqa: SIM105 - suppress() takes time, and room on the stack, of every call
            self.finish(error)
        except RecursionError:  # where the body just fitted, ours may not
            pass

    def abandon(self) -> None:
        """End the attempt because nobody will take it any further, if it has not ended."""
        self.finish(GeneratorExit() if self.taken_up else None)

    def finish(self, error: BaseException | None = None) -> None:
        """Name the outcome and end the span; does nothing the second time."""
        if self._finished:
            return
        self._finished = True
        self._body_ended()
        if issubclass(type(error), GeneratorExit):
            # The consumer has had enough: nothing failed.
            self._outcome = Outcome.CANCELLED
        elif error is not None:
            self._outcome = outcome = self._outcome_of(error)
            spans.note_exception(self._span, error, outcome)
        outcome = self._outcome or Outcome.UNKNOWN
        foreign = error is not None and _came_from_another(error)
        if self._on_record is not None:
            self._on_record.ended(error, outcome, foreign=foreign)
            if self._on_record.status is not None:
                self._noted[semconv.IDEMPOTENCY_STATUS] = self._on_record.status
        if self._span.is_recording():
            self._put(outcome)
        spans.end(self._span)
        if self._trajectory is not None:
            if outcome is Outcome.OK:
                self._trajectory.note_success(self._spec.name)
            if self._counted is not None and not self._executed:
                self._trajectory.history.take_back(self._counted)

    def _consider(self) -> ApprovalRequest | None:
        """Everything up to the body; an approval request if that is still to be asked."""
        spec = self._spec
        if spec.coerce is not None:
            self._coerce(spec.coerce)
        if not (self._recording or spec.dangerous or _looks_at_calls(self._settings)):
            # Nobody will see the call and nobody decides about it: stay out of its way.
            return None
        try:
            bound = spec.binder.bind(self._args, self._kwargs)
        except TypeError as error:
            self.turned_down(None)
            raise spec.binder.does_not_fit(error, self._args, self._kwargs) from None
        arguments, unhashable = self._hash(bound)
        self._note_arguments(arguments)
        key_is_well = self._note_idempotency_key(arguments)
        has_key = key_is_well and semconv.IDEMPOTENCY_KEY_HASH in self._noted
        decision = self._decide(arguments, has_key=has_key)
        if unhashable is not None and self._needs_certainty(decision):
            reason = f"the arguments have no canonical form ({unhashable})"
            decision = _denied(decision, ReasonCode.ARGS_UNHASHABLE, reason)
        if not key_is_well and self._needs_certainty(decision):
            reason = "the idempotency key cannot be computed"
            decision = _denied(decision, ReasonCode.IDEMPOTENCY_KEY_ERROR, reason)
        asking.note(decision, spec, self._noted)
        self._dangerous = spec.dangerous or decision.dangerous
        if decision.effect is Effect.ALLOW or not decision.enforced:
            return None
        if decision.effect is Effect.REQUIRE_APPROVAL:
            return self._request(arguments, decision)
        raise ToolDenied(spec.name, decision.reason_code, decision.rule_ids, decision.reason)

    def _coerce(self, coerce: Coerce) -> None:
        try:
            self._args, self._kwargs = coerce(self._args, self._kwargs)
        except InvalidArguments:
            self.turned_down((self._args, self._kwargs))
            raise

    def _hash(self, bound: dict[str, object]) -> tuple[Arguments, Unhashable | None]:
        """The snapshot of the arguments, and why it has no hash if it has none."""
        noted = self._noted
        try:
            arguments, canon = snapshots.take(bound)
            key = settings.hash_key(self._settings)
            self._args_hash = args_hash(key, self._spec.name, canon)
        except Exception as error:  # noqa: BLE001 - whatever it is, there is no hash
            unhashable = error if isinstance(error, Unhashable) else Unhashable("failed")
            noted[semconv.TOOL_ARGS_HASH_ERROR] = unhashable.reason
            if unhashable is not error:
                guard.fault("argument hash", error)
            return MappingProxyType(dict(bound)), unhashable
        noted[semconv.TOOL_ARGS_HASH] = self._args_hash
        noted[semconv.TOOL_ARGS_HASH_KEY_ID] = key.id
        noted[semconv.TOOL_ARGS_HASH_CANON] = CANON
        return arguments, None

    def _note_arguments(self, arguments: Arguments) -> None:
        """Record of the arguments what the settings and the labels want recorded."""
        if self._settings.capture != "off":
            self._capture(
                semconv.GEN_AI_TOOL_CALL_ARGUMENTS, semconv.TOOL_ARGUMENTS_TRUNCATED, arguments
            )
        if self._spec.dangerous and self._recording:
            attribute = semconv.TAINT_ARGUMENT_ATOMS
            self._noted.update(recording.atoms(attribute, arguments, self._settings))

    def _capture(self, attribute: str, truncated: str, value: object) -> None:
        self._noted.update(
            recording.content(attribute, truncated, value, self._settings, self._span)
        )

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
        self._noted[semconv.IDEMPOTENCY_KEY_HASH] = key
        if self._settings.idempotency is None and self._spec.dangerous:
            guard.note_once(
                "idempotency",
                "tool %s has an idempotency key, and no store remembers it, so a repeated call runs"
                " again; set configure(idempotency=...)",
                self._spec.name,
            )
        return True

    def _decide(self, arguments: Arguments | None, *, has_key: bool | None) -> Decision:
        decision, self._counted = asking.ask(
            self._settings.policy,
            self._spec,
            self._trajectory,
            arguments,
            has_key=has_key,
            noted=self._noted,
        )
        return decision

    def _needs_certainty(self, decision: Decision) -> bool:
        """Whether the call must not run unless everything about it is known."""
        if decision.effect is Effect.DENY:
            return False
        dangerous = self._spec.dangerous or decision.dangerous
        return dangerous or decision.effect is Effect.REQUIRE_APPROVAL

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
            call_id=self.call_id,
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
            self._noted[semconv.APPROVAL_ID] = request.id
            self._noted[semconv.APPROVAL_STATUS] = "requested"
            reason = "the approval is for another request; give it this request's id or args_hash"
            self._deny(request, ReasonCode.APPROVAL_MISMATCH, reason)
        self._noted[semconv.APPROVAL_ID] = approval.id
        self._noted[semconv.APPROVAL_STATUS] = approval.status
        if approval.status == "rejected":
            raise ToolDenied(
                request.tool, ReasonCode.APPROVAL_REJECTED, request.rule_ids, request.reason
            )
        if approval.status != "approved":
            failure = approval.failure or ""
            raise ApprovalRequired(
                request.tool, approval.id, request.rule_ids, request.reason, failure
            )
        if not request.may_be_approved_by(approval.approver):
            reason = "the approval was given by somebody who may not give it"
            self._deny(request, ReasonCode.APPROVAL_MISMATCH, reason)
        if self._hash_again() != request.args_hash:
            reason = "the arguments changed while the approval was asked for"
            self._deny(request, ReasonCode.ARGS_CHANGED, reason)

    def _deny(self, request: ApprovalRequest, code: ReasonCode, reason: str) -> NoReturn:
        self._noted[semconv.POLICY_REASON_CODE] = code.value
        raise ToolDenied(request.tool, code, request.rule_ids, reason)

    def _check_again(self, on_record: "OnRecord") -> None:
        """Deny a call that can do harm, if its arguments changed while its record was made."""
        if self.replay is not None or not self._dangerous:
            return
        if self._args_hash is None or self._hash_again() == self._args_hash:
            return
        on_record.withdraw()
        self._noted[semconv.POLICY_REASON_CODE] = ReasonCode.ARGS_CHANGED.value
        reason = "the arguments changed after they were decided about"
        raise ToolDenied(self._spec.name, ReasonCode.ARGS_CHANGED, (), reason)

    def _hash_again(self) -> str | None:
        try:
            _, canon = snapshots.take(self._spec.binder.bind(self._args, self._kwargs))
            return args_hash(settings.hash_key(self._settings), self._spec.name, canon)
        except Exception:  # noqa: BLE001 - arguments that cannot be hashed now have changed
            return None

    def _put_on_record(self) -> "OnRecord | None":
        """What is kept about the call besides its span; None where nothing is."""
        if self._settings.idempotency is None and self._settings.audit is None:
            return None
        from toolverdict.instrument.on_record import OnRecord

        session = self._trajectory.session if self._trajectory is not None else None
        self._on_record = OnRecord(
            self._settings, self._spec, self._noted, session, dangerous=self._dangerous
        )
        return self._on_record

    def _admitted(self) -> Given:
        if self.replay is not None:
            return self._args, self._kwargs
        self._executed = True
        given = self._args, self._kwargs
        if self._spec.binder.receiver is not None:
            self._context = overrides.running(self._context, self._spec, *given)
        # The attempt may last for long, and shall not keep alive what was given to the tool.
        self._args, self._kwargs = (), {}
        if self._trajectory is not None and self._trajectory.history.trusted is not None:
            self._trusted = asking.listener(self._settings.policy, self._spec, self._trajectory)
        if self._recording:
            self._body_begins()
        return given

    def _body_begins(self) -> None:
        spec = self._spec
        attributes = {
            semconv.GEN_AI_TOOL_NAME: spec.attributes[semconv.GEN_AI_TOOL_NAME],
            semconv.GEN_AI_TOOL_CALL_ID: spans.clean(self.call_id),
        }
        body = spans.start_clean(spec.body_span_name, attributes, self._context)
        if body is not trace.INVALID_SPAN:
            self._body = body
            self._context = trace.set_span_in_context(body, self._context)

    def _body_ended(self) -> None:
        if self._body is not None:
            body, self._body = self._body, None
            spans.end(body)

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
        try:
            outcome = outcome_of_exception(error, self._settings.interrupts)
        except Exception:  # noqa: BLE001 - an exception may raise anything when it is looked at
            return Outcome.ERROR
        # A denial that comes out of the body is another tool's.
        return Outcome.ERROR if self._executed and outcome is Outcome.DENIED else outcome

    def _put(self, outcome: Outcome) -> None:
        """Put on the span what was noted; all at once, since each time costs the SDK a lock."""
        noted = self._noted
        noted[semconv.TOOL_OUTCOME] = str.__str__(outcome)
        noted[semconv.TOOL_EXECUTED] = self._executed
        noted[semconv.GEN_AI_TOOL_CALL_ID] = self.call_id
        if self.items is not None:
            noted[semconv.TOOL_ITEMS] = self.items
        if self._item_atoms is not None:
            attribute = semconv.TAINT_RESULT_ATOMS
            noted.update(recording.hashes(attribute, self._item_atoms, self._settings))
        if self._trajectory is not None:
            noted[semconv.GEN_AI_CONVERSATION_ID] = self._trajectory.conversation_id
            if self._trajectory.agent is not None:
                noted[semconv.GEN_AI_AGENT_NAME] = self._trajectory.agent
        spans.put(self._span, noted)


def _came_from_another(error: BaseException) -> bool:
    """Whether an exception has left another attempt before it leaves this one."""
    with suppress(Exception):  # one with slots, frozen, or with ideas of its own
        if getattr(error, _LEFT, False) is True:
            return True
        setattr(error, _LEFT, True)
    return False


def _looks_at_calls(in_force: settings.Settings) -> bool:
    """Whether calls are decided about or put on record, also those that have no span."""
    return any(x is not None for x in (in_force.policy, in_force.idempotency, in_force.audit))


def _denied(decision: Decision, code: ReasonCode, reason: str) -> Decision:
    """A denial of our own in the place of what the policy said; its mode and labels stay."""
    return replace(decision, effect=Effect.DENY, reason_code=code, reason=reason)
