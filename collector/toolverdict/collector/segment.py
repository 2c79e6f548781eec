"""The format of a write-ahead log segment, both ways, and how a damaged one is read.

A segment is the file ``wal/<id>.log``; its id is ``<created, 16 hex digits of ns>-<8 random hex
digits>``, so ids sort by time and never come twice. Numbers are big-endian::

    header  magic "TVWALSEG" | u32 format version | u64 created, ns | u32 CRC-32 of those 20 bytes
    frame   u32 body length | u32 checksum of the body | u8 kind | u64 received, ns
            | u32 CRC-32 of the segment's id and those 17 bytes | body

The checksum of a body is the lower half of its XXH3-64, which costs a tenth of the CRC-32 that
version 1 had. Version 2 had no padding. Both are still read.

The kind is a :class:`~toolverdict.collector.signals.Signal`, or :data:`SEAL` for the empty frame
that closes a segment, or :data:`PADDING` for zeros up to the end of a block. The head has a CRC of its own, so a place can be judged without a look at the
body, and searching past damage takes one pass. The id in it makes a frame valid in its own segment
only, and since a client cannot know the id, bytes in a body are not taken for a frame. Reading
never changes the file.
"""

import re
import secrets
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import xxhash

from toolverdict.collector.errors import ConfigError
from toolverdict.collector.segment_file import read_file
from toolverdict.collector.signals import Signal

FORMAT_VERSION: Final = 3
SEAL: Final = 0x7F
"""Kind of the last frame of a segment that was closed in order."""

PADDING: Final = 0x7E
"""Kind of a frame that only fills a block of the disk."""

_MAGIC: Final = b"TVWALSEG"
_HEADER: Final = struct.Struct(">8sIQ")
_CRC: Final = struct.Struct(">I")
HEADER_BYTES: Final = _HEADER.size + _CRC.size

_FRAME: Final = struct.Struct(">IIBQ")
FRAME_BYTES: Final = _FRAME.size + _CRC.size
_KINDS: Final = frozenset({*map(int, Signal), SEAL, PADDING})
_ANY_KIND: Final = re.compile(b"[" + re.escape(bytes(sorted(_KINDS))) + b"]")
_KIND_OFFSET: Final = 8
_FILE_NAME: Final = re.compile(r"([0-9a-f]{16})-[0-9a-f]{8}\.log")


class Frame(NamedTuple):
    """One request as it was acknowledged."""

    signal: Signal
    received_unix_nano: int
    body: memoryview
    """A part of the segment as it was read; it is not copied."""


class _Head(NamedTuple):
    kind: int
    received_unix_nano: int
    body_checksum: int
    body_at: int
    end: int


class SegmentContent(NamedTuple):
    """What reading a segment found."""

    frames: list[Frame]
    damage: str | None
    """Why bytes that had been acknowledged may be missing; None for a sound or torn segment."""
    torn_bytes: int
    """Bytes of a last frame that was not written to its end and so never acknowledged."""


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
    head = _FRAME.pack(len(body), _xxh3(body), kind, received_unix_nano)
    return head + _CRC.pack(zlib.crc32(head, _seed(segment))), body


def pack_padding(segment: SegmentId, size: int) -> bytes:
    """A frame of so many bytes that holds nothing; of FRAME_BYTES, if ``size`` is less."""
    return b"".join(pack_frame(segment, PADDING, 0, bytes(max(0, size - FRAME_BYTES))))


def read_segment(path: Path) -> SegmentContent:
    """Read every frame that can be found in a segment.

    Only the beginning of a frame at the end of the file is a write the process did not finish,
    which nobody was told had succeeded. Whatever else does not read is damage: what was
    acknowledged may be missing, and what is sound on both sides of it is returned. So is the whole
    of a file that was copied or renamed.

    Raises:
        OSError: when the file cannot be read.
    """
    segment = segment_id_of(path)
    if segment is None:
        return SegmentContent([], "the file name is not one of a segment", 0)
    if not path.is_file():
        return SegmentContent([], "it is not a file", 0)
    data = read_file(path)
    if not data:
        return SegmentContent([], "the file is empty", 0)
    version = _version_of(data)
    checksum = _CHECKSUMS.get(version or FORMAT_VERSION, _xxh3)
    damage = None if version in _CHECKSUMS else "the header is unreadable"
    seed = _seed(segment)
    frames: list[Frame] = []
    position = HEADER_BYTES
    while len(data) - position >= FRAME_BYTES:
        head = _head_at(seed, data, position)
        if head is not None and checksum(data[head.body_at : head.end]) == head.body_checksum:
            if head.kind not in (SEAL, PADDING):
                body = data[head.body_at : head.end]
                frames.append(Frame(Signal(head.kind), head.received_unix_nano, body))
            position = head.end
            continue
        resumed = _next_head(seed, data, position + 1)
        if resumed == len(data) and head is not None and head.end > len(data):
            break
        damage = damage or f"{resumed - position} bytes at offset {position} are unreadable"
        position = resumed
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


def _version_of(data: bytes | memoryview) -> int | None:
    """The format version in a header, None when the header is damaged."""
    header = data[: _HEADER.size]
    if len(data) < HEADER_BYTES or _CRC.unpack_from(data, _HEADER.size)[0] != zlib.crc32(header):
        return None
    magic, version, _ = _HEADER.unpack(header)
    return int(version) if magic == _MAGIC else None


def _head_at(seed: int, view: memoryview, position: int) -> _Head | None:
    """The head of the frame at a position, None when no sound one is there."""
    crc_at = position + _FRAME.size
    body_at = position + FRAME_BYTES
    if body_at > len(view):
        return None
    if _CRC.unpack_from(view, crc_at)[0] != zlib.crc32(view[position:crc_at], seed):
        return None
    length, checksum, kind, received_unix_nano = _FRAME.unpack_from(view, position)
    if kind not in _KINDS:
        return None
    return _Head(kind, received_unix_nano, checksum, body_at, body_at + length)


def _next_head(seed: int, data: memoryview, start: int) -> int:
    """Where the next sound head begins after damage; the end of the data when there is none."""
    for match in _ANY_KIND.finditer(data, start + _KIND_OFFSET):
        position = match.start() - _KIND_OFFSET
        if _head_at(seed, data, position) is not None:
            return position
    return len(data)


def _xxh3(body: bytes | memoryview) -> int:
    return xxhash.xxh3_64_intdigest(body) & 0xFFFFFFFF


_CHECKSUMS: Final[dict[int | None, Callable[[bytes | memoryview], int]]] = {
    1: zlib.crc32,
    2: _xxh3,
    FORMAT_VERSION: _xxh3,
}
"""The checksum of a body by the version of the format."""


def _seed(segment: SegmentId) -> int:
    """What the CRC of every head of a segment goes on from."""
    return zlib.crc32(segment.text.encode())
