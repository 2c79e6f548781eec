"""One effect per key: a call that is made twice runs once, or is not run when nobody can know.

::

    (new) ──▶ in_progress ──▶ succeeded          the result is given back
                  │  ▲ └────▶ failed_final       the tool's answer is given back
                  │  └─────── failed_no_effect   the next call runs, with whatever arguments
                  └─────────▶ unknown            nothing runs before somebody knows

A key is scoped by tenant and tool, and bound to the arguments of the call (its fingerprint). A call
holds it by a lease; when that is over the state is ``unknown``, whatever happened to the process.
Each run has a fencing token: a run that was given up and replaced cannot write its end.

``unknown`` ends in three ways: the run that was slow ends after all; ``reconcile`` asks the system
behind the tool; or the tool is declared repeatable, and runs again.

Keys are hashed with the hash key: another hash key is another set of keys, so it must outlive the
process. Each row is authenticated with it: who can write to the database and has not the key can
delete a row, and bring one back as it once was, but not say that a call has succeeded, or has not
happened. A row that is not what was written stops every call with its key. Results stand in the
file as they are, readable by its owner; ``keep_results=False`` keeps none.

The pipeline uses ``admit`` (or ``admit_async``) just before the body, and tells the ``Run`` that it
gets how the body ended::

    run = idempotency.admit(store, tool=name, key_hash=key, fingerprint=args_hash)
    if run.replay is not None:
        return run.replay.result
    with run:
        result = body()
        run.returned(result, outcome)
    return result
"""

import asyncio
import inspect
import os
import shlex
import sqlite3
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, cast

from toolverdict.instrument import guard
from toolverdict.instrument.canonical import canonicalise
from toolverdict.instrument.errors import (
    AlreadyDone,
    CallInProgress,
    ConfigurationError,
    IdempotencyConflict,
    InvalidArguments,
    OutcomeUnknown,
    PermissionDenied,
    RateLimited,
    Refused,
    StoreError,
    Unhashable,
)
from toolverdict.instrument.hashing import HashKey
from toolverdict.instrument.outcomes import Outcome
from toolverdict.instrument.stores import row_keys
from toolverdict.instrument.stores.clocks import COLUMNS, SYSTEM, Clock, Lifetime
from toolverdict.instrument.stores.result_codec import MAX_RESULT_BYTES, ResultCodec, Unencodable
from toolverdict.instrument.stores.sqlite_file import SqliteFile, at_the_end, without_blocking

State = Literal["in_progress", "succeeded", "failed_no_effect", "failed_final", "unknown"]
EndState = Literal["succeeded", "failed_no_effect", "failed_final", "unknown"]

LEASE_S: Final = 300.0
KEEP_S: Final = 86_400.0
POLL_S: Final = 0.05
_PRUNE_EVERY_MS: Final = 60_000

NO_RESULT: Final = object()
"""There is no result, which is not the same as the result None."""

_SCHEMA: Final = (
    (
        """
CREATE TABLE idempotency (
  tenant TEXT NOT NULL,
  tool TEXT NOT NULL,
  key_hash TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  state TEXT NOT NULL CHECK (
    state IN ('in_progress', 'succeeded', 'failed_no_effect', 'failed_final', 'unknown')),
  token INTEGER NOT NULL,
  touched_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  boot TEXT,
  began_steady INTEGER NOT NULL,
  ends_steady INTEGER NOT NULL,
  result TEXT,
  PRIMARY KEY (tenant, tool, key_hash)
) STRICT""",
    ),
    # A row of before has none, and so stops its calls until somebody says what became of them.
    ("ALTER TABLE idempotency ADD COLUMN mac TEXT NOT NULL DEFAULT ''",),
)

_COLUMNS: Final = (
    *("tenant", "tool", "key_hash", "fingerprint", "state", "token"),
    *(*COLUMNS, "result"),
)


@dataclass(frozen=True, slots=True)
class Started:
    """The key is held: run the body, then ``finish``."""

    tenant: str
    tool: str
    key_hash: str
    token: int


