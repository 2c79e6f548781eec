"""The log's file format, sound and damaged."""

import struct
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.collector.errors import ConfigError
from toolverdict.collector.segment import (
    HEADER_BYTES,
    SEAL,
    SegmentId,
    new_segment_id,
    pack_frame,
    pack_header,
    read_segment,
    refuse_newer,
    segment_id_of,
)
from toolverdict.collector.signals import Signal

CREATED = 1_796_000_000_000_000_000
SEGMENT = SegmentId(f"{CREATED:016x}-0123abcd", CREATED)
NAME = f"{SEGMENT.text}.log"
BODIES = [b"first", b"", b"third " * 20, bytes(40)]


def _frames(*bodies: bytes) -> list[bytes]:
    return [
        b"".join(pack_frame(SEGMENT, Signal.TRACES, CREATED + index, body))
        for index, body in enumerate(bodies)
    ]


def _write(folder: Path, data: bytes) -> Path:
    path = folder / NAME
    path.write_bytes(data)
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("segments")


def test_frames_come_back_in_order(tmp_path: Path) -> None:
    seal = b"".join(pack_frame(SEGMENT, SEAL, CREATED, b""))
    path = _write(tmp_path, pack_header(CREATED) + b"".join(_frames(*BODIES)) + seal)
    content = read_segment(path)
    assert [frame.body for frame in content.frames] == BODIES
    assert [frame.received_unix_nano - CREATED for frame in content.frames] == [0, 1, 2, 3]
    assert (content.damage, content.torn_bytes) == (None, 0)


@given(st.integers(0, 250))
def test_a_segment_torn_at_any_byte_is_a_prefix(folder: Path, kept: int) -> None:
    """What was never acknowledged vanishes, without a complaint; all before it stays."""
    frames = _frames(*BODIES)
    data = pack_header(CREATED) + b"".join(frames)
    content = read_segment(_write(folder, data[:kept]))
    whole = [frame.body for frame in content.frames]
    assert whole == BODIES[: len(whole)]
    ends = [HEADER_BYTES + len(b"".join(frames[: n + 1])) for n in range(len(frames))]
    assert len(whole) == sum(end <= kept for end in ends)
    assert (content.damage is None) is (kept >= HEADER_BYTES)


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_flipped_byte_in_the_middle_is_damage_and_the_rest_stays(
    folder: Path, place: int, flip: int
) -> None:
    """B85: at most the frame that was hit is lost, and that is never silent."""
    frames = _frames(*BODIES)
    start = HEADER_BYTES
    end = start + len(b"".join(frames[:3]))
    data = bytearray(pack_header(CREATED) + b"".join(frames))
    position = start + place % (end - start)
    data[position] ^= flip
    content = read_segment(_write(folder, bytes(data)))
    assert content.damage is not None
    assert len(content.frames) == 3
    assert {frame.body for frame in content.frames} < set(BODIES)


def test_a_bad_last_frame_is_damage(tmp_path: Path) -> None:
    """Only a frame that ends too early can be a write that nobody was told had succeeded."""
    frames = _frames(*BODIES)
    broken = bytearray(frames[-1])
    broken[-1] ^= 1
    data = pack_header(CREATED) + b"".join(frames[:-1]) + broken
    seal = b"".join(pack_frame(SEGMENT, SEAL, CREATED, b""))
    assert read_segment(_write(tmp_path, data)).damage is not None
    assert read_segment(_write(tmp_path, data[:-1])).damage is None
    assert read_segment(_write(tmp_path, data + seal)).damage is not None


def test_bytes_in_a_body_are_never_taken_for_a_frame(tmp_path: Path) -> None:
    """A client can build a frame, but not the CRC of a segment whose id it does not know."""
    elsewhere = SegmentId(f"{CREATED:016x}-00000000", CREATED)
    forged = b"".join(pack_frame(elsewhere, Signal.TRACES, CREATED, b"forged"))
    sealed = b"".join(pack_frame(elsewhere, SEAL, CREATED, b""))
    frames = _frames(b"first", forged + sealed, b"last")
    data = bytearray(pack_header(CREATED) + b"".join(frames))
    data[HEADER_BYTES + len(frames[0])] ^= 1
    content = read_segment(_write(tmp_path, bytes(data)))
    assert [frame.body for frame in content.frames] == [b"first", b"last"]
    assert content.damage is not None


