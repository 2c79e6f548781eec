"""Approvals that outlive the process: asked for once, given by somebody else, used up exactly once.

::

    requested ──▶ approved ──▶ consumed
        │             └──────▶ expired
        └──▶ rejected | expired | cancelled

No other way exists, in this module and in triggers of the table. An approval is bound to one action
(``action_digest``), so other arguments, another policy, tool version, agent or conversation are
another request. It is used up by one guarded UPDATE *before* the body runs: a process that dies
afterwards leaves an approval that is gone, never one that is still good.

Who decides is not who asks, by whatever spelling: names with hidden characters are refused, and a
name that only looks like that of who asks is theirs. Who may decide is another matter: those names
are compared letter by letter, but for case and width.

Each row is authenticated with a key derived from the hash key. Who can write to the database and
has not the key can delete, and bring back a row as it once was, but not approve. Who has the key,
as the agent's process does, can: run agents where they do not decide about themselves.
"""

import asyncio
import hashlib
import hmac
import json
import os
import sqlite3
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal, Self, cast, get_args

import rfc8785

from toolverdict.instrument import guard
from toolverdict.instrument.approvals import Approval, ApprovalRequest, new_approval_id
from toolverdict.instrument.canonical import canonicalise
from toolverdict.instrument.errors import ConfigurationError, StoreError, TransitionRefused
from toolverdict.instrument.hashing import HashKey
from toolverdict.instrument.likeness import folded, is_hidden, skeleton
from toolverdict.instrument.stores import row_keys
from toolverdict.instrument.stores.clocks import COLUMNS, SYSTEM, Clock, Lifetime
from toolverdict.instrument.stores.sqlite_file import SqliteFile, without_blocking
from toolverdict.instrument.stores.webhook import Webhook

StoredStatus = Literal["requested", "approved", "rejected", "expired", "cancelled", "consumed"]
ApproverKind = Literal["human", "service", "llm_advisory"]

TTL_S: Final = 3600.0
REJECTION_HOLDS_S: Final = 3600.0
KEEP_S: Final = 30 * 86400.0
TELL_AGAIN_S: Final = 60.0
"""After how long a webhook that was not heard of again has told nobody."""
MAX_TEXT: Final = 4096
"""Longest name or note, in characters."""

_PRUNE_EVERY_MS: Final = 600_000
_SETTLED_AT_ONCE: Final = 100
_KINDS: Final = get_args(ApproverKind)

_TABLE: Final = """
CREATE TABLE approval (
  id TEXT PRIMARY KEY,
  status TEXT NOT NULL CHECK (
    status IN ('requested', 'approved', 'rejected', 'expired', 'cancelled', 'consumed')),
  action_digest TEXT NOT NULL,
  requester TEXT NOT NULL,
  agent TEXT,
  subject TEXT,
  content TEXT NOT NULL,
  presented_hash TEXT NOT NULL,
  max_uses INTEGER NOT NULL CHECK (max_uses = 1),
  created_at INTEGER NOT NULL,
  touched_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  boot TEXT,
  began_steady INTEGER NOT NULL,
  ends_steady INTEGER NOT NULL,
  decided_by TEXT,
  decided_kind TEXT CHECK (decided_kind IN ('human', 'service')),
  decided_at INTEGER,
  note TEXT NOT NULL DEFAULT '',
  advice TEXT NOT NULL DEFAULT '[]',
  consumed_by TEXT,
  consumed_at INTEGER,
  asked_at INTEGER,
  mac TEXT NOT NULL,
  CHECK (decided_by IS NULL OR (
    decided_by <> requester COLLATE NOCASE
    AND (agent IS NULL OR decided_by <> agent COLLATE NOCASE)
    AND (subject IS NULL OR decided_by <> subject COLLATE NOCASE))),
  CHECK (status NOT IN ('approved', 'consumed', 'rejected')
    OR (decided_by IS NOT NULL AND decided_kind IS NOT NULL AND decided_at IS NOT NULL)),
  CHECK ((status = 'consumed') = (consumed_at IS NOT NULL))
) STRICT"""