@dataclass(frozen=True, slots=True)
class Replay:
    """The call was made before: give back what it gave, and do not run it.

    Args:
        state: How it ended: ``succeeded``, or ``failed_final`` for an answer that says it failed.
        result: What it returned; ``NO_RESULT`` if that could not be kept.
    """

    state: Literal["succeeded", "failed_final"]
    result: Any = field(repr=False)

    @property
    def has_result(self) -> bool:
        """Whether the result was kept."""
        return self.result is not NO_RESULT


@dataclass(frozen=True, slots=True)
class Conflict:
    """The key was used with other arguments."""


@dataclass(frozen=True, slots=True)
class InProgress:
    """A call with this key is running."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A call with this key may have had its effect."""

    tenant: str
    tool: str
    key_hash: str
    token: int


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """One key, as it is stored. Times are milliseconds since 1970, UTC.

    Args:
        tenant: Whose data the agent works on.
        tool: The tool.
        key_hash: The hash of the key.
        fingerprint: The hash of the arguments.
        state: How its last run ended, or that it has not; a run whose lease is over is ``unknown``.
        token: The number of that run.
        touched_at: When the state was written.
        expires_at: When the lease ends, or the key is forgotten.
        has_result: Whether there is a result to give back.
        intact: Whether the row is what was written; what it says counts for nothing otherwise.
    """

    tenant: str
    tool: str
    key_hash: str
    fingerprint: str
    state: State
    token: int
    touched_at: int
    expires_at: int
    has_result: bool
    intact: bool = True

    def as_json(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        return asdict(self)


Beginning: TypeAlias = Started | Replay | Conflict | InProgress | Unknown


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What the system behind a tool says about a call whose end is unknown.

    Args:
        state: ``succeeded``, ``failed_final``, or ``failed_no_effect`` if it did not happen.
        result: What the call would have returned, where that is known.
    """

    state: Literal["succeeded", "failed_no_effect", "failed_final"]
    result: Any = field(default=NO_RESULT, repr=False)


Reconcile = Callable[[Unknown], "Reconciled | Awaitable[Reconciled | None] | None"]
"""Asks what became of a call; None is that nobody can say."""


class IdempotencyStore:
    """Keys in an SQLite file, which may be that of the approvals.

    Results are kept in it, as JSON in clear text, to be given back; arguments are not.

    A key means the same call for whoever uses it. Where several customers share a tool, and the key
    does not hold what tells them apart, say by ``scope`` what does: without it, the second customer
    with the key ``2026-11`` is given the result of the first.

    Args:
        path: The file; made if it is not there.
        key: Authenticates the rows: bytes, hexadecimal text or a ``HashKey``; None takes the hash
            key of ``configure`` or of the environment when it is first needed. It must outlive the
            process.
        scope: Keys of the session (``trajectory(session=...)``) whose values a key belongs to, such
            as ``("customer_id",)``. A call in a session without them cannot use its key.
        keep_results: Whether results are kept; without, a repeated call is told that it was done.
        lease_s: After how long a run that has not ended is given up; longer than any body runs.
        keep_s: How long a key is remembered after its call ended. Keys whose call is running, or
            whose end is unknown, are not forgotten.
        types: Enums, dataclasses and pydantic models that results may hold.
        max_result_bytes: A result that takes more is not kept.
        create: Whether a file that is not there is made.
        clock: Where the time comes from.

    Raises:
        StoreError: The file cannot be opened, or a newer toolverdict has written it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: row_keys.Key | None = None,
        scope: str | Collection[str] = (),
        keep_results: bool = True,
        lease_s: float = LEASE_S,
        keep_s: float = KEEP_S,
        types: Collection[type] = (),
        max_result_bytes: int = MAX_RESULT_BYTES,
        create: bool = True,
        clock: Clock = SYSTEM,
    ) -> None:
        if lease_s <= 0 or keep_s < 0:
            raise ConfigurationError("lease_s must be more than 0, and keep_s not less than 0")
        self._key = row_keys.made(key)
        self._scope = (scope,) if isinstance(scope, str) else tuple(sorted(scope))
        self._keep_results = keep_results
        self._lease_ms = int(lease_s * 1000)
        self._keep_ms = int(keep_s * 1000)
        self._codec = ResultCodec(types, max_result_bytes)
        self._clock = clock
        self._pruned_at: int | None = None
        self._file = SqliteFile(path, "idempotency", _SCHEMA, create=create)

    def __enter__(self) -> Self:
        """The file is open already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file for good."""
        self._file.close()

    def tenant_of(self, session: Mapping[str, object] | None) -> str:
        """Whose key a call in a session uses: what ``begin`` and ``look`` take as ``tenant``.

        A keyed hash of what the session holds under the keys of ``scope``; empty without a scope.

        Raises:
            StoreError: The session lacks one of them, or it has no canonical form.
            ConfigurationError: There is no key that outlives the process.
        """
        if not self._scope:
            return ""
        held = session or {}
        missing = [name for name in self._scope if held.get(name) in (None, "")]
        if missing:
            raise StoreError(
                f"idempotency keys belong to the session's {', '.join(self._scope)}, and this one"
                f" has no {missing[0]}; open it with trajectory(session={{...}})"
            )
        try:
            form = canonicalise({name: held[name] for name in self._scope})
        except Unhashable as error:
            raise StoreError(f"the scope of an idempotency key has no hash ({error})") from None
        return "hmac-sha256:" + self._secret().digest(b"idempotency-scope/1\0" + form)

    def begin(
        self,
        *,
        tool: str,
        key_hash: str,
        fingerprint: str,
        tenant: str = "",
        repeatable: bool = False,
    ) -> Beginning:
        """Take the key, or say why not. On the disk before it returns.

        Args:
            tool: The tool.
            key_hash: The hash of the key.
            fingerprint: The hash of the arguments.
            tenant: Whose data the agent works on.
            repeatable: Whether the tool may run again when nobody knows whether it has run.

        Raises:
            StoreError: The file cannot be used; nothing was taken.
            OutcomeUnknown: Somebody else has changed what is known of the key.
            ConfigurationError: There is no key that outlives the process.
        """
        if not key_hash or not fingerprint:
            raise StoreError("an idempotency key needs a hash, and its call a fingerprint")
        scope = self._scoped(tenant, tool, key_hash)
        with self._file.writing() as connection:
            row = _find(connection, scope)
            found = None if row is None else self._seen(row, fingerprint, repeatable=repeatable)
            if isinstance(found, Unknown) and row is not None and row["state"] == "in_progress":
                self._put(connection, {**dict(row), "state": "unknown"})
            if found is not None:
                return found
            self._prune(connection)
            token = 1 if row is None else int(row["token"]) + 1
            life = Lifetime.of(self._clock, self._lease_ms)
            values = (*scope, fingerprint, "in_progress", token, *life.columns, None)
            self._put(connection, dict(zip(_COLUMNS, values, strict=True)))
            return Started(tenant, tool, key_hash, token)

    def look(
        self,
        *,
        tool: str,
        key_hash: str,
        fingerprint: str,
        tenant: str = "",
        repeatable: bool = False,
    ) -> Replay | Conflict | InProgress | Unknown | None:
        """What ``begin`` would say, without taking the key; None if it would be taken.

        For before somebody is asked to approve a call that will not run.
        """
        scope = self._scoped(tenant, tool, key_hash)
        with self._file.reading() as connection:
            row = _find(connection, scope)
        return None if row is None else self._seen(row, fingerprint, repeatable=repeatable)

    def finish(self, started: Started, state: EndState, result: object = NO_RESULT) -> bool:
        """Say how a run ended; whether it still was the one that holds the key.

        A result that cannot be kept changes nothing about the state.

        Raises:
            StoreError: The file cannot be used; when the lease is over the end will be unknown.
        """
        return self._end(started, state, result)

    def resolve(self, unknown: Unknown, reconciled: Reconciled) -> bool:
        """Say what became of a run whose end was unknown; whether it still was.

        Who says it knows: that a row was changed by somebody else does not matter here.

        Raises:
            StoreError: The file cannot be used.
        """
        return self._end(unknown, reconciled.state, reconciled.result)

    def keys(self, *, tool: str | None = None, key_hash: str | None = None) -> list[KeyRecord]:
        """The keys that are remembered, or those of one tool or hash, the oldest state first.

        Raises:
            StoreError: The file cannot be used.
        """
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT * FROM idempotency WHERE tool = coalesce(?, tool)"
                " AND key_hash = coalesce(?, key_hash) ORDER BY touched_at, tool, key_hash",
                (tool, key_hash),
            ).fetchall()
        return [self._record(row) for row in rows]

    def renew(self, started: Started) -> bool:
        """Begin the lease anew, for a body that takes long; whether the key is still held."""
        life = Lifetime.of(self._clock, self._lease_ms)
        with self._file.writing(durable=False) as connection:
            row = _find(connection, (started.tenant, started.tool, started.key_hash))
            if row is None or (row["token"], row["state"]) != (started.token, "in_progress"):
                return False
            self._check(row)
            lived = dict(zip(COLUMNS, life.columns, strict=True))
            self._put(connection, {**dict(row), **lived})
            return True

    def prune(self) -> int:
        """Forget the keys whose time is over; how many."""
        with self._file.writing(durable=False) as connection:
            return self._prune(connection, now=True)

    def _end(self, run: Started | Unknown, state: EndState, result: object) -> bool:
        # Encoded before anything is written: a result that has no text did succeed all the same.
        text = self._text(run.tool, result) if state in _SETTLED else None
        life = Lifetime.of(self._clock, self._keep_ms)
        with self._file.writing(durable=False) as connection:
            row = _find(connection, (run.tenant, run.tool, run.key_hash))
            open_ = ("in_progress", "unknown")
            if row is None or row["token"] != run.token or row["state"] not in open_:
                return False
            if isinstance(run, Started):
                self._check(row)
            lived = dict(zip(COLUMNS, life.columns, strict=True))
            self._put(connection, {**dict(row), **lived, "state": state, "result": text})
            return True

    def _scoped(self, tenant: str, tool: str, key_hash: str) -> tuple[str, str, str]:
        if self._scope and not tenant:
            raise StoreError("these keys have a scope, and the call says none (tenant_of)")
        return tenant, tool, key_hash

    def _put(self, connection: sqlite3.Connection, row: Mapping[str, Any]) -> None:
        values = [row[name] for name in _COLUMNS]
        connection.execute(
            f"INSERT OR REPLACE INTO idempotency ({', '.join(_COLUMNS)}, mac)"
            f" VALUES ({', '.join('?' * len(values))}, ?)",
            (*values, self._mac(values)),
        )

    def _check(self, row: Mapping[str, Any]) -> None:
        if not self._is_intact(row):
            raise OutcomeUnknown(
                f"what is known of a key of tool {row['tool']!r} was changed by somebody else, or"
                " written with another hash key; find out what became of its call, then say so: "
                + _resolve_by(row["tool"], row["key_hash"])
            )

    def _is_intact(self, row: Mapping[str, Any]) -> bool:
        return row_keys.same(self._mac([row[name] for name in _COLUMNS]), row["mac"])

    def _mac(self, values: Sequence[object]) -> str:
        return row_keys.mac(self._secret(), "idempotency", values)

    def _secret(self) -> HashKey:
        if self._key is None:
            self._key = row_keys.lasting(None, "idempotency keys need")
        return self._key

    def _text(self, tool: str, result: object) -> str | None:
        if result is NO_RESULT or not self._keep_results:
            return None
        try:
            return self._codec.encode(result)
        except Unencodable:
            guard.note("idempotency", "a result of tool %s cannot be kept for a replay", tool)
            return None

    def _seen(
        self, row: Mapping[str, Any], fingerprint: str, *, repeatable: bool
    ) -> Replay | Conflict | InProgress | Unknown | None:
        """What a row says to a call; None if the call may run."""
        self._check(row)
        state = row["state"]
        if state == "failed_no_effect" or (state in _SETTLED and self._is_forgotten(row)):
            return None
        if row["fingerprint"] != fingerprint:
            return Conflict()
        if state in _SETTLED:
            return Replay(state, self._result(row["result"]))
        if state == "in_progress" and not Lifetime.of_row(row).is_over(self._clock):
            return InProgress()
        if repeatable:
            return None
        return Unknown(row["tenant"], row["tool"], row["key_hash"], row["token"])

    def _record(self, row: Mapping[str, Any]) -> KeyRecord:
        lost = row["state"] == "in_progress" and Lifetime.of_row(row).is_over(self._clock)
        names = ("tenant", "tool", "key_hash", "fingerprint", "token", "touched_at", "expires_at")
        return KeyRecord(
            **{name: row[name] for name in names},
            state="unknown" if lost else row["state"],
            has_result=row["result"] is not None,
            intact=self._is_intact(row),
        )

    def _result(self, text: str | None) -> Any:
        if text is None:
            return NO_RESULT
        try:
            return self._codec.decode(text)
        except ValueError:  # of a class that is no longer named, for one
            return NO_RESULT

    def _is_forgotten(self, row: Mapping[str, Any]) -> bool:
        """By both clocks: one that is set forward must not make a payment possible twice."""
        if self._clock.wall_ms() < row["expires_at"]:
            return False
        same_boot = row["boot"] is not None and row["boot"] == self._clock.boot()
        return not same_boot or self._clock.steady_ms() >= row["ends_steady"]

    def _prune(self, connection: sqlite3.Connection, *, now: bool = False) -> int:
        steady = self._clock.steady_ms()
        if not now and self._pruned_at is not None and steady < self._pruned_at + _PRUNE_EVERY_MS:
            return 0
        self._pruned_at = steady
        return connection.execute(
            "DELETE FROM idempotency WHERE state IN ('succeeded', 'failed_final',"
            " 'failed_no_effect') AND expires_at <= ?"
            " AND (boot IS NULL OR boot IS NOT ? OR ends_steady <= ?)",
            (self._clock.wall_ms(), self._clock.boot(), steady),
        ).rowcount


