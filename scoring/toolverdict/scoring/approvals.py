"""Whether the approval that a call needed is good: granted, in time, unused, and for this very call.

A span says under which id a call was approved and with which status; two calls of one trajectory with
one id, or with other arguments under it, are told from spans alone. When it ends and who gave it
stand in the approval store and the audit log (:class:`Approvals`); without them nothing is claimed of
that.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

from toolverdict.instrument import semconv
from toolverdict.instrument.likeness import folded
from toolverdict.instrument.names import bare_name
from toolverdict.scoring.errors import InputError
from toolverdict.scoring.model import ToolCall, Trajectory

GRANTED: Final = frozenset({"approved", "consumed"})
REJECTED: Final = "rejected"
_EXPIRED: Final = "expired"
_MISMATCH: Final = "approval_mismatch"
_MAX_ROWS: Final = 5_000_000


class ApprovalFault(StrEnum):
    """What is wrong with an approval; the values are those of :class:`Category`."""

    MISSING = "approval_missing"
    DENIED = "approval_denied"
    EXPIRED = "approval_expired"
    REUSED = "approval_reused"
    MISMATCH = "approval_mismatch"


@dataclass(frozen=True, slots=True)
class Given:
    """What is on record of one approval; None is not known. Times in nanoseconds since the epoch."""

    tool: str | None = None
    args_hash: str | None = None
    status: str | None = None
    requester: str | None = None
    approver: str | None = None
    expires_ns: int | None = None
    uses: int = 0


class Approvals:
    """What is on record of approvals, by id."""

    def __init__(self, given: Mapping[str, Given] | None = None) -> None:
        self._given = dict(given or {})

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read an approval store, an audit log, or the file of both.

        Whether somebody changed them is not asked here: ``audit verify`` and ``approvals`` do, with
        the key.

        Raises:
            InputError: it is neither, or cannot be read.
        """
        try:
            with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as file:
                file.row_factory = sqlite3.Row
                names = {row["name"] for row in file.execute("SELECT name FROM sqlite_master")}
                if names & {"approval", "audit"}:
                    stored = dict(_of_store(file)) if "approval" in names else {}
                    logged = _of_log(file) if "audit" in names else {}
                    return cls({**logged, **_counted(stored, logged)})
        except (sqlite3.Error, OSError, ValueError, RecursionError) as error:
            raise InputError(f"{path}: cannot be read: {error}") from error
        raise InputError(f"{path}: is neither an approval store nor an audit log; name one of them")

    def faults(self, trajectory: Trajectory) -> dict[int, ApprovalFault]:
        """What is wrong with the approvals of calls, by the index of the call.

        Of a call that a person or the policy stopped nothing is wrong: it has not run.
        """
        found: dict[int, ApprovalFault] = {}
        used: dict[str, ToolCall] = {}
        for place in trajectory.calls:
            call = place.call
            if call.executed is False:
                continue
            fault = self._fault(call, used.get(call.approval_id or ""))
            if fault is not None:
                found[place.index] = fault
            if call.approval_id is not None and call.approval_status in GRANTED:
                used.setdefault(call.approval_id, call)
        return found

    def _fault(self, call: ToolCall, before: ToolCall | None) -> ApprovalFault | None:
        status = call.approval_status
        if call.policy_reason_code == _MISMATCH:
            return ApprovalFault.MISMATCH
        if status == REJECTED:
            return ApprovalFault.DENIED
        if status == _EXPIRED:
            return ApprovalFault.EXPIRED
        if status not in GRANTED:
            return ApprovalFault.MISSING
        if before is not None:
            return ApprovalFault.REUSED if _same(before, call) else ApprovalFault.MISMATCH
        given = self._given.get(call.approval_id or "")
        return None if given is None else _against(given, call)


NO_APPROVALS: Final = Approvals()
"""Nothing on record beside the spans."""


def _same(before: ToolCall, call: ToolCall) -> bool:
    """Whether two calls under one approval are calls of one tool with the same arguments."""
    if bare_name(before.tool) != bare_name(call.tool):
        return False
    if before.args_hash and call.args_hash:
        return before.args_hash == call.args_hash
    return bool(before.arguments == call.arguments)


def _against(given: Given, call: ToolCall) -> ApprovalFault | None:
    if given.status == REJECTED:
        return ApprovalFault.DENIED
    if given.tool is not None and bare_name(given.tool) != bare_name(call.tool):
        return ApprovalFault.MISMATCH
    if given.args_hash and call.args_hash and given.args_hash != call.args_hash:
        return ApprovalFault.MISMATCH
    approver = given.approver or call.approver
    if approver and given.requester and folded(approver) == folded(given.requester):
        return ApprovalFault.MISMATCH  # nobody approves what he asked for
    if given.expires_ns is not None and call.start_ns > given.expires_ns:
        return ApprovalFault.EXPIRED
    return ApprovalFault.REUSED if given.uses > 1 else None


def _counted(stored: Mapping[str, Given], logged: Mapping[str, Given]) -> dict[str, Given]:
    """What the store says, and how often the log says that it was used."""
    return {
        id: replace(given, uses=logged[id].uses) if id in logged else given
        for id, given in stored.items()
    }


def _of_store(file: sqlite3.Connection) -> Iterator[tuple[str, Given]]:
    rows = file.execute(
        "SELECT id, status, requester, decided_by, expires_at, content FROM approval LIMIT ?",
        (_MAX_ROWS,),
    )
    for row in rows:
        content = _object(row["content"])
        yield (
            row["id"],
            Given(
                tool=_text(content.get("tool")),
                args_hash=_text(content.get("args_hash")),
                status=row["status"],
                requester=row["requester"],
                approver=row["decided_by"],
                expires_ns=row["expires_at"] * 1_000_000,
            ),
        )


def _of_log(file: sqlite3.Connection) -> dict[str, Given]:
    """Of the intents of a log: what the first call under an approval was, and how many there were."""
    found: dict[str, Given] = {}
    for row in file.execute("SELECT body FROM audit WHERE type = 'intent' LIMIT ?", (_MAX_ROWS,)):
        body = _object(row["body"])
        approval = _text(body.get(semconv.APPROVAL_ID))
        if approval is None:
            continue
        first = found.get(approval)
        found[approval] = Given(
            tool=_text(body.get("tool")) if first is None else first.tool,
            args_hash=_text(body.get(semconv.TOOL_ARGS_HASH)) if first is None else first.args_hash,
            status=_text(body.get(semconv.APPROVAL_STATUS)),
            uses=1 if first is None else first.uses + 1,
        )
    return found


def _object(text: str) -> dict[str, Any]:
    read = json.loads(text)
    return read if isinstance(read, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
