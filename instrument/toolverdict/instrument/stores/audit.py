"""A record of every call that nobody can change unseen: a chain of keyed hashes, and its anchors.

Each record holds the hash of the one before and its own, made with a key. So an edit, a deletion, a
copy or another order is found by whoever has the key. Who cuts the end off, or has the key and
writes everything anew, is found by the checkpoints: the number and hash of a record, signed with a
*second* key and sent somewhere else as they arise. What is younger than the last checkpoint is not
protected from that.

A call is two records: its intent, written before the body, on the disk before a labelled tool runs;
and its outcome. An intent without an outcome is a call of which nobody knows the end, and is
reported. A labelled tool whose intent cannot be written does not run (``AuditFailed``).

The pipeline does::

    entry = audit.begin(log, labelled=spec.dangerous, body={"tool": name, "args_hash": hash})
    ...  # the body
    audit.end(entry, outcome)
"""

import atexit
import hashlib
import hmac
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

import rfc8785

from toolverdict.instrument import guard
from toolverdict.instrument.errors import AuditFailed, ConfigurationError, StoreError
from toolverdict.instrument.hashing import HashKey
from toolverdict.instrument.stores import postponing, row_keys
from toolverdict.instrument.stores.clocks import SYSTEM, Clock
from toolverdict.instrument.stores.sqlite_file import SqliteFile, at_the_end, without_blocking

CHECKPOINT_KEY_ENV: Final = "TOOLVERDICT_CHECKPOINT_KEY"
EVERY_RECORDS: Final = 100
EVERY_S: Final = 5.0
MAX_BODY_BYTES: Final = 64 * 1024
IN_FLIGHT_S: Final = 300.0

RecordType = Literal["intent", "outcome", "decision"]

GENESIS: Final = hashlib.sha256(b"toolverdict/audit/1").hexdigest()
"""What the first record of all follows."""

