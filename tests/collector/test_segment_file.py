"""Segments past the page cache: the same bytes come back, and elsewhere it goes without."""

import errno
import os
import zlib
from pathlib import Path

import pytest

from toolverdict.collector import segment_file
from toolverdict.collector.segment import (
    FRAME_BYTES,
    PADDING,
    SegmentId,
    pack_frame,
    pack_header,
    pack_padding,
    read_segment,
)
from toolverdict.collector.segment_file import (
    BLOCK_BYTES,
    BufferedFile,
    DirectFile,
    Stage,
    begin_file,
    read_file,
)
from toolverdict.collector.signals import Signal

CREATED = 1_796_000_000_000_000_000
SEGMENT = SegmentId(f"{CREATED:016x}-0123abcd", CREATED)


def _padding(size: int) -> bytes:
    return pack_padding(SEGMENT, size)


def _frame(body: bytes) -> list[bytes]:
    return list(pack_frame(SEGMENT, Signal.TRACES, CREATED, body))


@pytest.mark.parametrize("stage", [Stage(), None], ids=["direct", "buffered"])
def test_every_size_comes_back(tmp_path: Path, stage: Stage | None) -> None:
    """Also those that leave less than a head of a frame to the end of a block."""
    path = tmp_path / f"{SEGMENT.text}.log"
    file, size = begin_file(path, pack_header(CREATED), stage, _padding)
    sizes = [0, 1, *range(BLOCK_BYTES - 3 * FRAME_BYTES, BLOCK_BYTES + 3), 5 * 1024 * 1024]
    for number in sizes:
        size += file.write(_frame(b"x" * number))
    os.close(file.descriptor)
    content = read_segment(path)
    assert [len(frame.body) for frame in content.frames] == sizes
    assert (content.damage, content.torn_bytes) == (None, 0)
    assert path.stat().st_size == size
    if isinstance(file, DirectFile):
        assert size % BLOCK_BYTES == 0


def test_what_is_read_past_the_cache_is_the_same_and_cannot_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "whole blocks"
    data = os.urandom(3 * BLOCK_BYTES)
    path.write_bytes(data)
    read = read_file(path)
    assert read == data
    assert read.readonly


@pytest.mark.parametrize("where", ["open", "writev", "readv"])
def test_a_file_system_that_refuses_gets_ordinary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Some refuse when a file is opened, others at the first write."""
    path = tmp_path / f"{SEGMENT.text}.log"
    real = getattr(os, where)
    refused: list[str] = []

    def refusing(*args: object) -> object:
        if not refused:
            refused.append(where)
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(*args)

    monkeypatch.setattr(segment_file, "_DIRECT", os.O_CLOEXEC)  # a flag that changes nothing
    monkeypatch.setattr(os, where, refusing)
    file, _ = begin_file(path, pack_header(CREATED), Stage(), _padding)
    file.write(_frame(b"stored"))
    os.close(file.descriptor)
    assert isinstance(file, DirectFile if where == "readv" else BufferedFile)
    assert [bytes(frame.body) for frame in read_segment(path).frames] == [b"stored"]
    assert refused


def test_a_file_that_cannot_be_begun_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(OSError, match="No space left"):
        begin_file(tmp_path / "segment", b"header", Stage(), _padding)
    assert list(tmp_path.iterdir()) == []


def test_padding_is_a_frame_that_nobody_sees(tmp_path: Path) -> None:
    path = tmp_path / f"{SEGMENT.text}.log"
    pieces = [pack_header(CREATED), _padding(0), *_frame(b"a"), _padding(500), *_frame(b"b")]
    path.write_bytes(b"".join(pieces))
    assert len(_padding(500)) == 500
    assert _padding(0)[8] == PADDING
    content = read_segment(path)
    assert [bytes(frame.body) for frame in content.frames] == [b"a", b"b"]
    assert content.damage is None


def test_version_2_is_still_read(tmp_path: Path) -> None:
    """It had no padding, and nothing else was different."""
    path = tmp_path / f"{SEGMENT.text}.log"
    header = bytearray(pack_header(CREATED)[:20])
    header[8:12] = (2).to_bytes(4)
    crc = zlib.crc32(header).to_bytes(4)
    path.write_bytes(bytes(header) + crc + b"".join(_frame(b"old")))
    content = read_segment(path)
    assert [bytes(frame.body) for frame in content.frames] == [b"old"]
    assert content.damage is None