_SCHEMA: Final = (
    (
        _TABLE,
        "CREATE UNIQUE INDEX approval_open ON approval (action_digest)"
        " WHERE status IN ('requested', 'approved')",
        "CREATE INDEX approval_digest ON approval (action_digest, created_at)",
        """
CREATE TRIGGER approval_way BEFORE UPDATE ON approval
WHEN NOT (
  OLD.status = NEW.status AND NEW.status = 'requested'
  OR OLD.status = 'requested' AND NEW.status IN ('approved', 'rejected', 'expired', 'cancelled')
  OR OLD.status = 'approved' AND NEW.status IN ('consumed', 'expired'))
BEGIN SELECT RAISE(ABORT, 'an approval does not go this way'); END""",
        """
CREATE TRIGGER approval_bound BEFORE UPDATE ON approval
WHEN OLD.id <> NEW.id OR OLD.action_digest <> NEW.action_digest OR OLD.content <> NEW.content
  OR OLD.requester <> NEW.requester OR OLD.presented_hash <> NEW.presented_hash
  OR OLD.expires_at <> NEW.expires_at OR OLD.created_at <> NEW.created_at
BEGIN SELECT RAISE(ABORT, 'what an approval is for does not change'); END""",
    ),
    (
        # Up to here asked_at said that somebody was told; now it says since when it is tried.
        "ALTER TABLE approval ADD COLUMN told_at INTEGER",
        "UPDATE approval SET told_at = asked_at WHERE status = 'requested'",
        "CREATE INDEX approval_expiry ON approval (expires_at)",
    ),
)

_UNAUTHENTICATED: Final = frozenset({"mac", "asked_at", "told_at"})
"""Whether somebody was told of a request has no part in what it allows."""


def action_digest(
    *,
    tenant: str,
    env: str,
    agent: str | None,
    subject: str | None,
    tool: str,
    schema_version: str,
    args_hash: str,
    args_hash_key_id: str,
    policy_digest: str,
) -> str:
    """What an approval is for, in one value: SHA-256 over RFC 8785 JSON of all that it depends on.

    It discloses nothing: of the arguments it knows a keyed hash only.
    """
    document: dict[str, Any] = {
        "v": 1,
        "tenant": tenant,
        "env": env,
        "agent": agent,
        "subject": subject,
        "tool": tool,
        "schema_version": schema_version,
        "args_hash": args_hash,
        "args_hash_key_id": args_hash_key_id,
        "policy_digest": policy_digest,
    }
    return "sha256:" + hashlib.sha256(rfc8785.dumps(document)).hexdigest()


