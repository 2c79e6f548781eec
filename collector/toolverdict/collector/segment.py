"""The format of a write-ahead log segment, both ways, and how a damaged one is read.

A segment is the file ``wal/<id>.log``; its id is ``<created, 16 hex digits of ns>-<8 random hex
digits>``, so ids sort by time and never come twice. Numbers are big-endian::

    header  magic "TVWALSEG" | u32 format version | u64 created, ns | u32 CRC-32 of those 20 bytes
    frame   u32 body length | u32 CRC-32 | u8 kind | u64 received, ns | body

The kind is a :class:`~toolverdict.collector.signals.Signal`, or :data:`SEAL` for the empty frame
that closes a segment. The CRC-32 of a frame covers the segment's id, the head of the frame (with 0
for the CRC) and the body. The id makes a frame valid in its own segment only, and since a client
cannot know it, bytes in a body are never taken for a frame when the place of one has to be
searched for. Reading never changes the file.
"""

import re
import secrets
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from toolverdict.collector.errors import ConfigError
from toolverdict.collector.signals import Signal

FORMAT_VERSION: Final = 1
SEAL: Final = 0x7F
"""Kind of the last frame of a segment that was closed in order."""

_MAGIC: Final = b"TVWALSEG"
_HEADER: Final = struct.Struct(">8sIQ")
_CRC: Final = struct.Struct(">I")
HEADER_BYTES: Final = _HEADER.size + _CRC.size

_FRAME: Final = struct.Struct(">IIBQ")
FRAME_BYTES: Final = _FRAME.size
_SIGNALS: Final = frozenset(int(signal) for signal in Signal)
_FILE_NAME: Final = re.compile(r"([0-9a-f]{16})-[0-9a-f]{8}\.log")


class Frame(NamedTuple):
    """One request as it was acknowledged."""

    signal: Signal
    received_unix_nano: int
    body: bytes


class SegmentContent(NamedTuple):
    """What reading a segment found."""

    frames: list[Frame]
    damage: str | None
    """Why bytes that had been acknowledged may be missing; None for a sound or torn segment."""
    torn_bytes: int
    """Bytes after the last frame: a write that was cut off and so never acknowledged."""


class SegmentId(NamedTuple):
    """The name of a segment without its suffix, and when it was made."""

    text: str
    created_unix_nano: int


def new_segment_id(after_unix_nano: int) -> SegmentId:
    """An id never used before, of now but later than ``after_unix_nano`` if the clock went back."""
    created = max(time.time_ns(), after_unix_nano + 1)
    return SegmentId(f"{created:016x}-{secrets.token_hex(4)}", created)


def segment_id_of(path: Path) -> SegmentId | None:
    """The id in a segment's file name, None when the name is not one of ours."""
    match = _FILE_NAME.fullmatch(path.name)
    return SegmentId(path.stem, int(match[1], 16)) if match else None


def pack_header(created_unix_nano: int) -> bytes:
    """The first bytes of a segment."""
    header = _HEADER.pack(_MAGIC, FORMAT_VERSION, created_unix_nano)
    return header + _CRC.pack(zlib.crc32(header))


def pack_frame(
    segment: SegmentId, kind: int, received_unix_nano: int, body: bytes
) -> tuple[bytes, bytes]:
    """One frame of a segment as its head and its body; the body is not copied."""
    crc = _frame_crc(segment, len(body), kind, received_unix_nano, body)
    return _FRAME.pack(len(body), crc, kind, received_unix_nano), body


def read_segment(path: Path) -> SegmentContent:
    """Read every frame that can be found in a segment.

    A bad frame with a valid one after it, or a bad header, is damage: what was acknowledged may be
    missing, and what is sound on both sides of it is returned. A bad end with nothing valid after
    it is a write the process did not finish, which nobody was told had succeeded.

    Raises:
        OSError: when the file cannot be read.
    """
    data = path.read_bytes()
    segment = segment_id_of(path)
    if segment is None:
        return SegmentContent([], "the file name is not one of a segment", 0)
    if not data:
        return SegmentContent([], "the file is empty", 0)
    damage = None if _version_of(data) == FORMAT_VERSION else "the header is unreadable"
    frames: list[Frame] = []
    position = HEADER_BYTES
    while position < len(data):
        found = _frame_at(segment, data, position)
        if found is None:
            resumed = _next_frame(segment, data, position + 1)
            if resumed is None:
                break
            damage = damage or f"{resumed - position} bytes at offset {position} are unreadable"
            position = resumed
            continue
        kind, frame, position = found
        if kind != SEAL:
            frames.append(frame)
    return SegmentContent(frames, damage, max(0, len(data) - position))


def refuse_newer(path: Path) -> None:
    """Check at the start that this version can read a segment.

    Raises:
        ConfigError: when a newer version of the collector wrote it.
    """
    with path.open("rb") as file:
        data = file.read(HEADER_BYTES)
    version = _version_of(data)
    if version is not None and version > FORMAT_VERSION:
        raise ConfigError(
            f"{path} was written by a newer toolverdict (log format {version}, this one reads "
            f"{FORMAT_VERSION}); upgrade, or start that version once"
        )


def _version_of(data: bytes) -> int | None:
    """The format version in a header, None when the header is damaged."""
    header = data[: _HEADER.size]
    if len(data) < HEADER_BYTES or _CRC.unpack_from(data, _HEADER.size)[0] != zlib.crc32(header):
        return None
    magic, version, _ = _HEADER.unpack(header)
    return int(version) if magic == _MAGIC else None


def _frame_at(segment: SegmentId, data: bytes, position: int) -> tuple[int, Frame, int] | None:
    """Kind, frame and end of the frame at a position; None when there is no valid one."""
    body_at = position + FRAME_BYTES
    if body_at > len(data):
        return None
    length, crc, kind, received_unix_nano = _FRAME.unpack_from(data, position)
    end = body_at + length
    if end > len(data):
        return None
    body = data[body_at:end]
    if crc != _frame_crc(segment, length, kind, received_unix_nano, body):
        return None
    if kind == SEAL:
        return kind, Frame(Signal.TRACES, received_unix_nano, b""), end
    if kind not in _SIGNALS:
        return None
    return kind, Frame(Signal(kind), received_unix_nano, body), end


def _next_frame(segment: SegmentId, data: bytes, start: int) -> int | None:
    """Where the next valid frame begins after a damaged one, None when there is none."""
    for position in _candidates(data, start, segment.created_unix_nano):
        if _frame_at(segment, data, position) is not None:
            return position
    return None


def _candidates(data: bytes, start: int, created_unix_nano: int) -> Iterator[int]:
    """Positions whose kind and time look like a frame's.

    A frame was received within days of its segment's creation, so the first two bytes of its time
    (one step is 78 hours) are known; that keeps the search at the speed of a regular expression.
    """
    step = created_unix_nano >> 48
    kinds = bytes([*Signal, SEAL])
    times = b"|".join(re.escape(n.to_bytes(2)) for n in {max(0, step - 1), step, step + 1})
    pattern = re.compile(b"[" + re.escape(kinds) + b"](?:" + times + b")", re.DOTALL)
    kind_offset = 8
    for match in pattern.finditer(data, start + kind_offset):
        yield match.start() - kind_offset


def _frame_crc(
    segment: SegmentId, length: int, kind: int, received_unix_nano: int, body: bytes
) -> int:
    head = segment.text.encode() + _FRAME.pack(length, 0, kind, received_unix_nano)
    return zlib.crc32(body, zlib.crc32(head))