class Run:
    """A call that may run, or one that ran before; tell it how the body ended, once.

    A context manager around the body for pipelines that are one; others call ``ended``. Neither
    raises: the tool has run, and nothing of ours may touch what it gave.

    Args:
        store: Where the key is.
        started: The key that is held; None for a call that runs without.
        replay: What to give back instead of running.
    """

    def __init__(
        self, store: IdempotencyStore | None, started: Started | None, replay: Replay | None
    ) -> None:
        self.replay = replay
        self._store = store
        self._started = started

    def __enter__(self) -> Self:
        """Nothing is left to do: the key is held."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """The body ended; what it raised goes on."""
        self.ended(error)

    def returned(self, result: object, outcome: Outcome = Outcome.OK) -> None:
        """The body returned, or a generator was read to its end (then without a result)."""
        if outcome.succeeded:
            self._finish("succeeded", result)
        elif outcome in _NO_EFFECT_OUTCOMES:
            self._finish("failed_no_effect", NO_RESULT)
        elif outcome.failed:
            self._finish("failed_final", result)
        else:
            self._finish("unknown", NO_RESULT)

    def ended(self, error: BaseException | None = None) -> None:
        """The body ended without returning; does nothing after ``returned``.

        Only what the tool's author raises to say that nothing happened leaves the key free. Every
        other exception, a cancellation too, may have come after the effect.
        """
        self._finish(state_of(error), NO_RESULT)

    def not_run(self) -> None:
        """The body will not run after all: leave the key as if it had not been taken."""
        self._finish("failed_no_effect", NO_RESULT)

    def _finish(self, state: EndState, result: object) -> None:
        started, self._started = self._started, None
        store = self._store
        if started is None or store is None:
            return

        def finish() -> None:
            if not store.finish(started, state, result):
                guard.note(
                    "idempotency",
                    "a run of tool %s ended after its lease, and another one had replaced it",
                    started.tool,
                )

        def failed(error: Exception) -> None:
            guard.note(
                "idempotency",
                "the end of tool %s could not be recorded (%s); it will be unknown",
                started.tool,
                type(error).__name__,
            )

        at_the_end(finish, failed)


def state_of(error: BaseException | None) -> EndState:
    """What an exception that leaves a body says about the effect."""
    return "failed_no_effect" if isinstance(error, _NO_EFFECT_ERRORS) else "unknown"


@dataclass(frozen=True, slots=True)
class _Asked:
    """One call's question to the store."""

    store: IdempotencyStore
    tool: str
    key_hash: str
    fingerprint: str
    tenant: str
    repeatable: bool
    required: bool

    def begin(self) -> Beginning | None:
        """None if the store cannot be used, and the call may run without it."""
        try:
            return self._begin()
        except StoreError as error:
            self._without(error)
            return None

    async def begin_async(self) -> Beginning | None:
        """The same, while the event loop goes on."""
        try:
            return await without_blocking(self._begin)
        except StoreError as error:
            self._without(error)
            return None

    def _begin(self) -> Beginning:
        return self.store.begin(
            tool=self.tool,
            key_hash=self.key_hash,
            fingerprint=self.fingerprint,
            tenant=self.tenant,
            repeatable=self.repeatable,
        )

    def _without(self, error: StoreError) -> None:
        if self.required:
            raise error
        guard.note("idempotency", "tool %s runs without its key (%s)", self.tool, error)

    def run(self, found: Beginning | None) -> Run:
        """What the pipeline gets.

        Raises:
            IdempotencyError: The call must not run.
        """
        if found is None or isinstance(found, Started):
            return Run(self.store, found, None)
        return Run(None, None, replay_of(found, self.tool, self.key_hash))

    def resolve(self, unknown: Unknown, answer: object) -> bool:
        """Whether an answer about an unknown end was one."""
        known = self._reconciled(answer)
        if known is not None:
            self.store.resolve(unknown, known)
        return known is not None

    async def resolve_async(self, unknown: Unknown, answer: object) -> bool:
        """The same, while the event loop goes on."""
        known = self._reconciled(answer)
        if known is not None:
            await without_blocking(lambda: self.store.resolve(unknown, known))
        return known is not None

    def _reconciled(self, answer: object) -> Reconciled | None:
        if answer is None or isinstance(answer, Reconciled):
            return answer
        guard.note("idempotency", "reconcile of tool %s must return Reconciled", self.tool)
        return None

    def failed(self, error: Exception) -> None:
        guard.note(
            "idempotency", "reconcile of tool %s failed (%s)", self.tool, type(error).__name__
        )