@dataclass(frozen=True, slots=True)
class ApprovalRecord:
    """One approval, as it is stored. Times are milliseconds since 1970, UTC.

    Args:
        id: Its id.
        status: Where it is on its way.
        action_digest: What it is for.
        requester: Who asks; never the one who decides.
        content: What there is to see of the request: the parts of ``action_digest``, labels, rules,
            reason, and the ``arguments`` in canonical form if they were stored.
        presented_hash: The keyed hash of ``content``.
        max_uses: How many calls it lets run: one.
        created_at: When it was asked for.
        expires_at: When it ends.
        decided_by: Who decided.
        decided_kind: ``human`` or ``service``.
        decided_at: When.
        note: What they said about it.
        advice: What advisers said, who decide nothing: ``by``, ``verdict`` and ``note`` of each.
        consumed_by: The call that it let run.
        consumed_at: When.
        asked: Whether a webhook has told somebody.
        intact: Whether the row is what this toolverdict wrote. Nothing can be done with one that
            is not, or was written with another hash key.
    """

    id: str
    status: StoredStatus
    action_digest: str
    requester: str
    content: Mapping[str, Any]
    presented_hash: str
    max_uses: int
    created_at: int
    expires_at: int
    decided_by: str | None
    decided_kind: str | None
    decided_at: int | None
    note: str
    advice: tuple[Mapping[str, str], ...]
    consumed_by: str | None
    consumed_at: int | None
    asked: bool
    intact: bool

    @property
    def tool(self) -> str:
        """The tool that wants to run."""
        return str(self.content.get("tool", ""))

    @property
    def arguments(self) -> str | None:
        """The arguments as canonical JSON; None when they were not stored."""
        arguments = self.content.get("arguments")
        return arguments if isinstance(arguments, str) else None

    def as_json(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        document = {name: getattr(self, name) for name in self.__slots__}
        return {
            **document,
            "content": dict(self.content),
            "advice": [dict(advice) for advice in self.advice],
        }


class ApprovalStore:
    """Approvals in an SQLite file, for any number of processes of one machine.

    Args:
        path: The file; made if it is not there.
        key: Authenticates the rows: bytes, hexadecimal text or a ``HashKey``; None takes the hash
            key of ``configure`` or of the environment when it is first needed. It must outlive the
            process.
        ttl_s: How long a request, and the approval that it becomes, is good for, counted from the
            request.
        rejection_holds_s: How long a rejection is the answer to the same request.
        keep_s: How long an approval is remembered after its time was over.
        approvers: Who may decide; None is everybody but the requester. Asked again when an
            approval is used, so that somebody who was removed has not approved.
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
        ttl_s: float = TTL_S,
        rejection_holds_s: float = REJECTION_HOLDS_S,
        keep_s: float = KEEP_S,
        approvers: Collection[str] | None = None,
        create: bool = True,
        clock: Clock = SYSTEM,
    ) -> None:
        if not 0 < ttl_s <= 366 * 86400:
            raise ConfigurationError("ttl_s must be more than 0 and at most a year")
        self._key = row_keys.made(key)
        self._ttl_ms = int(ttl_s * 1000)
        self._rejection_ms = int(rejection_holds_s * 1000)
        self._keep_ms = int(max(keep_s, rejection_holds_s) * 1000)
        self._pruned_at: int | None = None
        self._approvers = None if approvers is None else frozenset(map(folded, approvers))
        self._clock = clock
        self._file = SqliteFile(path, "approval", _SCHEMA, create=create)

    def __enter__(self) -> Self:
        """The file is open already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file for good."""
        self._file.close()

    def _ttl_of(self, request: ApprovalRequest) -> int:
        """Milliseconds that a request is good for: the policy may want less than the store."""
        if request.ttl_s is None:
            return self._ttl_ms
        return min(self._ttl_ms, int(request.ttl_s * 1000))

    def request(
        self,
        request: ApprovalRequest,
        *,
        tenant: str = "",
        env: str = "",
        requester: str | None = None,
        subject: str | None = None,
        store_arguments: bool = False,
    ) -> ApprovalRecord:
        """Ask, unless the same was asked before.

        Returns:
            The record of the request; or the one that is pending, approved, or was rejected a
            short while ago, for the same action.

        Args:
            request: What the pipeline asks.
            tenant: Whose data the agent works on.
            env: The environment: an approval for staging is none for production.
            requester: Who asks; None is the agent.
            subject: On whose behalf, or in which run; None is the conversation.
            store_arguments: Whether the arguments are stored, for those who decide to see.

        Raises:
            StoreError: The file cannot be used, or somebody has changed the earlier record.
        """
        if not request.args_hash:
            raise StoreError("arguments without a hash cannot be approved")
        bound: dict[str, Any] = {
            "tenant": tenant,
            "env": env,
            "agent": request.agent,
            "subject": request.conversation_id if subject is None else subject,
            "tool": request.tool,
            "schema_version": request.schema_version,
            "args_hash": request.args_hash,
            "args_hash_key_id": request.args_hash_key_id or self._secret().id,
            "policy_digest": request.policy_digest,
        }
        content = {
            **bound,
            "v": 1,
            "labels": list(request.labels),
            "policy_id": request.policy_id,
            "rule_ids": list(request.rule_ids),
            "reason": request.reason,
            "call_id": request.call_id,
        }
        if request.approvers is not None:
            content["approvers"] = sorted(request.approvers)
        if store_arguments:
            content["arguments"] = canonicalise(request.arguments).decode()
        text = rfc8785.dumps(content).decode()
        digest = action_digest(**bound)
        who = requester or request.agent or "agent"
        with self._file.writing() as connection:
            found = connection.execute(
                "SELECT * FROM approval WHERE action_digest = ? ORDER BY created_at DESC, rowid DESC",
                (digest,),
            ).fetchall()
            for row in found:
                row = self._settled(connection, row)
                if self._answers(row):
                    record = self._record(row)
                    if not record.intact:
                        raise StoreError(f"{self._file.path}: {_not_intact(record.id)}")
                    return record
            self._prune(connection)
            life = Lifetime.of(self._clock, self._ttl_of(request))
            fresh: dict[str, Any] = {
                "id": new_approval_id(),
                "status": "requested",
                "action_digest": digest,
                "requester": _text("requester", who),
                "agent": bound["agent"],
                "subject": bound["subject"],
                "content": text,
                "presented_hash": self._presented(text),
                "max_uses": 1,
                "created_at": life.touched_at,
                **dict(zip(COLUMNS, life.columns, strict=True)),
                "decided_by": None,
                "decided_kind": None,
                "decided_at": None,
                "note": "",
                "advice": "[]",
                "consumed_by": None,
                "consumed_at": None,
                "asked_at": None,
                "told_at": None,
            }
            fresh["mac"] = self._mac(fresh)
            connection.execute(
                f"INSERT INTO approval ({', '.join(fresh)}) VALUES ({_marks(fresh)})",
                tuple(fresh.values()),
            )
            return self._record(fresh)

    def approve(
        self,
        approval_id: str,
        by: str,
        kind: ApproverKind = "human",
        note: str = "",
        *,
        seen: str | None = None,
    ) -> ApprovalRecord:
        """Say yes. What an ``llm_advisory`` says is kept as advice, and decides nothing.

        Args:
            approval_id: The approval.
            by: Who says so.
            kind: What they are.
            note: What they say about it.
            seen: The ``presented_hash`` of what they saw; checked if given.

        Raises:
            TransitionRefused: It is not pending, they may not decide, or saw something else.
            StoreError: The file cannot be used.
        """
        return self._decide(approval_id, "approved", by, kind, note, seen)

    def reject(
        self,
        approval_id: str,
        by: str,
        kind: ApproverKind = "human",
        note: str = "",
        *,
        seen: str | None = None,
    ) -> ApprovalRecord:
        """Say no; the rest is as with ``approve``."""
        return self._decide(approval_id, "rejected", by, kind, note, seen)

    def cancel(self, approval_id: str, note: str = "") -> ApprovalRecord:
        """Withdraw a request that nobody has decided about.

        Raises:
            TransitionRefused: It is not pending.
            StoreError: The file cannot be used.
        """
        changes = {"note": _text("note", note, empty=True)}
        return self._move(approval_id, "requested", "cancelled", changes)

    def consume(
        self,
        approval_id: str,
        *,
        action_digest: str,
        by: str = "",
        approvers: Collection[str] | None = None,
    ) -> ApprovalRecord:
        """Use an approval up, before what it is for runs.

        Args:
            approval_id: The approval.
            action_digest: What it must be for.
            by: The call that uses it.
            approvers: Who may have given it, besides what the request and the store say; None is
                everybody.

        Raises:
            TransitionRefused: It is not approved, no longer, for something else, or used up.
            StoreError: The file cannot be used.
        """
        changes = {"consumed_by": by, "consumed_at": self._clock.wall_ms()}
        return self._move(
            approval_id,
            "approved",
            "consumed",
            changes,
            digest=action_digest,
            approvers=None if approvers is None else frozenset(map(folded, approvers)),
        )

    def get(self, approval_id: str) -> ApprovalRecord | None:
        """One approval; None if there is none with this id."""
        with self._file.reading() as connection:
            row = _find(connection, approval_id)
        if row is not None and self._is_over(row):
            with self._file.writing() as connection:
                row = _find(connection, approval_id)
                row = None if row is None else self._settled(connection, row)
        return None if row is None else self._record(row)

    def list(self, status: StoredStatus | None = None) -> tuple[ApprovalRecord, ...]:
        """All approvals, or those of one status, the oldest first. Keeps nobody from writing."""
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT * FROM approval ORDER BY created_at, rowid"
            ).fetchall()
        over = [row["id"] for row in rows if self._is_over(row)]
        self._settle(over)
        expired = frozenset(over)
        records = [
            replace(self._record(row), status="expired")
            if row["id"] in expired
            else self._record(row)
            for row in rows
        ]
        return tuple(record for record in records if status in (None, record.status))

    def prune(self) -> int:
        """Forget the approvals whose time was over long ago; how many."""
        with self._file.writing(durable=False) as connection:
            return self._prune(connection, now=True)

    def _prune(self, connection: sqlite3.Connection, *, now: bool = False) -> int:
        steady = self._clock.steady_ms()
        if not now and self._pruned_at is not None and steady < self._pruned_at + _PRUNE_EVERY_MS:
            return 0
        self._pruned_at = steady
        # Both times: a rejection is remembered after the time that the request would have had.
        long_ago = self._clock.wall_ms() - self._keep_ms
        return connection.execute(
            "DELETE FROM approval WHERE expires_at < ? AND touched_at < ?", (long_ago, long_ago)
        ).rowcount

    def _settle(self, over: Collection[str]) -> None:
        """Store that approvals have expired, a few at a time, so that nobody waits for long."""
        waiting = [*over]
        for start in range(0, len(waiting), _SETTLED_AT_ONCE):
            with self._file.writing(durable=False) as connection:
                for approval_id in waiting[start : start + _SETTLED_AT_ONCE]:
                    row = _find(connection, approval_id)
                    if row is not None:
                        self._settled(connection, row)

    def approver(
        self,
        *,
        tenant: str = "",
        env: str = "",
        requester: str | None = None,
        subject: str | None = None,
        store_arguments: bool = False,
        wait_s: float = 0.0,
        poll_s: float = 0.5,
        webhook: Webhook | None = None,
    ) -> "StoreApprover":
        """What ``configure(approver=...)`` takes: asks here, waits, and uses the approval up.

        Args:
            tenant: As in ``request``.
            env: As in ``request``.
            requester: As in ``request``.
            subject: As in ``request``.
            store_arguments: As in ``request``.
            wait_s: How long a call waits for the answer before it raises ``ApprovalRequired``.
            poll_s: How often it looks meanwhile.
            webhook: Told of every new request.
        """
        asking = {
            "tenant": tenant,
            "env": env,
            "requester": requester,
            "subject": subject,
            "store_arguments": store_arguments,
        }
        if wait_s < 0 or poll_s <= 0:
            raise ConfigurationError("wait_s must not be less than 0, and poll_s more than 0")
        return StoreApprover(self, asking, wait_s, poll_s, webhook)

    def tell(self, record: ApprovalRecord, webhook: Webhook) -> bool:
        """Tell somebody of a pending request, once; whether that was this time.

        One that could not be told stays pending, and is told of again when it is asked for again;
        at the latest after ``TELL_AGAIN_S``, should the process that was telling have died.
        """
        now = self._clock.wall_ms()
        with self._file.writing(durable=False) as connection:
            claimed = connection.execute(
                "UPDATE approval SET asked_at = ? WHERE id = ? AND status = 'requested'"
                " AND told_at IS NULL"
                " AND (asked_at IS NULL OR asked_at <= ? OR asked_at > ?)",
                (now, record.id, now - int(TELL_AGAIN_S * 1000), now),
            ).rowcount
        if claimed != 1:
            return False
        document = {
            "v": 1,
            "event": "approval.requested",
            "id": record.id,
            "action_digest": record.action_digest,
            "presented_hash": record.presented_hash,
            "requester": record.requester,
            "expires_at": record.expires_at,
            "content": dict(record.content),
        }
        told = webhook.post(document)
        with self._file.writing(durable=False) as connection:
            connection.execute(
                "UPDATE approval SET asked_at = ?, told_at = ? WHERE id = ? AND status = 'requested'",
                (*((now, self._clock.wall_ms()) if told else (None, None)), record.id),
            )
        return told

    def _decide(
        self,
        approval_id: str,
        to: Literal["approved", "rejected"],
        by: str,
        kind: ApproverKind,
        note: str,
        seen: str | None,
    ) -> ApprovalRecord:
        if kind not in _KINDS:
            raise ConfigurationError(f"kind must be one of {', '.join(_KINDS)}")
        by, note = _name(by), _text("note", note, empty=True)
        if kind == "llm_advisory":
            advice = {"by": by, "verdict": to, "note": note}
            return self._move(approval_id, "requested", "requested", {}, seen=seen, advice=advice)
        if not self._may_decide(by):
            raise TransitionRefused(f"{approval_id}: {by!r} is not among those who may decide")
        changes = {
            "decided_by": by,
            "decided_kind": kind,
            "decided_at": self._clock.wall_ms(),
            "note": note,
        }
        return self._move(approval_id, "requested", to, changes, seen=seen)

    def _move(
        self,
        approval_id: str,
        from_: StoredStatus,
        to: StoredStatus,
        changes: dict[str, Any],
        *,
        digest: str | None = None,
        seen: str | None = None,
        advice: Mapping[str, str] | None = None,
        approvers: frozenset[str] | None = None,
    ) -> ApprovalRecord:
        # What time has done to the row is kept even if the move is refused: hence no raise inside.
        with self._file.writing() as connection:
            row = _find(connection, approval_id)
            if row is not None:
                row = self._settled(connection, row)
            refused = self._objection(row, from_, to, changes, digest, seen)
            if refused is None and row is not None and to in ("approved", "rejected", "consumed"):
                decider = changes.get("decided_by") or row["decided_by"]
                allowed = (_named_in(row), approvers)
                if any(names is not None and folded(decider) not in names for names in allowed):
                    refused = f"{decider!r} is not among those who may decide"
            if row is not None and refused is None:
                if advice is not None:
                    changes["advice"] = json.dumps([*json.loads(row["advice"]), advice])
                moved = self._update(connection, row, to, changes)
                if moved is not None:
                    return self._record(moved)
                refused = "somebody was quicker"
        raise TransitionRefused(f"{approval_id}: {refused}")

    def _objection(
        self,
        row: Mapping[str, Any] | None,
        from_: StoredStatus,
        to: StoredStatus,
        changes: Mapping[str, Any],
        digest: str | None,
        seen: str | None,
    ) -> str | None:
        if row is None:
            return "there is no approval with this id"
        if not self._is_intact(row):
            return _not_intact(row["id"])
        if row["status"] != from_:
            return f"it is {row['status']} and cannot become {to}"
        if digest is not None and not row_keys.same(digest, row["action_digest"]):
            return "it is for another action"
        if seen is not None and not row_keys.same(row["presented_hash"], seen):
            return "what was seen is not what is asked"
        decider = changes.get("decided_by")
        asking = {_likeness(row[name]) for name in ("requester", "agent", "subject") if row[name]}
        if decider is not None and _likeness(decider) in asking:
            return "who asks does not decide"
        return None

    def _update(
        self,
        connection: sqlite3.Connection,
        row: Mapping[str, Any],
        to: StoredStatus,
        changes: Mapping[str, Any],
    ) -> dict[str, Any] | None:
        """The guarded UPDATE: this row, exactly as it was read, and alive; None if it is not."""
        wall = self._clock.wall_ms()
        moved = {**dict(row), **changes, "status": to, "touched_at": max(row["touched_at"], wall)}
        moved["mac"] = self._mac(moved)
        names = ("status", "touched_at", "mac", *changes)
        alive = "" if to == "expired" else " AND expires_at > ?"
        done = connection.execute(
            f"UPDATE approval SET {', '.join(f'{name} = ?' for name in names)}"
            f" WHERE id = ? AND status = ? AND action_digest = ? AND mac = ?{alive}",
            (
                *(moved[name] for name in names),
                *(row[name] for name in ("id", "status", "action_digest", "mac")),
                *(() if to == "expired" else (wall,)),
            ),
        )
        return moved if done.rowcount == 1 else None

    def _settled(self, connection: sqlite3.Connection, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The row, expired if its time is over; once seen, that is stored and stays."""
        if not self._is_over(row):
            return row
        return self._update(connection, row, "expired", {}) or row

    def _is_over(self, row: Mapping[str, Any]) -> bool:
        if row["status"] not in ("requested", "approved") or not self._is_intact(row):
            return False
        removed = row["status"] == "approved" and not self._may_decide(row["decided_by"])
        return removed or Lifetime.of_row(row).is_over(self._clock)

    def _answers(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is the answer to the same request, so that nobody is asked again."""
        if row["status"] in ("requested", "approved"):
            return True
        if row["status"] != "rejected":
            return False
        # A wall that was set back is earlier than the rejection: then it holds, too.
        return bool(self._clock.wall_ms() < row["decided_at"] + self._rejection_ms)

    def _may_decide(self, by: str) -> bool:
        return self._approvers is None or folded(by) in self._approvers

    def _record(self, row: Mapping[str, Any]) -> ApprovalRecord:
        try:
            content, advice = json.loads(row["content"]), json.loads(row["advice"])
            legible = isinstance(content, dict) and isinstance(advice, list)
        except (ValueError, RecursionError):
            legible = False
        if not legible:
            content, advice = {}, []
        return ApprovalRecord(
            id=row["id"],
            status=row["status"],
            action_digest=row["action_digest"],
            requester=row["requester"],
            content=MappingProxyType(content),
            presented_hash=row["presented_hash"],
            max_uses=row["max_uses"],
            created_at=row["created_at"],
            expires_at=row["expires_at"],
            decided_by=row["decided_by"],
            decided_kind=row["decided_kind"],
            decided_at=row["decided_at"],
            note=row["note"],
            advice=tuple(MappingProxyType(item) for item in advice if isinstance(item, dict)),
            consumed_by=row["consumed_by"],
            consumed_at=row["consumed_at"],
            asked=row["told_at"] is not None,
            intact=legible and self._is_intact(row),
        )

    def _is_intact(self, row: Mapping[str, Any]) -> bool:
        self._secret()  # without one nobody can say, and that is no damage
        try:
            return row_keys.same(self._mac(row), row["mac"]) and row_keys.same(
                self._presented(row["content"]), row["presented_hash"]
            )
        except Exception:  # noqa: BLE001 - somebody else's row may hold anything
            return False

    def _mac(self, row: Mapping[str, Any]) -> str:
        columns = {name: row[name] for name in dict(row) if name not in _UNAUTHENTICATED}
        return self._keyed(b"approval-row/1", rfc8785.dumps(columns))

    def _presented(self, content: str) -> str:
        # Keyed, since what is shown may hold the arguments.
        return "hmac-sha256:" + self._keyed(b"approval-presented/1", content.encode())

    def _keyed(self, domain: bytes, message: bytes) -> str:
        return hmac.digest(self._secret().secret, domain + b"\0" + message, "sha256").hex()

    def _secret(self) -> HashKey:
        if self._key is None:
            self._key = row_keys.lasting(None, "approvals need")
        return self._key


class StoreApprover:
    """An approver for ``configure``: an approved call runs once, and the approval is gone.

    Called for a sync tool it may block the thread; for an async tool the pipeline awaits
    ``ask_async``. An approval that is taken is used up even if the call is then denied, because its
    arguments changed meanwhile.
    """

    def __init__(
        self,
        store: ApprovalStore,
        asking: Mapping[str, Any],
        wait_s: float,
        poll_s: float,
        webhook: Webhook | None,
    ) -> None:
        self._store = store
        self._asking = asking
        self._wait_s = wait_s
        self._poll_s = poll_s
        self._webhook = webhook

    def __call__(self, request: ApprovalRequest) -> Approval:
        """Ask, wait, take."""
        asked = self._store.request(request, **self._asking)
        if self._webhook is not None and asked.status == "requested":
            self._tell(asked)
        deadline = time.monotonic() + self._wait_s
        while True:
            answer = self._answer(asked, request)
            if answer.status != "requested" or time.monotonic() >= deadline:
                return answer
            time.sleep(min(self._poll_s, max(0.0, deadline - time.monotonic())))

    async def ask_async(self, request: ApprovalRequest) -> Approval:
        """The same, while the event loop goes on."""
        asked = await without_blocking(lambda: self._store.request(request, **self._asking))
        if self._webhook is not None and asked.status == "requested":
            await asyncio.to_thread(self._tell, asked)
        deadline = time.monotonic() + self._wait_s
        while True:
            answer = await without_blocking(lambda: self._answer(asked, request))
            if answer.status != "requested" or time.monotonic() >= deadline:
                return answer
            await asyncio.sleep(min(self._poll_s, max(0.0, deadline - time.monotonic())))

    def _tell(self, asked: ApprovalRecord) -> None:
        assert self._webhook is not None
        try:
            self._store.tell(asked, self._webhook)
        except StoreError as error:
            guard.note("webhook", "a request could not be told (%s)", type(error).__name__)

    def _answer(self, asked: ApprovalRecord, request: ApprovalRequest) -> Approval:
        """The answer of this moment; a yes is used up by asking."""
        record = self._store.get(asked.id)
        if record is None or not record.intact:
            raise StoreError(_not_intact(asked.id))
        status = record.status
        if status == "approved":
            try:
                record = self._store.consume(
                    asked.id,
                    action_digest=asked.action_digest,
                    by=request.call_id,
                    approvers=request.approvers,
                )
            except TransitionRefused:
                # Another call, or the time, was quicker.
                return Approval(asked.id, "expired", args_hash=request.args_hash)
            return Approval(asked.id, "approved", record.decided_by, request.args_hash)
        if status == "consumed":
            status = "expired"
        return Approval(asked.id, status, record.decided_by, request.args_hash)


def _find(connection: sqlite3.Connection, approval_id: str) -> Mapping[str, Any] | None:
    row = connection.execute("SELECT * FROM approval WHERE id = ?", (approval_id,)).fetchone()
    return cast("Mapping[str, Any] | None", row)


def _not_intact(approval_id: str) -> str:
    return f"{approval_id} was changed by somebody else, or written with another hash key"


def _text(what: str, given: object, *, empty: bool = False) -> str:
    if not isinstance(given, str) or len(given) > MAX_TEXT or not (empty or given.strip()):
        raise ConfigurationError(f"{what} must be a text of 1 to {MAX_TEXT} characters")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{what} is no text that can be written as UTF-8") from None
    return given


def _name(given: object) -> str:
    """Who decides; a name whose letters cannot all be seen is nobody's."""
    name = _text("by", given)
    if any(map(is_hidden, name)) or "\n" in name or "\t" in name:
        raise ConfigurationError("by holds characters that cannot be seen")
    return name


def _likeness(name: str) -> str:
    """What names have in common that a reader takes for each other."""
    return " ".join(skeleton(name).split())


def _named_in(row: Mapping[str, Any]) -> frozenset[str] | None:
    """Who may decide about a request, as the policy said when it was made."""
    named = json.loads(row["content"]).get("approvers")
    return None if named is None else frozenset(map(folded, named))


def _marks(columns: Collection[str]) -> str:
    return ", ".join("?" * len(columns))
