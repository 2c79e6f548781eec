"""What is kept about a call besides its span: its idempotency key, and its audit records.

The order is that of safety: first it is looked whether the call has been made already, then, when
everything else has said yes, the key is taken, then the intent is written, and only then does the
body run. A process that dies in between leaves an unknown end, never a second run.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from toolverdict.instrument import guard, semconv
from toolverdict.instrument.errors import (
    AlreadyDone,
    AuditFailed,
    CallInProgress,
    IdempotencyConflict,
    IdempotencyError,
    OutcomeUnknown,
    StoreError,
)
from toolverdict.instrument.outcomes import Outcome
from toolverdict.instrument.settings import Settings
from toolverdict.instrument.stores import audit, idempotency
from toolverdict.instrument.stores.idempotency import Replay, Run, Unknown
from toolverdict.instrument.stores.sqlite_file import without_blocking
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


class _Foreign(Exception):
    """Stands for an error that says nothing about the effect of the call that it leaves."""


class OnRecord:
    """One call on record.

    Args:
        settings: Where keys and records are kept.
        spec: The tool.
        noted: What is noted on the span of the call, as it grows.
        session: What is certain about the session: it says whose the keys are.
        dangerous: Whether a label, of the tool or of the policy, says that it can do harm: then it
            does not run unless it is on record.
    """

    def __init__(
        self,
        settings: Settings,
        spec: ToolSpec,
        noted: Mapping[str, Any],
        session: Mapping[str, object] | None,
        *,
        dangerous: bool,
    ) -> None:
        self.status: str | None = None
        """What the key said, as ``idempotency.status`` holds it; None for a call without one."""
        self._store = settings.idempotency
        self._log = settings.audit
        self._spec = spec
        self._noted = noted
        self._session = session
        self._dangerous = dangerous
        self._run: Run | None = None
        self._entry: audit.Entry | None = None

    def look(self) -> Replay | None:
        """What the call gave when it was made before; asked before anybody is bothered with it.

        Raises:
            IdempotencyError: It must not run now.
            StoreError: The keys of a dangerous call cannot be looked at.
        """
        try:
            key = self._key()
            if self._store is None or key is None:
                return None
            found = self._store.look(**key, repeatable=self._spec.idempotent)
        except StoreError:
            if self._dangerous:
                raise
            return None  # begin() says so, and lets it run without a key
        if found is None or (isinstance(found, Unknown) and self._spec.reconcile is not None):
            return None
        return self._replay(found)

    async def look_async(self) -> Replay | None:
        """The same, while the event loop goes on."""
        return await without_blocking(self.look)

    def begin(self) -> Replay | None:
        """Take the key and write the intent; the body runs next unless there is a replay.

        Raises:
            IdempotencyError: It must not run now.
            AuditFailed: It cannot be put on record.
            StoreError: The key of a dangerous call cannot be taken.
        """
        run: Run | None = None
        key = self._key_if_any()
        if self._store is not None and key is not None:
            try:
                run = idempotency.admit(self._store, **key, **self._ways())
            except IdempotencyError as error:
                raise self._noting(error) from None
        if self._log is None or _is_replay(run):
            return self._begun(run)
        with _given_back(run):
            self._entry = audit.begin(self._log, labelled=self._dangerous, body=self._intent())
        return self._begun(run)

    async def begin_async(self) -> Replay | None:
        """The same, while the event loop goes on."""
        run: Run | None = None
        key = self._key_if_any()
        if self._store is not None and key is not None:
            try:
                run = await idempotency.admit_async(self._store, **key, **self._ways())
            except IdempotencyError as error:
                raise self._noting(error) from None
        if self._log is None or _is_replay(run):
            return self._begun(run)
        with _given_back(run):
            body = self._intent()
            self._entry = await audit.begin_async(self._log, labelled=self._dangerous, body=body)
        return self._begun(run)

    def returned(self, result: object, outcome: Outcome) -> None:
        """The body returned."""
        if self._run is not None:
            self._run.returned(result, outcome)

    def exhausted(self) -> None:
        """A generator was read to its end; there is no result to give back another time."""
        self.returned(idempotency.NO_RESULT, Outcome.OK)

    def withdraw(self) -> None:
        """The body will not run after all."""
        if self._run is not None:
            self._run.not_run()
            self._run = None

    def ended(self, error: BaseException | None, outcome: Outcome, *, foreign: bool) -> None:
        """The attempt is over, however it went. Never raises: nothing touches what a tool gave.

        Args:
            error: What left the body.
            outcome: What the attempt is taken for.
            foreign: Whether the error came out of another tool's attempt, inside of this one: that
                a nested call had no effect does not say that this one had none.
        """
        if self._run is not None:
            self._run.ended(_Foreign() if foreign else error)
        audit.end(self._entry, outcome.value)

    def _begun(self, run: Run | None) -> Replay | None:
        if run is None:
            return None
        self.status = "new" if run.replay is None else "replayed"
        if run.replay is None:
            self._run = run
        return run.replay

    def _intent(self) -> dict[str, object]:
        """What the record before the body says."""
        labels = self._noted.get(semconv.TOOL_LABELS, self._spec.labels)
        noted = {name: self._noted[name] for name in _AUDITED if name in self._noted}
        return {"tool": self._spec.name, "labels": list(labels), **noted}

    def _replay(self, found: Any) -> Replay:
        try:
            key_hash = self._noted[semconv.IDEMPOTENCY_KEY_HASH]
            replay = idempotency.replay_of(found, self._spec.name, key_hash)
        except IdempotencyError as error:
            raise self._noting(error) from None
        self.status = "replayed"
        return replay

    def _noting(self, error: IdempotencyError) -> IdempotencyError:
        self.status = next((word for kind, word in _STATUS if isinstance(error, kind)), "unknown")
        return error

    def _key_if_any(self) -> dict[str, Any] | None:
        """The key; none where a harmless call has one that cannot be told whose it is."""
        try:
            return self._key()
        except StoreError as error:
            if self._dangerous:
                raise
            guard.note("idempotency", "tool %s runs without its key (%s)", self._spec.name, error)
            return None

    def _key(self) -> dict[str, Any] | None:
        key_hash = self._noted.get(semconv.IDEMPOTENCY_KEY_HASH)
        fingerprint = self._noted.get(semconv.TOOL_ARGS_HASH)
        if self._store is None or key_hash is None or fingerprint is None:
            return None
        return {
            "tenant": self._store.tenant_of(self._session),
            "tool": self._spec.name,
            "key_hash": key_hash,
            "fingerprint": fingerprint,
        }

    def _ways(self) -> dict[str, Any]:
        spec = self._spec
        return {
            "repeatable": spec.idempotent,
            "reconcile": spec.reconcile,
            "required": self._dangerous,
        }


def _is_replay(run: Run | None) -> bool:
    return run is not None and run.replay is not None


@contextmanager
def _given_back(run: Run | None) -> Iterator[None]:
    """Give the key back if the intent cannot be written: the body will not run."""
    try:
        yield
    except AuditFailed:
        if run is not None:
            run.not_run()
        raise