def replay_of(found: Replay | Conflict | InProgress | Unknown, tool: str, key_hash: str) -> Replay:
    """What to give back instead of running.

    Args:
        found: What the store says about the key.
        tool: The tool.
        key_hash: The hash of the key: for the person who has to find out about it.

    Raises:
        IdempotencyConflict: The key was used with other arguments.
        CallInProgress: A call with this key is running.
        OutcomeUnknown: A call with this key may have had its effect.
        AlreadyDone: It succeeded, and its result was not kept.
    """
    if isinstance(found, Replay):
        if found.has_result:
            return found
        raise AlreadyDone(f"tool {tool!r} has done this before; its result was not kept")
    if isinstance(found, Conflict):
        raise IdempotencyConflict(f"tool {tool!r} was called with this key and other arguments")
    if isinstance(found, InProgress):
        raise CallInProgress(
            f"tool {tool!r} is running with this key ({key_hash}); ask again when it has ended, or"
            " its lease has, if its process was killed: toolverdict keys list --db FILE"
        )
    raise OutcomeUnknown(
        f"tool {tool!r} was called with this key, and nobody knows whether it took effect; find out,"
        f" and give the tool a reconcile function or say what you found: {_resolve_by(tool, key_hash)}"
    )


def _resolve_by(tool: object, key_hash: object) -> str:
    """The command by which a person says what became of a call."""
    words = (shlex.quote(str(key_hash)), "--tool", shlex.quote(str(tool)))
    how = "--found succeeded --db FILE (or --found failed, or did-not-happen)"
    return f"toolverdict keys resolve {' '.join(words)} {how}"


