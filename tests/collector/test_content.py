"""Media types and content codings."""

import gzip
import tracemalloc
import zlib

import pyarrow as pa
import pytest

from toolverdict.collector.content import MediaType, inflate, media_type_of
from toolverdict.collector.errors import DecodeError, TooLargeError, UnsupportedMediaError

LIMIT = 10_000


def _zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)  # the same bytes, and so the same test, every time


def _raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("application/x-protobuf", MediaType.PROTOBUF),
        ("Application/X-Protobuf; messageType=x", MediaType.PROTOBUF),
        ("application/json; charset=utf-8", MediaType.JSON),
    ],
)
def test_media_types_with_parameters_and_case(header: str, expected: MediaType) -> None:
    assert media_type_of(header) is expected


@pytest.mark.parametrize("header", [None, "", "text/plain", "application/jsonx", "json"])
def test_other_media_types_are_refused(header: str | None) -> None:
    with pytest.raises(UnsupportedMediaError, match="application/json"):
        media_type_of(header)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        (None, b"ab"),
        ("identity", b"ab"),
        ("gzip", _gzip(b"ab")),
        ("GZIP", _gzip(b"ab")),
        ("x-gzip", _gzip(b"ab")),
        ("gzip", _gzip(b"a") + _gzip(b"b")),
        ("gzip, identity", _gzip(b"ab")),
        ("deflate", zlib.compress(b"ab")),
        ("deflate", _raw_deflate(b"ab")),
    ],
    ids=lambda value: None if isinstance(value, bytes) else str(value),
)
def test_codings_and_all_their_members(encoding: str | None, body: bytes) -> None:
    """B68: every member of a concatenated stream is read."""
    assert inflate(body, encoding, LIMIT) == b"ab"


def test_gzip_of_nothing_is_nothing() -> None:
    """B77: an empty request may come compressed."""
    assert inflate(_gzip(b""), "gzip", LIMIT) == b""


@pytest.mark.parametrize("coding", ["br", "gzip, br", "*", "gzip, gzip", "zstd, gzip"])
def test_unknown_and_stacked_codings_are_unsupported(coding: str) -> None:
    with pytest.raises(UnsupportedMediaError, match="gzip"):
        inflate(b"x", coding, LIMIT)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("body", [b"plain", b"", b"\x1f\x8b", b"x\x9c"])
def test_a_body_not_in_its_coding_is_an_error(coding: str, body: bytes) -> None:
    with pytest.raises(DecodeError, match=coding):
        inflate(body, coding, LIMIT)


@pytest.mark.parametrize("cut", [1, 4, 8, 9, 12, 20, 22])
def test_a_truncated_stream_is_never_taken_for_a_whole_one(cut: int) -> None:
    """B68: zlib itself does not complain about any of these."""
    second = _gzip(b"two")
    assert cut < len(second)
    with pytest.raises(DecodeError, match="truncated"):
        inflate(_gzip(b"one") + second[:-cut], "gzip", LIMIT)


def test_garbage_after_a_member_is_an_error() -> None:
    with pytest.raises(DecodeError):
        inflate(_gzip(b"one") + b"rest", "gzip", LIMIT)


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1])
@pytest.mark.parametrize("encoding", [None, "gzip", "deflate", "zstd"])
def test_the_limit_is_exact(size: int, encoding: str | None) -> None:
    data = bytes(size)
    body = {
        None: data,
        "gzip": _gzip(data),
        "deflate": zlib.compress(data),
        "zstd": _zstd(data),
    }[encoding]
    if size > LIMIT:
        with pytest.raises(TooLargeError, match=str(LIMIT)):
            inflate(body, encoding, LIMIT)
    else:
        assert inflate(body, encoding, LIMIT) == data


def test_a_bomb_is_stopped_while_inflating() -> None:
    bomb = _gzip(bytes(64 * 1024 * 1024))
    tracemalloc.start()
    with pytest.raises(TooLargeError):
        inflate(bomb, "gzip", LIMIT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


def test_a_zstd_bomb_is_stopped_while_inflating() -> None:
    bomb = _zstd(bytes(64 * 1024 * 1024))
    before = pa.total_allocated_bytes()
    with pytest.raises(TooLargeError):
        inflate(bomb, "zstd", LIMIT)
    assert pa.total_allocated_bytes() - before < 2_000_000


def test_every_frame_of_zstd_is_read() -> None:
    """B68, for the youngest of the codings: two frames, and one that readers skip."""
    skippable = bytes.fromhex("502a4d1804000000") + b"skip"
    body = _zstd(b"one") + skippable + _zstd(b"two")
    assert inflate(body, "zstd", LIMIT) == b"onetwo"


@pytest.mark.parametrize("cut", [1, 3, 8])
def test_truncated_zstd_is_never_taken_for_a_whole_body(cut: int) -> None:
    with pytest.raises(DecodeError, match="truncated"):
        inflate(_zstd(b"one") + _zstd(b"two")[:-cut], "zstd", LIMIT)


def test_a_stream_of_very_many_members_is_refused() -> None:
    with pytest.raises(DecodeError, match="members"):
        inflate(_gzip(b"") * 5000, "gzip", LIMIT)