_SCHEMA: Final = (
    (
        """
CREATE TABLE audit (
  seq INTEGER PRIMARY KEY,
  time INTEGER NOT NULL,
  type TEXT NOT NULL CHECK (type IN ('intent', 'outcome', 'decision')),
  body TEXT NOT NULL,
  prev TEXT NOT NULL UNIQUE,
  mac TEXT NOT NULL
) STRICT""",
        "CREATE TRIGGER audit_stays BEFORE UPDATE ON audit"
        " BEGIN SELECT RAISE(ABORT, 'audit records do not change'); END",
        "CREATE TRIGGER audit_keeps BEFORE DELETE ON audit"
        " BEGIN SELECT RAISE(ABORT, 'audit records are not deleted'); END",
    ),
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The head of a log at one moment, signed.

    Args:
        seq: The number of the last record.
        head: Its hash.
        time: When, in milliseconds since 1970, UTC.
        mac: The signature.
    """

    seq: int
    head: str
    time: int
    mac: str

    @classmethod
    def signed(cls, key: HashKey, seq: int, head: str, time: int) -> Self:
        """Sign."""
        return cls(seq, head, time, _checkpoint_mac(key, seq, head, time))

    def is_genuine(self, key: HashKey) -> bool:
        """Whether the signature was made with this key."""
        try:
            return row_keys.same(_checkpoint_mac(key, self.seq, self.head, self.time), self.mac)
        except Exception:  # noqa: BLE001 - it may hold a number or text that no checkpoint has
            return False

    def to_line(self) -> str:
        """One line of JSON."""
        document = {"head": self.head, "mac": self.mac, "seq": self.seq, "time": self.time, "v": 1}
        return json.dumps(document) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Read a line.

        Raises:
            ValueError: It is none of ours.
            StoreError: A newer toolverdict wrote it.
        """
        document = json.loads(line)
        if not isinstance(document, dict):
            raise ValueError("a checkpoint is an object")
        if document.get("v") != 1:
            if isinstance(document.get("v"), int):
                raise StoreError("a checkpoint of a newer toolverdict")
            raise ValueError("a checkpoint has a version")
        seq, head, at, mac = (document.get(name) for name in ("seq", "head", "time", "mac"))
        if type(seq) is not int or type(at) is not int:
            raise ValueError("a checkpoint has a seq and a time")
        if type(head) is not str or type(mac) is not str or not mac.isascii():
            raise ValueError("a checkpoint has a head and a mac")
        return cls(seq, head, at, mac)


class CheckpointFile:
    """Appends checkpoints to a file: one on another machine's disk, or that is shipped away."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the file once, which makes it if it is not there.

        Raises:
            ConfigurationError: It cannot be written to; later nobody would be told but the log.
        """
        self._path = Path(path)
        try:
            os.close(self._open())
        except OSError as error:
            raise ConfigurationError(
                f"{self._path}: checkpoints cannot be written there ({error.strerror})"
            ) from None

    def _open(self) -> int:
        flags = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
        return os.open(self._path, flags, 0o600)

    def __call__(self, checkpoint: Checkpoint) -> None:
        """Append one, on the disk before it returns; a line that was torn before is left alone."""
        with os.fdopen(self._open(), "rb+", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            torn = False
            if size:
                file.seek(size - 1)
                torn = file.read(1) != b"\n"
            file.write((b"\n" if torn else b"") + checkpoint.to_line().encode())
            os.fsync(file.fileno())


class AuditLog:
    """An append-only log in an SQLite file, for any number of processes of one machine.

    Args:
        path: The file; made if it is not there. It may be that of the approvals.
        key: Makes the hashes: bytes, hexadecimal text or a ``HashKey``; None takes the hash key of
            ``configure`` or of the environment when it is first needed. It must outlive the
            process.
        checkpoint_key: Signs checkpoints; best one that this process alone does not have.
        emit: Gets every checkpoint: a ``CheckpointFile``, or a function that sends it away.
        every_records: A checkpoint is due after so many records,
        every_s: or when one is written this long after the last checkpoint.
        after: The last checkpoint of the log that this one continues, after a rotation.
        clock: Where the time comes from.

    Raises:
        ConfigurationError: ``emit`` without ``checkpoint_key``, or something that is no key.
        StoreError: The file cannot be opened, or a newer toolverdict has written it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: row_keys.Key | None = None,
        checkpoint_key: row_keys.Key | None = None,
        emit: Callable[[Checkpoint], None] | None = None,
        every_records: int = EVERY_RECORDS,
        every_s: float = EVERY_S,
        after: Checkpoint | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        if emit is not None and checkpoint_key is None:
            raise ConfigurationError("checkpoints are signed with a key of their own")
        if every_records < 1:
            raise ConfigurationError("every_records must be at least 1")
        self._key = row_keys.made(key)
        self._checkpoint_key = row_keys.made(checkpoint_key, "checkpoint_key")
        self._emit = emit
        self._every_records = every_records
        self._every_s = every_s
        self._start = (0, GENESIS) if after is None else (after.seq, after.head)
        self._clock = clock
        self._lock = threading.Lock()
        self._written_seq = 0
        self._emitted_seq = 0
        self._emitted_at = time.monotonic()
        self._file = SqliteFile(path, "audit", _SCHEMA)
        if emit is not None:
            _open_logs.add(self)

    def __enter__(self) -> Self:
        """The file is open already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Emit a last checkpoint and close the file."""
        self.close()

    def close(self) -> None:
        """Emit a last checkpoint, and close the file for good."""
        _open_logs.discard(self)
        self._last_checkpoint()
        self._file.close()

    def flush(self) -> None:
        """Emit a checkpoint if this process has written records that have none. Never raises.

        Done at the end of the process by itself, unless it is killed.
        """
        if self._written_seq > self._emitted_seq:
            self._last_checkpoint()

    def _last_checkpoint(self) -> None:
        try:
            self.checkpoint()
        except StoreError as error:
            guard.note("audit", "the last checkpoint failed (%s)", error)

    def append(
        self, type_: RecordType, body: Mapping[str, object], *, durable: bool = False
    ) -> int:
        """Write one record.

        Args:
            type_: What it is.
            body: Plain JSON values; never an argument or a result, but their hashes.
            durable: Whether it is on the disk before this returns.

        Returns:
            The number of the record.

        Raises:
            StoreError: It was not written.
            ConfigurationError: There is no key that outlives the process, or both are the same.
        """
        try:
            text = rfc8785.dumps(_plain(body)).decode()
        except Exception as error:  # noqa: BLE001 - whatever it is, there is no record
            raise StoreError(f"an audit record has no JSON ({type(error).__name__})") from None
        if len(text) > MAX_BODY_BYTES:
            raise StoreError("an audit record is too large")
        key = _secret(self._key)
        if self._checkpoint_key is not None and self._checkpoint_key.secret == key.secret:
            raise ConfigurationError("the checkpoint key must be another than the hash key")
        with self._file.writing(durable=durable) as connection:
            last = connection.execute(
                "SELECT seq, mac FROM audit ORDER BY seq DESC LIMIT 1"
            ).fetchone()
            seq, prev = self._start if last is None else (int(last["seq"]), str(last["mac"]))
            seq += 1
            now = self._clock.wall_ms()
            try:
                mac = _record_mac(key, (seq, now, type_, text, prev), first=last is None)
            except ValueError:  # somebody else's record holds a number that none of ours has
                raise StoreError(f"{self._file.path}: its last record is none of ours") from None
            connection.execute(
                "INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?)", (seq, now, type_, text, prev, mac)
            )
        self._written_seq = seq
        self._perhaps_checkpoint(seq, mac)
        return seq

    def checkpoint(self) -> Checkpoint | None:
        """Emit a checkpoint of this moment; None if there is nothing to emit, or nobody to.

        Raises:
            StoreError: The file cannot be used.
        """
        if self._emit is None:
            return None
        with self._file.reading() as connection:
            last = connection.execute(
                "SELECT seq, mac FROM audit ORDER BY seq DESC LIMIT 1"
            ).fetchone()
        return None if last is None else self._send(int(last["seq"]), str(last["mac"]))

    def _perhaps_checkpoint(self, seq: int, head: str) -> None:
        if self._emit is None:
            return
        late = time.monotonic() - self._emitted_at >= self._every_s
        if late or seq - self._emitted_seq >= self._every_records:
            self._send(seq, head)

    def _send(self, seq: int, head: str) -> Checkpoint | None:
        assert self._emit is not None
        assert self._checkpoint_key is not None
        try:
            made = Checkpoint.signed(self._checkpoint_key, seq, head, self._clock.wall_ms())
            with postponing.busy(), self._lock:
                self._emit(made)
        except Exception as error:  # noqa: BLE001 - the record is written; the next checkpoint covers it
            guard.note("audit", "a checkpoint could not be emitted (%s)", type(error).__name__)
            return None
        self._emitted_seq, self._emitted_at = seq, time.monotonic()
        return made


_open_logs: Final[weakref.WeakSet[AuditLog]] = weakref.WeakSet()
"""Logs that emit checkpoints and have not been closed."""


@atexit.register
def _flush_all() -> None:
    """A process that lives for less than a checkpoint's time leaves one all the same."""
    for log in list(_open_logs):
        log.flush()


@dataclass(frozen=True, slots=True)
class Entry:
    """An intent that was written, whose outcome is due."""

    log: AuditLog
    seq: int


def begin(log: AuditLog, *, labelled: bool, body: Mapping[str, object]) -> Entry | None:
    """Write the intent of a call, before its body runs.

    Returns:
        What ``end`` takes; None if it could not be written and the tool has no dangerous label.

    Raises:
        AuditFailed: It could not be written, and the tool must not run without.
    """
    try:
        return Entry(log, log.append("intent", body, durable=labelled))
    except Exception as error:  # noqa: BLE001 - whatever it is, there is no record
        _unrecorded(error, labelled=labelled)
        return None


async def begin_async(log: AuditLog, *, labelled: bool, body: Mapping[str, object]) -> Entry | None:
    """The same, while the event loop goes on."""
    try:
        seq = await without_blocking(lambda: log.append("intent", body, durable=labelled))
    except Exception as error:  # noqa: BLE001 - whatever it is, there is no record
        _unrecorded(error, labelled=labelled)
        return None
    return Entry(log, seq)


def _unrecorded(error: Exception, *, labelled: bool) -> None:
    guard.note("audit", "an intent could not be recorded (%s)", type(error).__name__)
    if labelled:
        raise AuditFailed(
            f"the call was stopped: it could not be put on record ({type(error).__name__})"
        ) from None


def end(entry: Entry | None, outcome: str, body: Mapping[str, object] | None = None) -> None:
    """Write how a call ended. Never raises: then the intent without an outcome says so."""
    if entry is None:
        return
    ended = {**(body or {}), "intent": entry.seq, "outcome": str(outcome)}
    at_the_end(lambda: _append(entry.log, ended), _lost)


def _append(log: AuditLog, ended: Mapping[str, object]) -> None:
    log.append("outcome", ended)


def _lost(error: Exception) -> None:
    guard.note("audit", "an outcome could not be recorded (%s)", type(error).__name__)


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found in a log.

    Args:
        records: How many records it has.
        first: The number of the first; None if there is none.
        last: The number of the last.
        anchored: Up to which record genuine checkpoints agree; None without any.
        problems: What is not as it was written.
        unfinished: Intents without an outcome for longer than a call takes.
        in_flight: Intents without an outcome, of a short while ago.
        warnings: What does not speak against the log, but is worth a look.
    """

    records: int
    first: int | None
    last: int | None
    anchored: int | None
    problems: tuple[str, ...]
    unfinished: tuple[int, ...]
    in_flight: tuple[int, ...]
    warnings: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing was changed and every call has an end."""
        return not self.problems and not self.unfinished


def read_checkpoints(lines: Iterable[str]) -> tuple[list[Checkpoint], list[str]]:
    """Checkpoints, and a warning for each line that is none (torn by a crash, for one).

    Raises:
        StoreError: A newer toolverdict wrote one.
    """
    found: list[Checkpoint] = []
    warnings: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(Checkpoint.from_line(line))
        except (ValueError, RecursionError):
            warnings.append(f"checkpoints: line {number} is no checkpoint")
    return found, warnings


def verify(
    path: str | os.PathLike[str],
    *,
    key: HashKey | None = None,
    checkpoint_key: HashKey | None = None,
    checkpoints: Iterable[Checkpoint] | None = None,
    in_flight_s: float = IN_FLIGHT_S,
    clock: Clock = SYSTEM,
) -> Verification:
    """Check a log, record by record, and against its checkpoints if there are any.

    Args:
        path: The file.
        key: The key of the log; None takes that of the environment.
        checkpoint_key: The key of the checkpoints; needed for them.
        checkpoints: The checkpoints, from where they were sent to.
        in_flight_s: How long a call may go on without an outcome.
        clock: Where the time comes from.

    Raises:
        StoreError: The file cannot be read, or is none.
        ConfigurationError: A key is missing.
    """
    secret = _secret(key)
    if checkpoints is not None and checkpoint_key is None:
        raise ConfigurationError(f"checkpoints need their key; set {CHECKPOINT_KEY_ENV}")
    anchors, problems, warnings = _anchors(checkpoints, checkpoint_key)
    file = SqliteFile(path, "audit", _SCHEMA, create=False)
    try:
        with file.reading() as connection:
            chain = _Chain(secret, anchors, problems, warnings)
            for row in connection.execute("SELECT * FROM audit ORDER BY seq, rowid"):
                chain.follow(row)
    finally:
        file.close()
    chain.end()
    if checkpoints is None:
        warnings.append("without checkpoints a log whose end was cut off looks like a shorter one")
    now = clock.wall_ms()
    missing = sorted(chain.open.items())
    young = tuple(seq for seq, at in missing if 0 <= now - at < in_flight_s * 1000)
    return Verification(
        records=chain.records,
        first=chain.first,
        last=chain.last,
        anchored=chain.anchored,
        problems=tuple(problems),
        unfinished=tuple(seq for seq, _ in missing if seq not in young),
        in_flight=young,
        warnings=tuple(warnings),
    )


class _Chain:
    """One walk along a log."""

    def __init__(
        self, key: HashKey, anchors: dict[int, str], problems: list[str], warnings: list[str]
    ) -> None:
        self.records = 0
        self.first: int | None = None
        self.last: int | None = None
        self.anchored: int | None = None
        self.open: dict[int, int] = {}
        self._ended: set[int] = set()
        self._key = key
        self._anchors = anchors
        self._unmet = dict(anchors)
        self._problems = problems
        self._warnings = warnings
        self._prev = GENESIS

    def follow(self, row: Mapping[str, Any]) -> None:
        seq, mac = row["seq"], row["mac"]
        self.records += 1
        first = self.last is None
        if self.last is None:
            self._begin(seq)
        elif seq == self.last:
            self._problems.append(f"record {seq} is there twice")
        elif seq != self.last + 1:
            self._problems.append(f"records {self.last + 1} to {seq - 1} are missing")
        if row["prev"] != self._prev:
            self._problems.append(f"record {seq} does not follow the one before it")
        genuine = self._is_genuine(row, first=first)
        if first and not genuine and self._is_genuine(row, first=False):
            self._problems.append(f"what came before record {seq} is missing")
        elif not genuine:
            self._problems.append(f"record {seq} was changed, or written with another key")
        head = self._unmet.pop(seq, None)
        if head == mac:
            self.anchored = seq
        elif head is not None:
            self._problems.append(f"record {seq} is not the one that a checkpoint was made of")
        if genuine:
            self._pair(seq, row)
        self.last, self._prev = seq, mac

    def _is_genuine(self, row: Mapping[str, Any], *, first: bool) -> bool:
        columns = tuple(row[name] for name in ("seq", "time", "type", "body", "prev"))
        try:
            return row_keys.same(_record_mac(self._key, columns, first=first), row["mac"])
        except Exception:  # noqa: BLE001 - somebody else's row may hold anything
            return False

    def _begin(self, seq: int) -> None:
        self.first = seq
        if seq == 1:
            return
        # After a rotation the last checkpoint of the earlier file says where this one begins.
        if seq - 1 in self._anchors:
            self._prev = self._anchors[seq - 1]
            self._warnings.append(
                f"it continues an earlier file of {seq - 1} records: check that too"
            )
        else:
            self._problems.append(f"records 1 to {seq - 1} are missing, and have no checkpoint")
        self._unmet = {at: head for at, head in self._unmet.items() if at >= seq}

    def _pair(self, seq: int, row: Mapping[str, Any]) -> None:
        """Intents and their outcomes."""
        if row["type"] == "intent":
            self.open[seq] = row["time"]
        elif row["type"] == "outcome":
            intent = json.loads(row["body"]).get("intent")
            if self.open.pop(intent, None) is not None:
                self._ended.add(intent)
            elif intent in self._ended:
                self._problems.append(f"record {seq} is a second outcome of record {intent}")
            elif self.first is not None and isinstance(intent, int) and intent >= self.first:
                self._problems.append(f"record {seq} is an outcome without an intent")

    def end(self) -> None:
        for seq in sorted(self._unmet):
            self._problems.append(f"record {seq} had a checkpoint and is missing: the end was cut")


def _anchors(
    checkpoints: Iterable[Checkpoint] | None, key: HashKey | None
) -> tuple[dict[int, str], list[str], list[str]]:
    anchors: dict[int, str] = {}
    problems: list[str] = []
    for checkpoint in checkpoints or ():
        assert key is not None
        if not checkpoint.is_genuine(key):
            problems.append(
                f"the checkpoint of record {checkpoint.seq} is forged or of another key"
            )
        elif anchors.setdefault(checkpoint.seq, checkpoint.head) != checkpoint.head:
            problems.append(
                f"two checkpoints of record {checkpoint.seq} differ: the log was forked"
            )
    warnings = [] if anchors or checkpoints is None else ["there is no genuine checkpoint"]
    return anchors, problems, warnings


def _secret(key: HashKey | None) -> HashKey:
    return row_keys.lasting(key, "an audit log needs")


def _record_mac(key: HashKey, columns: tuple[Any, ...], *, first: bool) -> str:
    """The hash of a record. The first of a file is marked: what is cut before one is missed."""
    message = b"audit-record/1\0" + rfc8785.dumps([1, first, *columns])
    return hmac.digest(key.secret, message, "sha256").hex()


def _checkpoint_mac(key: HashKey, seq: int, head: str, time: int) -> str:
    document: list[Any] = [1, seq, head, time]
    message = b"audit-checkpoint/1\0" + rfc8785.dumps(document)
    return hmac.digest(key.secret, message, "sha256").hex()


def _plain(value: Any) -> Any:
    """Exactly JSON's own types, of which an enum's text is one."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, str) else value