def admit(
    store: IdempotencyStore,
    *,
    tool: str,
    key_hash: str,
    fingerprint: str,
    tenant: str = "",
    repeatable: bool = False,
    reconcile: Reconcile | None = None,
    required: bool = True,
    wait_s: float = 0.0,
) -> Run:
    """Let the body run, or get what an earlier run gave.

    Args:
        store: Where the keys are.
        tool: The tool.
        key_hash: The hash of the key.
        fingerprint: The hash of the arguments.
        tenant: Whose data the agent works on.
        repeatable: Whether the tool may run again when nobody knows whether it has run.
        reconcile: Asked then, first.
        required: Whether the call must not run when the store cannot be used.
        wait_s: How long to wait for a call that is running.

    Raises:
        IdempotencyError: The call must not run (see ``replay_of``).
        StoreError: The store cannot be used, and ``required``.
    """
    asked = _Asked(store, tool, key_hash, fingerprint, tenant, repeatable, required)
    deadline = time.monotonic() + wait_s
    reconciled = False
    while True:
        found = asked.begin()
        if isinstance(found, InProgress) and time.monotonic() < deadline:
            time.sleep(POLL_S)
            continue
        if isinstance(found, Unknown) and reconcile is not None and not reconciled:
            reconciled = True
            try:
                answer: object = reconcile(found)
            except Exception as error:  # noqa: BLE001 - it is the tool author's
                asked.failed(error)
                return asked.run(found)
            if inspect.iscoroutine(answer):
                answer.close()
            if asked.resolve(found, answer):
                continue
        return asked.run(found)


