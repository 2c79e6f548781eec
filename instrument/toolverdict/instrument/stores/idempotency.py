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

Keys are hashed with the hash key: another hash key is another set of keys.

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
import sqlite3
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, cast

from toolverdict.instrument import guard
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
)
from toolverdict.instrument.outcomes import Outcome
from toolverdict.instrument.stores.clocks import SYSTEM, Clock, Lifetime
from toolverdict.instrument.stores.result_codec import MAX_RESULT_BYTES, ResultCodec, Unencodable
from toolverdict.instrument.stores.sqlite_file import SqliteFile

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

    Results are kept in it, as JSON, to be given back; arguments are not.

    Args:
        path: The file; made if it is not there.
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
        lease_s: float = LEASE_S,
        keep_s: float = KEEP_S,
        types: Collection[type] = (),
        max_result_bytes: int = MAX_RESULT_BYTES,
        create: bool = True,
        clock: Clock = SYSTEM,
    ) -> None:
        if lease_s <= 0 or keep_s < 0:
            raise ConfigurationError("lease_s must be more than 0, and keep_s not less than 0")
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
        """
        if not key_hash or not fingerprint:
            raise StoreError("an idempotency key needs a hash, and its call a fingerprint")
        scope = (tenant, tool, key_hash)
        with self._file.writing() as connection:
            self._prune(connection)
            row = _find(connection, scope)
            found = None if row is None else self._seen(row, fingerprint, repeatable=repeatable)
            if isinstance(found, Unknown) and row is not None and row["state"] == "in_progress":
                connection.execute(
                    f"UPDATE idempotency SET state = 'unknown' WHERE {_SCOPE}", scope
                )
            if found is not None:
                return found
            token = 1 if row is None else int(row["token"]) + 1
            life = Lifetime.of(self._clock, self._lease_ms)
            connection.execute(
                "INSERT OR REPLACE INTO idempotency"
                " VALUES (?, ?, ?, ?, 'in_progress', ?, ?, ?, ?, ?, ?, NULL)",
                (*scope, fingerprint, token, *life.columns),
            )
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
        with self._file.reading() as connection:
            row = _find(connection, (tenant, tool, key_hash))
        return None if row is None else self._seen(row, fingerprint, repeatable=repeatable)

    def finish(self, started: Started, state: EndState, result: object = NO_RESULT) -> bool:
        """Say how a run ended; whether it still was the one that holds the key.

        A result that cannot be kept changes nothing about the state.

        Raises:
            StoreError: The file cannot be used; when the lease is over the end will be unknown.
        """
        return self._end(started, state, result, ("in_progress", "unknown"))

    def resolve(self, unknown: Unknown, reconciled: Reconciled) -> bool:
        """Say what became of a run whose end was unknown; whether it still was.

        Raises:
            StoreError: The file cannot be used.
        """
        return self._end(unknown, reconciled.state, reconciled.result, ("unknown", "in_progress"))

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
            done = connection.execute(
                "UPDATE idempotency SET touched_at = ?, expires_at = ?, boot = ?,"
                f" began_steady = ?, ends_steady = ? WHERE {_SCOPE} AND token = ?"
                " AND state = 'in_progress'",
                (*life.columns, started.tenant, started.tool, started.key_hash, started.token),
            )
            return done.rowcount == 1

    def prune(self) -> int:
        """Forget the keys whose time is over; how many."""
        with self._file.writing(durable=False) as connection:
            return self._prune(connection, now=True)

    def _end(
        self, run: Started | Unknown, state: str, result: object, from_: tuple[str, ...]
    ) -> bool:
        # Encoded before anything is written: a result that has no text did succeed all the same.
        text = self._text(run.tool, result) if state in ("succeeded", "failed_final") else None
        life = Lifetime.of(self._clock, self._keep_ms)
        with self._file.writing(durable=False) as connection:
            done = connection.execute(
                "UPDATE idempotency SET state = ?, result = ?, touched_at = ?, expires_at = ?,"
                f" boot = ?, began_steady = ?, ends_steady = ? WHERE {_SCOPE} AND token = ?"
                f" AND state IN ({', '.join('?' * len(from_))})",
                (
                    *(state, text, *life.columns),
                    *(run.tenant, run.tool, run.key_hash, run.token, *from_),
                ),
            )
            return done.rowcount == 1

    def _text(self, tool: str, result: object) -> str | None:
        if result is NO_RESULT:
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
        if started is None or self._store is None:
            return
        try:
            if not self._store.finish(started, state, result):
                guard.note(
                    "idempotency",
                    "a run of tool %s ended after its lease, and another one had replaced it",
                    started.tool,
                )
        except Exception as error:  # noqa: BLE001 - the end will be unknown, and the tool is not harmed
            guard.note(
                "idempotency",
                "the end of tool %s could not be recorded (%s); it will be unknown",
                started.tool,
                type(error).__name__,
            )


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
            return self.store.begin(
                tool=self.tool,
                key_hash=self.key_hash,
                fingerprint=self.fingerprint,
                tenant=self.tenant,
                repeatable=self.repeatable,
            )
        except StoreError as error:
            if self.required:
                raise
            guard.note("idempotency", "tool %s runs without its key (%s)", self.tool, error)
            return None

    def run(self, found: Beginning | None) -> Run:
        """What the pipeline gets.

        Raises:
            IdempotencyError: The call must not run.
        """
        if found is None or isinstance(found, Started):
            return Run(self.store, found, None)
        return Run(None, None, replay_of(found, self.tool))

    def resolve(self, unknown: Unknown, answer: object) -> bool:
        """Whether an answer about an unknown end was one."""
        if answer is None:
            return False
        if not isinstance(answer, Reconciled):
            guard.note("idempotency", "reconcile of tool %s must return Reconciled", self.tool)
            return False
        self.store.resolve(unknown, answer)
        return True

    def failed(self, error: Exception) -> None:
        guard.note(
            "idempotency", "reconcile of tool %s failed (%s)", self.tool, type(error).__name__
        )


def replay_of(found: Replay | Conflict | InProgress | Unknown, tool: str) -> Replay:
    """What to give back instead of running.

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
        raise CallInProgress(f"tool {tool!r} is running with this key; ask again when it has ended")
    raise OutcomeUnknown(
        f"tool {tool!r} was called with this key, and nobody knows whether it took effect; "
        "find out, and give the tool a reconcile function or say what you found: toolverdict keys"
    )


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
        found = asked.begin()
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
            if asked.resolve(found, answer):
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
