"""Media types and content codings of request bodies, bounded while inflating."""

import zlib
from enum import StrEnum

import pyarrow as pa

from toolverdict.collector.errors import DecodeError, TooLargeError, UnsupportedMediaError

_STEP_BYTES = 64 * 1024
_MAX_MEMBERS = 1024
"""bgzip writes one member for 64 KiB; far more than that is an attack on the decoder."""


class MediaType(StrEnum):
    """The two encodings of OTLP/HTTP."""

    PROTOBUF = "application/x-protobuf"
    JSON = "application/json"


def media_type_of(content_type: str | None) -> MediaType:
    """The media type a Content-Type header names, whatever its parameters and case.

    Raises:
        UnsupportedMediaError: for any other media type or none.
    """
    essence = (content_type or "").partition(";")[0].strip().lower()
    try:
        return MediaType(essence)
    except ValueError:
        raise UnsupportedMediaError(
            f"Content-Type must be {MediaType.PROTOBUF} or {MediaType.JSON}"
        ) from None


def is_coded(content_encoding: str | None) -> bool:
    """Whether a Content-Encoding names anything but identity."""
    return bool(_codings(content_encoding))


def inflate(body: bytes, content_encoding: str | None, max_bytes: int) -> bytes:
    """The body with its Content-Encoding undone.

    One coding is undone, whatever "identity" stands beside it: no exporter sends more, and a stack
    of them multiplies the work. At most ``max_bytes`` are ever inflated, so a small bomb stays
    small.

    Raises:
        UnsupportedMediaError: for a coding other than gzip, x-gzip, deflate, zstd and identity, or
            several.
        DecodeError: when the body is truncated, or not in its coding.
        TooLargeError: when more than ``max_bytes`` come out.
    """
    match _codings(content_encoding):
        case []:
            pass
        case ["gzip" | "x-gzip"]:
            body = _inflate_members(body, 16 + zlib.MAX_WBITS, max_bytes, "gzip")
        case ["deflate"]:
            body = _inflate_deflate(body, max_bytes)
        case ["zstd"]:
            body = _inflate_zstd(body, max_bytes)
        case _:
            raise UnsupportedMediaError(
                "Content-Encoding must be one of gzip, deflate, zstd, identity"
            )
    if len(body) > max_bytes:
        raise TooLargeError(too_large_message(max_bytes))
    return body


def too_large_message(max_bytes: int) -> str:
    """The one sentence about the body limit, which names it."""
    return f"the request body is larger than the limit of {max_bytes} bytes (--max-body-mib)"


def _codings(content_encoding: str | None) -> list[str]:
    names = (name.strip().lower() for name in (content_encoding or "").split(","))
    return [name for name in names if name not in ("", "identity")]


def _inflate_deflate(body: bytes, max_bytes: int) -> bytes:
    """Undo "deflate": zlib by the RFC, raw deflate as some clients send it."""
    # The two bytes of a zlib header are a multiple of 31 with compression method 8 (RFC 1950).
    is_zlib = len(body) >= 2 and body[0] & 0x0F == 8 and int.from_bytes(body[:2]) % 31 == 0
    return _inflate_members(
        body, zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS, max_bytes, "deflate"
    )


def _inflate_members(body: bytes, wbits: int, max_bytes: int, coding: str) -> bytes:
    """Inflate every member of a stream; zlib itself stops at the first, without a word."""
    if not body:
        raise DecodeError(f"the {coding} body is empty")
    pieces: list[bytes] = []
    room = max_bytes
    position = 0
    members = 0
    while position < len(body):
        members += 1
        if members > _MAX_MEMBERS:
            raise DecodeError(f"the {coding} body has more than {_MAX_MEMBERS} members")
        member = zlib.decompressobj(wbits)
        while not member.eof:
            # In steps, since zlib copies all that follows a member each time one ends.
            step = body[position : position + _STEP_BYTES]
            if not step:
                raise DecodeError(f"the {coding} body is truncated")
            try:
                piece = member.decompress(step, room + 1)
            except zlib.error as error:
                raise DecodeError(f"the body is not valid {coding}") from error
            if len(piece) > room:
                raise TooLargeError(too_large_message(max_bytes))
            room -= len(piece)
            pieces.append(piece)
            position += len(step) - len(member.unused_data)
    return b"".join(pieces)


def _inflate_zstd(body: bytes, max_bytes: int) -> bytes:
    """Undo "zstd", every frame of it (RFC 8878)."""
    if not body:
        raise DecodeError("the zstd body is empty")
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            inflated: bytes = stream.read(max_bytes + 1)
    except OSError as error:
        raise DecodeError("the body is truncated or not valid zstd") from error
    return inflated