def test_a_damaged_header_loses_no_frame(tmp_path: Path) -> None:
    data = b"\0" * HEADER_BYTES + b"".join(_frames(*BODIES))
    content = read_segment(_write(tmp_path, data))
    assert [frame.body for frame in content.frames] == BODIES
    assert content.damage == "the header is unreadable"


@pytest.mark.parametrize("data", [b"", b"x", b"garbage" * 100, bytes(100)])
def test_empty_and_garbage_files_are_damage(tmp_path: Path, data: bytes) -> None:
    """B86"""
    content = read_segment(_write(tmp_path, data))
    assert content.frames == []
    assert content.damage is not None


def test_a_flipped_byte_in_the_last_frame_is_damage(tmp_path: Path) -> None:
    """Every byte of it was acknowledged, the length included."""
    frames = _frames(b"first", b"last one")
    data = pack_header(CREATED) + b"".join(frames)
    for position in range(len(data) - len(frames[-1]), len(data)):
        broken = bytearray(data)
        broken[position] ^= 0x40
        content = read_segment(_write(tmp_path, bytes(broken)))
        assert [frame.body for frame in content.frames] == [b"first"]
        assert content.damage is not None


def test_a_renamed_or_copied_segment_is_damage(tmp_path: Path) -> None:
    """Its frames are those of another segment; they are not thrown away."""
    path = _write(tmp_path, pack_header(CREATED) + b"".join(_frames(b"first")))
    copy = path.rename(tmp_path / f"{CREATED:016x}-ffffffff.log")
    content = read_segment(copy)
    assert (content.frames, content.torn_bytes) == ([], 0)
    assert content.damage is not None


@pytest.mark.parametrize("filler", [b"\x01", b"\x00\x10\x00\x00\x00\x00\x00\x00\x01\x18"])
def test_the_search_past_damage_takes_one_pass(tmp_path: Path, filler: bytes) -> None:
    """Whatever a client sent, no body is read before its head is known to be sound."""
    data = bytearray(pack_header(CREATED) + b"".join(_frames(filler * 100_000, b"last")))
    data[HEADER_BYTES] ^= 1
    path = _write(tmp_path, bytes(data))
    started = time.process_time()
    content = read_segment(path)
    assert time.process_time() - started < 5
    assert [frame.body for frame in content.frames] == [b"last"]


def test_a_folder_or_a_dangling_link_is_damage(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    assert read_segment(tmp_path / NAME).damage == "it is not a file"
    link = tmp_path / f"{CREATED:016x}-00000000.log"
    link.symlink_to("/nonexistent")
    assert read_segment(link).damage == "it is not a file"


def test_a_file_of_another_name_is_no_segment(tmp_path: Path) -> None:
    path = tmp_path / "notes.log"
    path.write_text("x")
    assert segment_id_of(path) is None
    assert read_segment(path).damage is not None


def test_a_newer_format_is_refused_and_not_taken_for_damage(tmp_path: Path) -> None:
    header = struct.pack(">8sIQ", b"TVWALSEG", 4, CREATED)
    path = _write(tmp_path, header + struct.pack(">I", zlib.crc32(header)))
    with pytest.raises(ConfigError, match="newer toolverdict"):
        refuse_newer(path)
    refuse_newer(_write(tmp_path, b"garbage"))


def test_version_1_is_still_read(tmp_path: Path) -> None:
    """It had the CRC-32 of each body; these are the bytes that version wrote."""
    segment = "18ecb0a95f7c8000-0123abcd"
    data = bytes.fromhex(
        "545657414c5345470000000118ecb0a95f7c800005f280cc"
        "000000059271ee570118ecb0a95f7c80014e7e46d86669727374"
    )
    path = tmp_path / f"{segment}.log"
    path.write_bytes(data)
    refuse_newer(path)
    content = read_segment(path)
    assert [frame.body for frame in content.frames] == [b"first"]
    assert (content.damage, content.torn_bytes) == (None, 0)
    path.write_bytes(data[:-1] + b"T")
    assert read_segment(path).damage is not None


def test_ids_are_unique_and_sort_by_time() -> None:
    """B104: a part takes its name from the segment, so no name ever comes twice."""
    ids = [new_segment_id(0)]
    for _ in range(100):
        ids.append(new_segment_id(ids[-1].created_unix_nano))
    assert sorted({segment.text for segment in ids}) == [segment.text for segment in ids]
    future = 2**62
    assert new_segment_id(future).created_unix_nano == future + 1
