"""What is kept about a call besides its span: its idempotency key, and its audit records.

The order is that of safety: first it is looked whether the call has been made already, then, when
everything else has said yes, the key is taken, then the intent is written, and only then does the
body run. A process that dies in between leaves an unknown end, never a second run.
"""

from collections.abc import Mapping
from typing import Any, Final

from toolverdict.instrument import semconv
from toolverdict.instrument.errors import (
    AlreadyDone,
    AuditFailed,
    CallInProgress,
    IdempotencyConflict,
    IdempotencyError,
    OutcomeUnknown,
)
from toolverdict.instrument.outcomes import Outcome
from toolverdict.instrument.settings import Settings
from toolverdict.instrument.stores import audit, idempotency
from toolverdict.instrument.stores.idempotency import Replay, Run, Unknown
from toolverdict.instrument.tools import ToolSpec

_STATUS: Final = (
    (IdempotencyConflict, "conflict"),
    (CallInProgress, "in_progress"),
    (OutcomeUnknown, "unknown"),
    (AlreadyDone, "replayed"),
)

_AUDITED: Final = (
    semconv.TOOL_ARGS_HASH,
    semconv.TOOL_ARGS_HASH_KEY_ID,
    semconv.POLICY_DECISION,
    semconv.POLICY_ID,
    semconv.POLICY_DIGEST,
    semconv.POLICY_RULE_IDS,
    semconv.POLICY_REASON_CODE,
    semconv.APPROVAL_ID,
    semconv.APPROVAL_STATUS,
    semconv.IDEMPOTENCY_KEY_HASH,
)
"""What goes on record of what is noted on the span: hashes, decisions and ids, no content."""


class OnRecord:
    """One call on record.

    Args:
        settings: Where keys and records are kept.
        spec: The tool.
        noted: What is noted on the span of the call, as it grows.
    """

    def __init__(self, settings: Settings, spec: ToolSpec, noted: Mapping[str, Any]) -> None:
        self.status: str | None = None
        """What the key said, as ``idempotency.status`` holds it; None for a call without one."""
        self._store = settings.idempotency
        self._log = settings.audit
        self._spec = spec
        self._noted = noted
        self._run: Run | None = None
        self._entry: audit.Entry | None = None

    def look(self) -> Replay | None:
        """What the call gave when it was made before; asked before anybody is bothered with it.

        Raises:
            IdempotencyError: It must not run now.
        """
        key = self._key()
        if self._store is None or key is None:
            return None
        found = self._store.look(**key, repeatable=self._spec.idempotent)
        if found is None or (isinstance(found, Unknown) and self._spec.reconcile is not None):
            return None
        return self._replay(found)

    def begin(self) -> Replay | None:
        """Take the key and write the intent; the body runs next unless there is a replay.

        Raises:
            IdempotencyError: It must not run now.
            AuditFailed: It cannot be put on record.
            StoreError: The key of a dangerous call cannot be taken.
        """
        key = self._key()
        if self._store is None or key is None:
            return self._begun(None)
        try:
            return self._begun(idempotency.admit(self._store, **key, **self._ways()))
        except IdempotencyError as error:
            raise self._noting(error) from None

    async def begin_async(self) -> Replay | None:
        """The same, while the event loop goes on."""
        key = self._key()
        if self._store is None or key is None:
            return self._begun(None)
        try:
            return self._begun(await idempotency.admit_async(self._store, **key, **self._ways()))
        except IdempotencyError as error:
            raise self._noting(error) from None

    def returned(self, result: object, outcome: Outcome) -> None:
        """The body returned."""
        if self._run is not None:
            self._run.returned(result, outcome)

    def exhausted(self) -> None:
        """A generator was read to its end; there is no result to give back another time."""
        self.returned(idempotency.NO_RESULT, Outcome.OK)

    def ended(self, error: BaseException | None, outcome: Outcome) -> None:
        """The attempt is over, however it went. Never raises: nothing touches what a tool gave."""
        if self._run is not None:
            self._run.ended(error)
        audit.end(self._entry, outcome.value)

    def _begun(self, run: Run | None) -> Replay | None:
        if run is not None and run.replay is not None:
            self.status = "replayed"
            return run.replay
        if self._log is not None:
            body = {"tool": self._spec.name, "labels": list(self._spec.labels)}
            body |= {name: self._noted[name] for name in _AUDITED if name in self._noted}
            try:
                self._entry = audit.begin(self._log, labelled=self._spec.dangerous, body=body)
            except AuditFailed:
                if run is not None:
                    run.not_run()
                raise
        if run is not None:
            self.status = "new"
        self._run = run
        return None

    def _replay(self, found: Any) -> Replay:
        try:
            replay = idempotency.replay_of(found, self._spec.name)
        except IdempotencyError as error:
            raise self._noting(error) from None
        self.status = "replayed"
        return replay

    def _noting(self, error: IdempotencyError) -> IdempotencyError:
        self.status = next((word for kind, word in _STATUS if isinstance(error, kind)), "unknown")
        return error

    def _key(self) -> dict[str, Any] | None:
        key_hash = self._noted.get(semconv.IDEMPOTENCY_KEY_HASH)
        fingerprint = self._noted.get(semconv.TOOL_ARGS_HASH)
        if key_hash is None or fingerprint is None:
            return None
        return {"tool": self._spec.name, "key_hash": key_hash, "fingerprint": fingerprint}

    def _ways(self) -> dict[str, Any]:
        spec = self._spec
        return {
            "repeatable": spec.idempotent,
            "reconcile": spec.reconcile,
            "required": spec.dangerous,
        }