async def admit_async(
    store: IdempotencyStore,
    *,
    tool: str,
    key_hash: str,
    fingerprint: str,
    tenant: str = "",
    repeatable: bool = False,
    reconcile: Reconcile | None = None,
    required: bool = True,
    wait_s: float = 0.0,
) -> Run:
    """The same, while the event loop goes on; ``reconcile`` may be async."""
    asked = _Asked(store, tool, key_hash, fingerprint, tenant, repeatable, required)
    deadline = time.monotonic() + wait_s
    reconciled = False
    while True:
        found = await asked.begin_async()
        if isinstance(found, InProgress) and time.monotonic() < deadline:
            await asyncio.sleep(POLL_S)
            continue
        if isinstance(found, Unknown) and reconcile is not None and not reconciled:
            reconciled = True
            try:
                answer: object = reconcile(found)
                if inspect.isawaitable(answer):
                    answer = await answer
            except Exception as error:  # noqa: BLE001 - it is the tool author's
                asked.failed(error)
                return asked.run(found)
            if await asked.resolve_async(found, answer):
                continue
        return asked.run(found)


_SCOPE: Final = "tenant = ? AND tool = ? AND key_hash = ?"
_SETTLED: Final = ("succeeded", "failed_final")
_NO_EFFECT_ERRORS: Final = (InvalidArguments, PermissionDenied, Refused, RateLimited)
_NO_EFFECT_OUTCOMES: Final = frozenset(
    {
        Outcome.INVALID_ARGUMENTS,
        Outcome.PERMISSION_DENIED,
        Outcome.REFUSED,
        Outcome.RATE_LIMITED,
        Outcome.DENIED,
    }
)


def _find(connection: sqlite3.Connection, scope: tuple[str, str, str]) -> Mapping[str, Any] | None:
    row = connection.execute(f"SELECT * FROM idempotency WHERE {_SCOPE}", scope).fetchone()
    return cast("Mapping[str, Any] | None", row)
